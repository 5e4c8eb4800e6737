"""A flipped bit in the end of a transaction never turns one outcome into the other in silence."""

import asyncio

import pytest

from goqueue.core.record.frame import CONTROL, TX_COMMIT
from goqueue.core.tx.producer import ABORT, COMMIT
from goqueue.core.tx.states import TxState
from goqueue.observability.events import LogEvent
from goqueue.runtime import broker as broker_module
from goqueue.runtime.tx import finisher as tx_endings
from goqueue.runtime.tx import strays
from goqueue.storage.verify import Verification
from tests.runtime.rig import run
from tests.runtime.test_transactions import Bank

LOG = f"logs/accounts/0/{0:020d}.log"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)
    monkeypatch.setattr(broker_module, "TX_STATE_PARTITIONS", 1)
    monkeypatch.setattr(tx_endings, "FINISH_SECONDS", 0.0)


class Told:
    """A log that remembers what it was told."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def warning(self, event: str, **_: object) -> None:
        self.events.append(event)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    log = Told()
    monkeypatch.setattr(strays, "log", log)
    return log


def flags_of_ends(bank: Bank) -> list[int]:
    """Return where in the log the flags of control frames are."""
    log = bank.rig.broker.topic("accounts").partition(0).log
    return [
        position + 3
        for position, span in log.segments[0].scan_past_damage(log.start_offset, 0)  # type: ignore[arg-type]
        if span.header.flags & CONTROL
    ]


async def damaged(outcomes: list[str], which: int, mask: int) -> Bank:
    """Return a bank whose log is all it has, with a bit of the flags of one end flipped."""
    bank = await Bank().open()
    who = await bank.init()
    for number, outcome in enumerate(outcomes):
        mine = await bank.begin(who)
        await bank.publish(mine, 0, f"{outcome} {number}")
        assert await bank.tx.end(mine, outcome)
    for _ in range(1_000):
        # What was told is noted as done when the disks know it, a few turns of the loop later.
        await asyncio.sleep(0)
    assert all(one.state is TxState.COMPLETE_COMMIT and not one.unfinished for one in bank.tx)
    place = flags_of_ends(bank)[which]
    await bank.rig.stop()
    bank.rig.disk.remove("logs/accounts/0/queue.snapshot")
    bank.rig.disk.flip_bits(LOG, [place], mask=mask)
    await bank.rig.start()
    return bank


@pytest.mark.parametrize("mask", [TX_COMMIT, CONTROL])
def test_the_latest_commit_stands(mask: int, told: Told) -> None:
    """The coordinator remembers it, so the log is told again what it has lost."""

    async def main() -> None:
        bank = await damaged([COMMIT], -1, mask)

        assert await bank.read(0) == ["commit 0"]
        assert LogEvent.TX_OUTCOME_UNKNOWN in told.events
        await bank.rig.stop()

    run(main())


@pytest.mark.parametrize("mask", [TX_COMMIT, CONTROL])
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_an_end_that_cannot_be_believed_hides_its_messages(
    outcome: str, mask: int, told: Told
) -> None:
    """What was aborted is never seen; what nobody remembers as committed is not, and is logged."""

    async def main() -> None:
        bank = await damaged([outcome, COMMIT], 0, mask)

        assert await bank.read(0) == ["commit 1"]
        assert LogEvent.TX_OUTCOME_UNKNOWN in told.events
        await bank.rig.stop()

    run(main())


def test_transactions_are_no_problem_of_a_check() -> None:
    """Their ends are frames of the broker's own, and healthy."""

    async def main() -> None:
        bank = await damaged([COMMIT, ABORT, COMMIT], 0, 0)
        await bank.rig.stop()
        for is_deep in (False, True):
            check = Verification(bank.rig.disk, is_deep=is_deep)
            assert sum(check.run())

            assert check.report.findings == []
            assert check.report.messages >= 3

    run(main())
