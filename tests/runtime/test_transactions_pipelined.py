"""A commit that follows its messages at once: one round of syncs, and still all or nothing (P9)."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from goqueue.base.errors import (
    DiskFullError,
    GoQueueError,
    InvalidRequestError,
    InvalidTransactionStateError,
    StaleTransactionError,
    StorageFailedError,
)
from goqueue.base.ids import Offset, PartitionId, TopicName, TopicPartition
from goqueue.base.limits import TX_SESSION_MS
from goqueue.core.delivery.runs import set_of
from goqueue.core.tx.numbers import number_after
from goqueue.core.tx.producer import ABORT, COMMIT, Identity
from goqueue.core.tx.states import TxState
from goqueue.runtime import broker as broker_module
from goqueue.runtime import state_records
from goqueue.runtime.log.published import Published
from goqueue.runtime.tx import finisher as tx_endings
from goqueue.runtime.tx import tx_entry
from goqueue.runtime.tx.transactions import Last, Transactions
from goqueue.runtime.tx.tx_link import TX_TOPIC
from goqueue.testing.disk import CrashError
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import run
from tests.runtime.test_transactions import Bank, ack_of, frames, join, lease
from tests.runtime.test_transactions_adoption import child
from tests.runtime.test_transactions_lives import stamp_of

ENTRIES = 2


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)
    monkeypatch.setattr(broker_module, "TX_STATE_PARTITIONS", 1)
    monkeypatch.setattr(tx_entry, "UNFINISHED_MAX", 3)
    monkeypatch.setattr(state_records, "SLOTS", 7)


def after(mine: Identity) -> Identity:
    """Return who speaks of the transaction that follows one."""
    number = number_after(mine.number or 0)
    return Identity(producer_id=mine.producer_id, epoch=mine.epoch, number=number)


async def transfer(bank: Bank, mine: Identity, name: str, outcome: str = COMMIT) -> bool:
    """Publish to both partitions and end the transaction, without waiting in between."""
    *_, is_ended = await asyncio.gather(
        bank.publish(mine, 0, f"-{name}"),
        bank.publish(mine, 1, f"+{name}"),
        bank.tx.end(mine, outcome, messages=ENTRIES if outcome == COMMIT else None),
    )
    return bool(is_ended)


async def at_once(bank: Bank, mine: Identity, name: str) -> bool:
    """Do the same in one request, whose messages are the last of the transaction."""
    parts = [(0, bank.raw(mine, 0, f"-{name}")), (1, bank.raw(mine, 1, f"+{name}"))]
    outcomes, ended = await bank.tx.publish_last(PUBLISHING, mine, "accounts", parts, Last(ENTRIES))
    for outcome in (*outcomes, ended):
        if isinstance(outcome, GoQueueError):
            raise outcome
    for partition in (0, 1):
        bank.note(mine, partition, 1)
    return ended is True


Way = Callable[[Bank, Identity, str], Awaitable[bool]]
both_ways = pytest.mark.parametrize("send", [transfer, at_once])


@both_ways
def test_a_commit_is_seen_when_it_is_answered(send: Way) -> None:
    """Also by who reads at once; the next transaction begins with its first request."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await bank.begin(await bank.init())
        for step in range(20):
            assert await send(bank, mine, str(step))
            assert await bank.read(0) == [f"-{number}" for number in range(step + 1)]
            assert await bank.read(1) == [f"+{number}" for number in range(step + 1)]
            assert not bank.tx.find(mine).is_open
            assert await bank.tx.end(mine, COMMIT), "may be asked again"
            mine = after(mine)
        await bank.rig.stop()
        await bank.open()
        assert len(await bank.read(0)) == 20
        assert await send(bank, mine, "later")
        await bank.crash()
        assert (await bank.read(1))[-1] == "+later"
        await bank.rig.stop()

    run(main())


async def _nothing(*_: object) -> None:
    """Note nothing of what is done."""


