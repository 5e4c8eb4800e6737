"""Piles of few messages are cut and placed without numpy, and as large ones are."""

from random import Random

import pytest

from goqueue.base.errors import GoQueueError, StorageFailedError
from goqueue.base.ids import Epoch, ProducerId, Sequence
from goqueue.client.producer.packing import Packing
from goqueue.client.producer.pile import FEW_ROWS_MAX, Pile
from goqueue.client.protocol.outcome import Extra, Outcome, Part, Place
from goqueue.core.record.stamp import REFUSED_OFFSET, ProducerStamp
from goqueue.wire.calls import RepeatPart

STAMP = ProducerStamp(ProducerId(7), Epoch(1), Sequence(40))
ROWS = 64
Told = tuple[int, Place | str]


def pile_of(seed: int) -> Pile:
    """Return a closed pile: plain messages, and in some piles others among them."""
    random = Random(seed)
    pile = Pile("orders", lambda _: None, None, 1)  # type: ignore[arg-type]
    is_plain = random.random() < 0.5
    for row in range(random.choice([2, 3, 8, 8, ROWS, ROWS + 1])):
        value = b"v%d" % row if is_plain else random.choice([None, b"", b"v"])
        key = b"k%d" % random.randrange(99) if is_plain else random.choice([None, b"", b"k"])
        if random.random() < 0.1 and not is_plain:
            extra = Extra(partition=random.choice([None, 1]), headers={"h": b"1"})
            pile.rows += (value, key, (row * 1_000, extra))
            pile.extra_count += 1
        else:
            pile.rows += (value, key, row * 1_000)
    pile.close()
    return pile


def outcome_of(part: Part, random: Random) -> Outcome:
    """Return what may become of a part."""
    if random.random() < 0.2:
        return Outcome(part.rows, part.partition, error=StorageFailedError("a fault"))
    repeats = tuple(
        RepeatPart(row, 2, random.choice([5, REFUSED_OFFSET]))
        for row in range(len(part.rows))
        if random.random() < 0.2
    )
    return Outcome(part.rows, part.partition, 1_000, "fsync", repeats=repeats)


def told_of(pile: Pile) -> list[Told]:
    """Return what is told of each message of a settled pile."""
    told: list[Told] = []
    for row in range(len(pile)):
        try:
            told.append((row, pile.place_of(row)))
        except GoQueueError as error:
            told.append((row, error.message))
    return told


def story(seed: int) -> tuple[list[tuple[int, list[int], bytes]], list[Told]]:
    """Cut a pile, settle its parts; return what was sent and what was told."""
    pile, packing, random = pile_of(seed), Packing(3, None, turn=1), Random(seed)
    parts = packing.cut(pile)
    pile.parts_left = len(parts)
    sent = [(one.partition, one.rows.tolist(), one.packed.frame(STAMP)) for one in parts]
    assert sum(one.packed.rows for one in parts) == len(pile)
    for part in random.sample(parts, len(parts)):
        pile.settle(outcome_of(part, random))
    return sent, told_of(pile)


@pytest.mark.parametrize("seed", range(60))
def test_few_rows_are_cut_and_placed_as_many_are(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Same parts in the same order, same bytes, same places and errors."""
    assert ROWS == FEW_ROWS_MAX
    few = story(seed)
    for module in ("packing", "pile"):
        monkeypatch.setattr(f"goqueue.client.producer.{module}.FEW_ROWS_MAX", 0)

    assert story(seed) == few
