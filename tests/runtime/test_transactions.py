"""All or nothing over partitions, acks and offsets; who is fenced changes nothing (P9)."""

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from goqueue.base.errors import (
    GoQueueError,
    InvalidTransactionStateError,
    ProducerFencedError,
    StaleTransactionError,
    StorageFailedError,
    UnknownProducerError,
)
from goqueue.base.ids import Offset, PartitionId, TopicName, TopicPartition
from goqueue.core.delivery.runs import set_of
from goqueue.core.groups.member import JoinRequest
from goqueue.core.record.batch import pack_batch
from goqueue.core.record.columns import build_batch
from goqueue.core.record.message import Draft
from goqueue.core.record.stamp import ProducerStamp
from goqueue.core.tx.producer import ABORT, COMMIT, Identity
from goqueue.runtime import broker as broker_module
from goqueue.runtime.log.fetch import Fetched, FetchPart, fetch
from goqueue.runtime.log.isolation import Isolation
from goqueue.runtime.log.published import Published
from goqueue.runtime.queue.leasing import Leased
from goqueue.runtime.queue.polling import PollLimits
from goqueue.runtime.queue.settlements import Settlement
from goqueue.runtime.tx.transactions import Transactions
from goqueue.testing.disk import CrashError
from tests.runtime.grants import FETCHING, POLLING, PUBLISHING
from tests.runtime.rig import Rig, messages_in, run

pytestmark = pytest.mark.usefixtures("both_places")

NOTE = "checkpoint 7"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)
    monkeypatch.setattr(broker_module, "TX_STATE_PARTITIONS", 1)


def frames(values: Sequence[str], number: int, stamp: ProducerStamp, now_us: int) -> memoryview:
    """Return one batch of a transaction."""
    batch, column_set = build_batch(
        keys=[None] * len(values),
        values=[value.encode() for value in values],
        timestamps_us=[now_us] * len(values),
    )
    packed = pack_batch(
        batch,
        column_set=column_set,
        first_timestamp_us=now_us,
        last_timestamp_us=now_us,
        transaction=number,
    )
    return memoryview(packed.frame(stamp))