def test_a_transaction_of_one_request_is_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """That it began and how it ended are written together; where it goes on, it began by itself."""
    monkeypatch.setattr(tx_endings.TxFinisher, "finish", _nothing)

    async def main() -> None:
        bank = await Bank().open()
        mine = await bank.begin(await bank.init())
        assert await at_once(bank, mine, "first")
        (journal,) = bank.rig.broker.topics[TopicName(TX_TOPIC)].partitions
        records = journal.log.end_offset
        mine = after(mine)
        assert await at_once(bank, mine, "next")
        assert journal.log.end_offset == records + 1
        mine = after(mine)
        parts = [(0, bank.raw(mine, 0, "early"))]
        _, ended = await bank.tx.publish_last(PUBLISHING, mine, "accounts", parts, Last(2))
        assert ended is False, "one is missing"
        bank.note(mine, 0, 1)
        assert journal.log.durable_offset == records + 2, "it is known that it began"
        await bank.publish(mine, 1, "late")
        await bank.crash()
        assert await bank.tx.end(mine, COMMIT, messages=2)
        assert (await bank.read(0))[-1] == "early"
        await bank.rig.stop()

    run(main())


def test_a_commit_of_more_messages_than_there_are_does_nothing() -> None:
    """What did not arrive is sent again; the transaction is open as before."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await bank.begin(await bank.init())
        await bank.publish(mine, 0, "a")
        assert not await bank.tx.end(mine, COMMIT, messages=2)
        assert await bank.read(0) == []
        await bank.publish(mine, 1, "b")
        assert await bank.tx.end(mine, COMMIT, messages=2)

        assert await bank.read(0) == ["a"]
        await bank.rig.stop()

    run(main())


def test_last_messages_that_are_too_few_are_published_and_commit_nothing() -> None:
    """Also where one of them is refused: the others have their places, and all may be undone."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await bank.begin(await bank.init())
        parts = [(0, bank.raw(mine, 0, "a"))]
        (placed,), ended = await bank.tx.publish_last(PUBLISHING, mine, "accounts", parts, Last(2))
        assert not isinstance(placed, GoQueueError)
        assert ended is False
        bank.note(mine, 0, 1)
        parts = [(1, bank.raw(mine, 1, "b")), (0, memoryview(b"nonsense"))]
        (placed, refused), ended = await bank.tx.publish_last(
            PUBLISHING, mine, "accounts", parts, Last(3)
        )
        assert not isinstance(placed, GoQueueError)
        assert isinstance(refused, GoQueueError)
        assert ended is False
        assert await bank.read(1) == []
        (again,), ended = await bank.tx.publish_last(
            PUBLISHING, mine, "accounts", parts[:1], Last(2, "note")
        )
        assert isinstance(again, Published)
        assert again.is_duplicate
        assert ended is True
        repeated = await bank.tx.publish_last(
            PUBLISHING, mine, "accounts", parts[:1], Last(2, "note")
        )
        assert repeated[1] is True, "may be asked again"
        assert (await bank.read(0), await bank.read(1)) == (["a"], ["b"])
        other = await bank.tx.publish_last(PUBLISHING, after(mine), "accounts", parts[:1], Last(1))
        assert isinstance(other[0][0], GoQueueError), "its frames name another transaction"
        assert other[1] is False
        await bank.rig.stop()

    run(main())


def test_last_messages_of_a_transaction_that_was_aborted_commit_nothing() -> None:
    """An operator ended it while they were on their way."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await bank.begin(await bank.init())
        parts = [(0, bank.raw(mine, 0, "late"))]
        await bank.tx.abort_named("t")
        with pytest.raises(InvalidTransactionStateError):
            await bank.tx.publish_last(PUBLISHING, mine, "accounts", parts, Last(1))
        assert await bank.read(0) == []
        await bank.rig.stop()

    run(main())


def test_only_the_next_number_begins_a_transaction() -> None:
    """A request of an earlier one, or of any other, is late and begins nothing."""

    async def main() -> None:
        bank = await Bank().open()
        who = await bank.init()
        strange = Identity(producer_id=who.producer_id, epoch=who.epoch, number=12345)
        with pytest.raises(StaleTransactionError):
            await bank.publish(strange, 0, "strange")
        first = await bank.begin(who)
        with pytest.raises(StaleTransactionError):
            await bank.publish(after(first), 0, "too early")
        assert await transfer(bank, first, "1")
        assert await transfer(bank, after(first), "2")
        for late in (first, strange):
            with pytest.raises((StaleTransactionError, InvalidTransactionStateError)):
                await bank.publish(late, 0, "late")
        third = after(after(first))
        assert await bank.tx.end(third, ABORT)
        assert await bank.tx.end(after(third), COMMIT, token="nothing")  # noqa: S106
        assert await bank.read(0) == ["-1", "-2"]
        assert (await bank.tx.init("t")).token == "nothing"  # noqa: S105
        await bank.rig.stop()

    run(main())


def test_the_stamp_of_another_producer_is_refused() -> None:
    """Otherwise one would use up the sequence numbers of another."""

    async def main() -> None:
        bank = await Bank().open()
        other = await bank.init("other")
        mine = await bank.begin(await bank.init())
        raw = frames(["x"], mine.number or 0, stamp_of(other), bank.rig.clock.now_us())
        (outcome,) = await bank.tx.publish(PUBLISHING, mine, "accounts", [(0, raw)])
        assert isinstance(outcome, InvalidRequestError)
        assert "stamp" in outcome.message
        await bank.rig.stop()

    run(main())


@both_ways
@pytest.mark.parametrize("glob", ["logs/accounts/1/*.log", "logs/__transactions/0/*.log"])
def test_a_disk_that_fails_undoes_the_commit(glob: str, send: Way) -> None:
    """Nobody sees half of it: not while the broker runs, and not after a restart."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await bank.begin(await bank.init())
        assert await send(bank, mine, "1")
        bank.rig.disk.fail_sync(glob)
        with pytest.raises(GoQueueError):
            await send(bank, after(mine), "2")
        assert await bank.read(0) == ["-1"]
        assert await bank.read(1) == ["+1"]
        await bank.crash()
        await bank.init()
        assert await bank.read(0) == ["-1"]
        assert await bank.read(1) == ["+1"]
        await bank.rig.stop()

    run(main())


