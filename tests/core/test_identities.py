"""Producer identities: those that were renewed are remembered up to a limit."""

import pytest

from goqueue.base.errors import ProducerFencedError, UnknownProducerError
from goqueue.core.producers import identities
from goqueue.core.producers.identities import (
    IDS_PER_BLOCK,
    BlockSkipped,
    Identities,
    IdsReserved,
    LifeBegun,
)

LIMIT = 40


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> tuple[Identities, list[identities.Event]]:
    """One more renewed producer than are remembered, with the events that led there."""
    monkeypatch.setattr(identities, "PRODUCER_LIVES_MAX", LIMIT)
    events: list[identities.Event] = [IdsReserved(end_id=IDS_PER_BLOCK)]
    events += [LifeBegun(producer_id=number, epoch=3) for number in range(2, LIMIT + 3)]
    return replayed(events), events


def replayed(events: list[identities.Event]) -> Identities:
    known = Identities()
    for event in events:
        known.apply(event)
    known.apply(BlockSkipped())
    return known


def test_the_oldest_are_forgotten_and_told_so(
    full: tuple[Identities, list[identities.Event]],
) -> None:
    """Neither their last life nor an earlier one is taken for a new producer's."""
    known, _ = full
    for epoch in (0, 3):
        with pytest.raises(UnknownProducerError, match="any more"):
            known.check(producer_id=2, epoch=epoch)
    with pytest.raises(UnknownProducerError, match="any more"):
        known.check(producer_id=1, epoch=0)


def test_the_others_are_fenced_as_before(full: tuple[Identities, list[identities.Event]]) -> None:
    """What is remembered is right, and who was never renewed is known."""
    known, _ = full
    known.check(producer_id=LIMIT, epoch=3)
    known.check(producer_id=LIMIT + 50, epoch=0)

    with pytest.raises(ProducerFencedError):
        known.check(producer_id=LIMIT, epoch=2)


def test_a_compacted_journal_leads_to_the_same(
    full: tuple[Identities, list[identities.Event]],
) -> None:
    """Replaying all events or the snapshot of the state makes no difference."""
    known, events = full

    assert len(known.snapshot()) < LIMIT
    assert replayed(events).snapshot() == known.snapshot()
    assert replayed(known.snapshot()).snapshot() == known.snapshot()