class Bank:
    """A broker with two accounts and transactional producers."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.sequences: dict[tuple[int, int, int], int] = {}

    async def open(self) -> "Bank":
        await self.rig.start()
        if "accounts" not in self.rig.broker.topics:
            self.rig.broker.create_topic("accounts", partitions=2)
        return self

    @property
    def tx(self) -> Transactions:
        return self.rig.broker.transactions

    async def init(self, name: str = "t") -> Identity:
        life = await self.tx.init(name)
        return Identity(producer_id=life.stamp.producer_id, epoch=life.stamp.epoch)

    async def begin(self, who: Identity) -> Identity:
        number = await self.tx.begin(who)
        return Identity(producer_id=who.producer_id, epoch=who.epoch, number=number)

    def raw(self, who: Identity, partition: int, *values: str) -> memoryview:
        """Return messages as they are published, with the next sequence numbers."""
        sequence = self.sequences.get((who.producer_id, who.epoch, partition), 0)
        stamp = ProducerStamp(who.producer_id, who.epoch, sequence)  # type: ignore[arg-type]
        return frames(values, who.number or 0, stamp, self.rig.clock.now_us())

    def note(self, who: Identity, partition: int, count: int) -> None:
        """Take note that sequence numbers were used."""
        place = (who.producer_id, who.epoch, partition)
        self.sequences[place] = self.sequences.get(place, 0) + count

    async def publish(self, who: Identity, partition: int, *values: str) -> None:
        parts = [(partition, self.raw(who, partition, *values))]
        (outcome,) = await self.tx.publish(PUBLISHING, who, "accounts", parts)
        if isinstance(outcome, GoQueueError):
            raise outcome
        assert isinstance(outcome, Published)
        self.note(who, partition, len(values))

    def draft(self, value: str) -> Draft:
        return Draft(value=value.encode(), timestamp_us=self.rig.clock.now_us())

    async def plain(self, partition: int, *values: str) -> None:
        drafts = [(self.draft(value), partition) for value in values]
        for outcome in await self.rig.broker.topic("accounts").publish_drafts(PUBLISHING, drafts):
            if isinstance(outcome, GoQueueError):
                raise outcome

    async def read(self, partition: int, *, committed: bool = True) -> list[str]:
        topic = self.rig.broker.topic("accounts")
        found: list[str] = []
        offset = 0
        while True:
            (outcome,) = await fetch(
                FETCHING,
                topic,
                [FetchPart(partition=partition, offset=offset)],
                bytes_max=10_000,
                wait_ms=0,
                lens=Isolation(is_committed=committed),
            )
            assert isinstance(outcome, Fetched)
            messages = messages_in("accounts", partition, outcome.frames)
            found += [(one.value or b"").decode() for one in messages if one.offset >= offset]
            if outcome.next_offset == offset:
                return found
            offset = outcome.next_offset

    async def abandon(self) -> None:
        """Let nothing of a broker that died go on."""
        self.rig.broker.consume.ledgers.stop()
        await self.tx.stop()

    async def crash(self) -> None:
        await self.abandon()
        self.rig.recover_with(self.rig.disk.crash())
        await self.open()

    async def settle_down(self) -> None:
        """Return when nothing is being ended any more."""
        for hosted in list(self.tx._roster):  # noqa: SLF001 - a look inside
            while hosted.ending is not None:
                await asyncio.wait([hosted.ending])


def test_a_commit_shows_everything_and_an_abort_nothing() -> None:
    """Over two partitions; what follows an open transaction waits for it (trap A10)."""

    async def main() -> None:
        bank = await Bank().open()
        who = await bank.init()
        first = await bank.begin(who)
        await bank.publish(first, 0, "a", "b")
        await bank.publish(first, 1, "c")
        await bank.plain(0, "plain")
        assert await bank.read(0) == []
        assert await bank.read(0, committed=False) == ["a", "b", "plain"]
        await bank.tx.end(first, COMMIT)
        assert await bank.read(0) == ["a", "b", "plain"]
        assert await bank.read(1) == ["c"]
        second = await bank.begin(who)
        await bank.publish(second, 0, "x")
        await bank.publish(second, 1, "y")
        await bank.tx.end(second, ABORT)

        assert await bank.read(0) == ["a", "b", "plain"]
        assert await bank.read(1) == ["c"]
        await bank.plain(1, "d")
        assert await bank.read(1) == ["c", "d"]
        assert await bank.read(1, committed=False) == ["c", "y", "d"]
        await bank.rig.stop()

    run(main())


def test_late_and_repeated_requests_change_nothing() -> None:
    """Each transaction has its own number: what belongs to an older one is refused (P9)."""

    async def main() -> None:
        bank = await Bank().open()
        who = await bank.init()
        first = await bank.begin(who)
        with pytest.raises(InvalidTransactionStateError):
            await bank.begin(who)
        await bank.publish(first, 0, "a")
        await bank.tx.end(first, COMMIT)
        await bank.tx.end(first, COMMIT)
        with pytest.raises(InvalidTransactionStateError):
            await bank.tx.end(first, ABORT)
        with pytest.raises(InvalidTransactionStateError):
            await bank.publish(first, 0, "late")
        second = await bank.begin(who)
        for outcome in (COMMIT, ABORT):
            with pytest.raises(StaleTransactionError):
                await bank.tx.end(first, outcome)
        with pytest.raises(StaleTransactionError):
            await bank.publish(first, 0, "late")
        await bank.publish(second, 0, "b")
        await bank.tx.end(second, COMMIT)

        assert await bank.read(0) == ["a", "b"]
        await bank.rig.stop()

    run(main())


def test_a_newer_instance_fences_the_older_and_aborts_what_it_left() -> None:
    """A zombie can neither publish nor commit (trap A11)."""

    async def main() -> None:
        bank = await Bank().open()
        zombie = await bank.begin(await bank.init())
        await bank.publish(zombie, 0, "never")
        heir = await bank.begin(await bank.init())
        with pytest.raises(ProducerFencedError):
            await bank.publish(zombie, 0, "zombie")
        with pytest.raises(ProducerFencedError):
            await bank.tx.end(zombie, COMMIT)
        await bank.publish(heir, 0, "mine")
        await bank.tx.end(heir, COMMIT, token=NOTE)
        with pytest.raises(UnknownProducerError):
            await bank.tx.begin(Identity(producer_id=999, epoch=0))
        life = await bank.tx.init("t")

        assert life.token == NOTE
        assert await bank.read(0) == ["mine"]
        await bank.rig.stop()

    run(main())


def test_an_open_transaction_times_out() -> None:
    """After its time it is aborted, and readers go on (trap A13)."""

    async def main() -> None:
        bank = await Bank().open()
        who = await bank.begin(await bank.init())
        await bank.publish(who, 0, "late")
        await bank.plain(0, "plain")
        for _ in range(59):
            bank.rig.clock.advance(1_000)
            bank.tx.heartbeat(who)
            bank.tx.sweep()
        assert await bank.read(0) == []
        bank.rig.clock.advance(1_000)
        bank.tx.sweep()
        await bank.settle_down()

        assert await bank.read(0) == ["plain"]
        with pytest.raises(InvalidTransactionStateError):
            await bank.tx.end(who, COMMIT)
        await bank.rig.stop()

    run(main())


def test_a_restart_forgets_no_transaction() -> None:
    """An open one stays hidden over a clean restart and over a crash (trap A12), and goes on."""

    async def main() -> None:
        bank = await Bank().open()
        who = await bank.begin(await bank.init())
        await bank.publish(who, 0, "a")
        await bank.rig.stop()
        await bank.open()
        assert await bank.read(0) == []
        await bank.crash()
        assert await bank.read(0) == []
        await bank.publish(who, 0, "b")
        await bank.tx.end(who, COMMIT)
        await bank.crash()

        assert await bank.read(0) == ["a", "b"]
        await bank.rig.stop()

    run(main())


async def join(bank: Bank) -> str:
    request = JoinRequest(client_id="c", topics=("accounts",), options={})
    _, member = await bank.rig.broker.groups.join("g", request)
    return member


async def lease(bank: Bank, member: str) -> list[Leased]:
    return (
        await bank.rig.broker.consume.poll(POLLING, "g", member, None, PollLimits(100, 10_000, 0))
    ).parts


def ack_of(part: Leased) -> Settlement:
    return Settlement(
        partition=part.partition, nonce=part.nonce, verb="ack", offsets=set_of(part.order)
    )


def test_acks_and_offsets_are_part_of_it() -> None:
    """Consumed and produced in one step: both happen, or neither."""

    async def main() -> None:
        bank = await Bank().open()
        await bank.plain(0, "in1", "in2")
        member = await join(bank)
        (part,) = await lease(bank, member)
        who = await bank.init()
        first = await bank.begin(who)
        await bank.publish(first, 1, "out")
        (outcome,) = await bank.tx.hold(first, "g", [ack_of(part)])
        assert outcome.refused == []
        (again,) = await bank.tx.hold(first, "g", [ack_of(part)])
        assert len(again.refused) == 2, "what is held cannot be taken twice"
        await bank.tx.end(first, ABORT)
        (part,) = await lease(bank, member)
        assert part.rows == 2
        assert part.failures == {}
        second = await bank.begin(who)
        await bank.tx.hold(second, "g", [ack_of(part)])
        await bank.crash()
        assert await lease(bank, member) == [], "held over a crash"
        second_place = TopicPartition(TopicName("accounts"), PartitionId(0))
        await bank.tx.end(second, COMMIT)

        ledger = bank.rig.broker.consume.ledgers.of("g")[second_place].ledger
        assert ledger.committed == 2
        third = await bank.begin(who)
        await bank.plain(0, "in3")
        await bank.tx.add_offsets(third, "g", {second_place: Offset(3)})
        assert ledger.committed == 2
        await bank.tx.end(third, COMMIT)
        assert ledger.committed == 3
        await bank.rig.stop()

    run(main())


def test_groups_lease_only_what_is_committed() -> None:
    """Open messages are leased when they are committed, aborted ones never."""

    async def main() -> None:
        bank = await Bank().open()
        who = await bank.init()
        first = await bank.begin(who)
        await bank.publish(first, 0, "later")
        await bank.plain(0, "now")
        member = await join(bank)
        (part,) = await lease(bank, member)
        assert set_of(part.order) == set_of([1, 2])
        await bank.tx.end(first, COMMIT)
        second = await bank.begin(who)
        await bank.publish(second, 0, "never")
        assert [one.order for one in await lease(bank, member)] == [[0, 1]]
        await bank.tx.end(second, ABORT)

        assert await lease(bank, member) == []
        await bank.rig.stop()

    run(main())


async def transfer(bank: Bank, done: list[str]) -> None:
    """Move money again and again: two entries, one in each partition, or none."""
    await bank.open()
    who = await bank.init()
    for step in range(6):
        mine = await bank.begin(who)
        await bank.publish(mine, 0, f"-{step}")
        await bank.publish(mine, 1, f"+{step}")
        outcome = ABORT if step % 3 == 2 else COMMIT
        await bank.tx.end(mine, outcome)
        if outcome == COMMIT:
            done.append(str(step))


async def die_at(operation: int) -> bool:
    """Die at an operation and look at the books; tell whether the life ended before."""
    bank = Bank()
    bank.rig.die_in(operation)
    done: list[str] = []
    try:
        await transfer(bank, done)
        bank.rig.check_alive()
    except (CrashError, StorageFailedError):
        pass
    else:
        return True
    await bank.crash()
    await bank.init()
    await bank.settle_down()
    left = [value[1:] for value in await bank.read(0)]
    right = [value[1:] for value in await bank.read(1)]
    assert left == right, "all or nothing"
    assert left[: len(done)] == done, "what was committed stays"
    assert not any(step in left for step in ("2", "5")), "what was aborted never was"
    await bank.rig.stop()
    return False


def test_a_crash_between_any_two_steps_leaves_all_or_nothing() -> None:
    """The broker dies at every operation of commits and aborts (P9)."""

    async def main() -> None:
        for operation in itertools.count(1, 3):
            if await die_at(operation):
                assert operation > 100
                return

    run(main())