def test_a_disk_that_failed_before_undoes_the_commit_at_once() -> None:
    """Its readers elsewhere do not wait for a decision that can never be in force."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await bank.begin(await bank.init())
        await bank.publish(mine, 0, "-1")
        bank.rig.disk.fail_sync("logs/accounts/1/*.log")
        with pytest.raises(StorageFailedError):
            await bank.publish(mine, 1, "+1")
        with pytest.raises(StorageFailedError):
            await bank.tx.end(mine, COMMIT, messages=ENTRIES)
        await bank.plain(0, "plain")
        assert await bank.read(0) == ["plain"]
        assert bank.tx.find(mine).state is TxState.PREPARE_ABORT
        await bank.crash()
        await bank.init()
        assert await bank.read(0) == ["plain"]
        assert await bank.read(1) == []
        await bank.rig.stop()

    run(main())


@both_ways
@pytest.mark.parametrize("lost", ["logs/accounts/9/*", "logs/accounts/1/*.log"])
def test_a_transaction_whose_beginning_was_lost_goes_on(lost: str, send: Way) -> None:
    """The messages reached the disk and the coordinator's words did not: nothing is lost by that.

    The client sends again what it has no answer for, and what is there already counts.
    """

    async def main() -> None:
        bank = await Bank().open()
        mine = await bank.begin(await bank.init())
        assert await send(bank, mine, "1")
        mine = after(mine)
        bank.rig.disk.fail_sync("logs/__transactions/*/*.log")
        bank.rig.disk.fail_sync(lost)
        with pytest.raises(GoQueueError):
            await send(bank, mine, "2")
        await bank.crash()
        await bank.crash()
        is_whole = "accounts/9" in lost
        assert await bank.tx.end(mine, COMMIT, messages=ENTRIES) is is_whole
        await bank.publish(mine, 0, "-2")
        await bank.publish(mine, 1, "+2")
        assert await bank.tx.end(mine, COMMIT, messages=ENTRIES)
        assert await send(bank, after(mine), "3")
        await bank.crash()
        assert await bank.read(0) == ["-1", "-2", "-3"]
        assert await bank.read(1) == ["+1", "+2", "+3"]
        await bank.rig.stop()

    run(main())


def test_a_transaction_whose_beginning_was_lost_is_aborted_if_nobody_comes() -> None:
    """Readers wait for its client as long as for any other one."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await bank.begin(await bank.init())
        assert await transfer(bank, mine, "1")
        bank.rig.disk.fail_sync("logs/__transactions/*/*.log")
        with pytest.raises(GoQueueError):
            await transfer(bank, after(mine), "2")
        await bank.crash()
        await bank.plain(0, "plain")
        assert await bank.read(0) == ["-1"]
        bank.rig.clock.advance(TX_SESSION_MS)
        bank.tx.sweep()
        await bank.settle_down()
        assert await bank.read(0) == ["-1", "plain"]
        with pytest.raises(InvalidTransactionStateError):
            await bank.tx.end(after(mine), COMMIT, messages=ENTRIES)
        await bank.rig.stop()

    run(main())


def test_an_adopter_that_a_start_finds_decided_and_whole_is_in_no_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A disk that fails later does not undo what may have been answered before."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await child(bank, "a", (1, "child"))
        parent = await bank.begin(await bank.init("app"))
        await bank.tx.adopt(parent, [mine])
        bank.rig.disk.fill_up(path_glob="logs/accounts/1/*.log")
        ended = bank.tx.end(parent, COMMIT, messages=1)
        _, outcome = await asyncio.gather(
            bank.publish(parent, 0, "parent"), ended, return_exceptions=True
        )
        assert isinstance(outcome, DiskFullError)
        with monkeypatch.context() as patch:
            patch.setattr(Transactions, "start", lambda _: None)
            await bank.crash()
            assert bank.tx.get("app").state is TxState.PREPARE_COMMIT
            assert bank.tx.get("app").ends == []
        bank.rig.disk.make_room()
        await bank.crash()
        await bank.settle_down()
        assert await bank.read(0) == ["parent"]
        assert await bank.read(1) == ["child"]
        await bank.rig.stop()

    run(main())


def test_acks_and_offsets_are_settled_when_a_restart_serves() -> None:
    """What a commit settled is not delivered again, also if the broker dies right behind it."""

    async def main() -> None:
        bank = await Bank().open()
        place = TopicPartition(TopicName("accounts"), PartitionId(0))
        await bank.plain(0, "in1", "in2", "in3")
        member = await join(bank)
        (part,) = await lease(bank, member)
        assert set_of(part.order) == set_of([0, 3])
        mine = await bank.begin(await bank.init())
        await bank.tx.hold(mine, "g", [ack_of(part)])
        assert await transfer(bank, mine, "1")
        await bank.crash()
        assert await lease(bank, member) != []
        assert bank.rig.broker.consume.ledgers.of("g")[place].ledger.committed == 3
        mine = after(mine)
        await bank.tx.add_offsets(mine, "g", {place: Offset(4)})
        assert await transfer(bank, mine, "2")
        await bank.crash()
        assert bank.rig.broker.consume.ledgers.of("g")[place].ledger.committed >= 4
        await bank.rig.stop()

    run(main())


async def live(bank: Bank, done: list[str], send: Way) -> None:
    """Transfer again and again, some of them given up."""
    await bank.open()
    mine = await bank.begin(await bank.init())
    for step in range(9):
        outcome = ABORT if step % 3 == 2 else COMMIT
        if outcome == ABORT:
            await bank.publish(mine, 0, f"-{step}")
            await bank.publish(mine, 1, f"+{step}")
            await bank.tx.end(mine, ABORT)
        else:
            await send(bank, mine, str(step))
            done.append(str(step))
        mine = after(mine)


async def die_at(operation: int, dice: Random, send: Way) -> bool:
    """Die at an operation, and again soon after; tell whether the life ended before."""
    bank = Bank()
    bank.rig.die_in(operation)
    done: list[str] = []
    try:
        await live(bank, done, send)
        bank.rig.check_alive()
    except (CrashError, StorageFailedError):
        pass
    else:
        return True
    await bank.abandon()
    bank.rig.recover_with(bank.rig.disk.crash(torn=dice if dice.random() < 0.5 else None))
    bank.rig.die_in(dice.randrange(1, 60))
    try:
        await bank.open()
        await bank.plain(dice.randrange(2), "after")
        await bank.plain(dice.randrange(2), "after")
    except (CrashError, GoQueueError):
        pass
    await bank.crash()
    seen = [[value[1:] for value in await bank.read(partition)] for partition in (0, 1)]
    assert set(seen[0]) - {"fter"} >= set(done), "what was answered is there at once"
    await bank.init()
    await bank.settle_down()
    left, right = [
        [value[1:] for value in await bank.read(partition) if value != "after"]
        for partition in (0, 1)
    ]
    assert left == right, "all or nothing"
    assert left[: len(done)] == done, "what was committed stays"
    assert not {"2", "5", "8"} & set(left), "what was aborted never was"
    assert bank.tx.get("t").state is TxState.EMPTY
    await bank.rig.stop()
    return False


@both_ways
@pytest.mark.parametrize("first", range(2))
def test_a_crash_at_any_operation_leaves_all_or_nothing(first: int, send: Way) -> None:
    """Also between the syncs of messages and decision, and when the recovery dies, too."""

    async def main() -> None:
        dice = Random(first)
        for operation in itertools.count(first + 1, 2):
            if await die_at(operation, dice, send):
                assert operation > 60
                return

    run(main())
