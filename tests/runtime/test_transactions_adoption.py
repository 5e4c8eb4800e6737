"""Adopted transactions end as the one that adopted them, whatever happens to whom (P9)."""

import asyncio
import itertools

import pytest
from pyroaring import BitMap64

from goqueue.base.errors import (
    AdoptionRefusedError,
    DiskFullError,
    InvalidRequestError,
    InvalidTransactionStateError,
    ProducerFencedError,
    StorageFailedError,
    UnknownProducerError,
)
from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.base.limits import TX_SESSION_MS, TX_TIMEOUT_MS
from goqueue.core.delivery.runs import set_of
from goqueue.core.groups.member import JoinRequest
from goqueue.core.producers.partitioner import partition_of_key
from goqueue.core.tx.producer import ABORT, COMMIT, Identity
from goqueue.core.tx.states import TxState
from goqueue.runtime import broker as broker_module
from goqueue.runtime import state_records
from goqueue.runtime.log.fetch import Fetched, FetchPart, fetch
from goqueue.runtime.log.isolation import Isolation
from goqueue.runtime.queue.polling import PollLimits
from goqueue.testing.conservation_checker import ConservationChecker
from goqueue.testing.disk import CrashError
from tests.runtime.grants import FETCHING, POLLING, PUBLISHING
from tests.runtime.rig import messages_in, run
from tests.runtime.test_transactions import Bank, ack_of

NOTE = "batch 7"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few partitions, but the adopter and the adopted in different ones; snapshots often."""
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)
    monkeypatch.setattr(broker_module, "TX_STATE_PARTITIONS", 3)
    monkeypatch.setattr(state_records, "SLOTS", 5)


async def child(bank: Bank, name: str, *entries: tuple[int, str]) -> Identity:
    """Publish in a transaction of its own, and leave it to whoever adopts it."""
    mine = await bank.begin(await bank.init(name))
    for partition, value in entries:
        await bank.publish(mine, partition, value)
    await bank.tx.detach(mine)
    return mine


def test_one_decision_ends_everything() -> None:
    """What was adopted is seen with the commit, and never with an abort; the rest is untouched."""

    async def main() -> None:
        bank = await Bank().open()
        app = await bank.init("app")
        for outcome in (COMMIT, ABORT):
            first = await child(bank, "a", (0, f"a {outcome}"), (1, f"b {outcome}"))
            second = await child(bank, "b", (1, f"c {outcome}"))
            parent = await bank.begin(app)
            await bank.publish(parent, 0, f"d {outcome}")
            await bank.tx.adopt(parent, [first, second])
            await bank.tx.adopt(parent, [second, first])
            assert [one for one in await bank.read(0) if outcome in one] == []
            await bank.tx.end(parent, outcome, token=NOTE if outcome == COMMIT else "")
            await bank.tx.end(parent, outcome)
        stray = await child(bank, "stray", (0, "never"))

        assert await bank.read(0) == ["a commit", "d commit"]
        assert await bank.read(1) == ["b commit", "c commit"]
        await bank.tx.end(stray, ABORT)
        await bank.plain(0, "plain")
        assert await bank.read(0) == ["a commit", "d commit", "plain"]
        assert (await bank.tx.init("app")).token == NOTE
        with pytest.raises(UnknownProducerError):
            bank.tx.get("a")
        assert bank.tx.metrics.committed.total == 3
        await bank.rig.stop()

    run(main())


def test_what_cannot_be_adopted_leaves_everything_as_it_was() -> None:
    """One child that is unknown, fenced, over, open still or somebody else's refuses them all."""

    async def main() -> None:
        bank = await Bank().open()
        parent = await bank.begin(await bank.init("app"))
        good = await child(bank, "good", (0, "good"))
        over = await child(bank, "over", (0, "over"))
        await bank.tx.end(over, ABORT)
        fenced = await child(bank, "fenced", (0, "fenced"))
        await bank.init("fenced")
        attached = await bank.begin(await bank.init("attached"))
        late = await child(bank, "late", (0, "late"))
        bank.rig.clock.advance(TX_TIMEOUT_MS)
        bank.tx.heartbeat(parent)
        strange = Identity(producer_id=999, epoch=0, number=7)
        reasons = {
            over: "over: transaction .* is not open any more",
            fenced: "fenced: transaction .* was fenced",
            attached: "attached: transaction .* was not detached",
            strange: "producer 999 is not known",
            parent: "cannot adopt itself",
            Identity(producer_id=good.producer_id, epoch=good.epoch, number=1): "is over",
        }
        for bad, reason in reasons.items():
            with pytest.raises(AdoptionRefusedError, match=reason):
                await bank.tx.adopt(parent, [good, bad])
        assert bank.tx.find(parent).adopted == {}
        bank.tx.sweep()
        await bank.settle_down()
        with pytest.raises(InvalidTransactionStateError):
            await bank.tx.adopt(parent, [late])
        parent = await bank.begin(await bank.init("app"))
        with pytest.raises(AdoptionRefusedError, match=r"late: transaction .* CompleteAbort"):
            await bank.tx.adopt(parent, [late])
        mine = await child(bank, "mine", (0, "mine"))
        await bank.tx.adopt(parent, [mine])
        other = await bank.begin(await bank.init("other"))
        with pytest.raises(AdoptionRefusedError, match=r"mine: transaction .* was adopted by app"):
            await bank.tx.adopt(other, [mine])
        with pytest.raises(InvalidTransactionStateError, match="adopted others"):
            await bank.tx.detach(parent)
        await bank.tx.end(parent, COMMIT)

        assert await bank.read(0) == ["mine"]
        await bank.rig.stop()

    run(main())


def test_what_is_detached_or_adopted_does_nothing_by_itself() -> None:
    """It cannot add, commit or abort; silence does not end it, and its own time neither."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await child(bank, "a", (0, "a"))
        await bank.tx.detach(mine)
        with pytest.raises(InvalidTransactionStateError, match="detached"):
            await bank.publish(mine, 0, "more")
        bank.rig.clock.advance(TX_SESSION_MS + 1_000)
        bank.tx.sweep()
        parent = await bank.begin(await bank.init("app"))
        await bank.tx.adopt(parent, [mine])
        for outcome in (COMMIT, ABORT):
            with pytest.raises(InvalidTransactionStateError, match="adopted by app"):
                await bank.tx.end(mine, outcome)
        with pytest.raises(InvalidTransactionStateError, match="adopted by app"):
            await bank.tx.abort_named("a")
        with pytest.raises(InvalidTransactionStateError, match="adopted by app"):
            await bank.publish(mine, 0, "more")
        bank.rig.clock.advance(TX_TIMEOUT_MS - 1_000)
        bank.tx.heartbeat(parent)
        bank.tx.sweep()
        assert bank.tx.get("a").state is TxState.ONGOING
        await bank.tx.end(parent, COMMIT)

        assert await bank.read(0) == ["a"]
        await bank.rig.stop()

    run(main())


@pytest.mark.parametrize("how", ["timeout", "fenced", "operator"])
def test_the_fate_of_the_adopter_is_shared(how: str) -> None:
    """Its time is over, a newer instance begins, an operator ends it: nothing is ever seen."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await child(bank, "a", (0, "a"), (1, "b"))
        parent = await bank.begin(await bank.init("app"))
        await bank.tx.adopt(parent, [mine])
        if how == "timeout":
            bank.rig.clock.advance(TX_TIMEOUT_MS)
            bank.tx.sweep()
            await bank.settle_down()
        elif how == "fenced":
            await bank.init("app")
            with pytest.raises(ProducerFencedError):
                await bank.tx.end(parent, COMMIT)
        else:
            await bank.tx.abort_named("app")
        await bank.plain(0, "plain")

        assert await bank.read(0) == ["plain"]
        assert await bank.read(1) == []
        await bank.rig.stop()

    run(main())


def test_a_new_life_of_an_adopted_id_begins_behind_the_adopted_transaction() -> None:
    """It does not abort what is not its own any more."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await child(bank, "a", (0, "a"))
        parent = await bank.begin(await bank.init("app"))
        await bank.tx.adopt(parent, [mine])
        coming = asyncio.create_task(bank.init("a"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not coming.done()
        await bank.tx.end(parent, COMMIT)
        heir = await bank.begin(await coming)
        await bank.publish(heir, 0, "heir")
        await bank.tx.end(heir, COMMIT)

        assert await bank.read(0) == ["a", "heir"]
        await bank.rig.stop()

    run(main())


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one transaction adopts is bounded."""
    monkeypatch.setattr("goqueue.core.tx.adoption.TX_ADOPTED_MAX", 2)

    async def main() -> None:
        bank = await Bank().open()
        parent = await bank.begin(await bank.init("app"))
        found = [await child(bank, f"c{number}", (0, str(number))) for number in range(3)]
        await bank.tx.adopt(parent, found[:2])
        with pytest.raises(InvalidRequestError, match="may adopt 2 at most"):
            await bank.tx.adopt(parent, found)
        await bank.tx.end(parent, COMMIT)

        assert await bank.read(0) == ["0", "1"]
        await bank.rig.stop()

    run(main())


def test_a_restart_forgets_no_adoption() -> None:
    """An adopted transaction stays adopted over a crash, and is ended by its adopter."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await child(bank, "a", (0, "a"))
        parent = await bank.begin(await bank.init("app"))
        await bank.tx.adopt(parent, [mine])
        await bank.crash()
        with pytest.raises(InvalidTransactionStateError, match="adopted by app"):
            await bank.tx.end(mine, ABORT)
        await bank.tx.adopt(parent, [mine])
        await bank.tx.end(parent, COMMIT)
        await bank.crash()

        assert await bank.read(0) == ["a"]
        await bank.rig.stop()

    run(main())


@pytest.mark.parametrize("again", ["asked", "retried", "renewed"])
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_a_partition_of_a_child_that_cannot_hear_keeps_the_adopter_from_its_end(
    again: str, outcome: str
) -> None:
    """The end is not answered before the child's messages are seen, whoever asks for it again."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await child(bank, "a", (1, "child"))
        parent = await bank.begin(await bank.init("app"))
        await bank.publish(parent, 0, "parent")
        await bank.tx.adopt(parent, [mine])
        bank.rig.disk.fill_up(path_glob="logs/accounts/1/*.log")
        for _ in range(2):
            with pytest.raises(DiskFullError):
                await bank.tx.end(parent, outcome)
        bank.tx.sweep()
        bank.rig.disk.make_room()
        if again == "asked":
            assert await bank.tx.end(parent, outcome)
        elif again == "retried":
            await bank.settle_down()
        else:
            await bank.init("app")

        assert await bank.read(0) == (["parent"] if outcome == COMMIT else [])
        assert await bank.read(1) == (["child"] if outcome == COMMIT else [])
        with pytest.raises(UnknownProducerError):
            bank.tx.get("a")
        await bank.init("a")
        await bank.rig.stop()

    run(main())


def test_a_child_that_does_not_know_durably_keeps_the_adopter_from_its_end() -> None:
    """Its disks fail, and then the power: the adopter is still there to tell it."""

    async def main() -> None:
        bank = await Bank().open()
        home = partition_of_key(b"app", 3)
        names = (f"a{number}" for number in itertools.count())
        name = next(one for one in names if partition_of_key(one.encode(), 3) != home)
        mine = await child(bank, name, (1, "child"))
        parent = await bank.begin(await bank.init("app"))
        await bank.publish(parent, 0, "parent")
        await bank.tx.adopt(parent, [mine])
        place = partition_of_key(name.encode(), 3)
        bank.rig.disk.fail_sync(f"logs/__transactions/{place}/*.log")
        bank.rig.disk.fail_sync("logs/accounts/1/*.log")
        for _ in range(2):
            with pytest.raises(StorageFailedError):
                await bank.tx.end(parent, COMMIT, token=NOTE)
        assert bank.tx.get("app").state is TxState.PREPARE_COMMIT
        await bank.crash()
        await bank.settle_down()

        assert await bank.read(0) == ["parent"]
        assert await bank.read(1) == ["child"]
        assert (await bank.tx.init("app")).token == NOTE
        await bank.rig.stop()

    run(main())


class Sink:
    """A job that writes batches: two tasks and a driver in each, and a task that is not adopted."""

    def __init__(self) -> None:
        self.bank = Bank()
        self.conservation = ConservationChecker()
        self.wishes: dict[str, list[tuple[TopicPartition, int, bytes]]] = {}
        self.committed: list[str] = []

    def place(self, topic: str, partition: int) -> TopicPartition:
        return TopicPartition(TopicName(topic), PartitionId(partition))

    async def open(self) -> None:
        await self.bank.open()
        if "in" not in self.bank.rig.broker.topics:
            self.bank.rig.broker.create_topic("in", partitions=1)

    async def write(self, who: Identity, batch: str, partition: int, value: str) -> None:
        place = self.place("accounts", partition)
        payload = value.encode()
        self.bank.rig.checker.sent(place, payload)
        log = self.bank.rig.broker.topic("accounts").partition(partition).log
        offset = log.end_offset
        await self.bank.publish(who, partition, value)
        self.wishes.setdefault(batch, []).append((place, offset, payload))

    async def task(self, name: str, batch: str) -> Identity:
        mine = await self.bank.begin(await self.bank.init(name))
        for partition in (0, 1):
            await self.write(mine, batch, partition, f"{batch} {name}{partition}")
        return mine

    async def consume(self, mine: Identity, member: str) -> BitMap64:
        """Leave it to a transaction to ack an input."""
        broker = self.bank.rig.broker
        name = self.place("in", 0)
        (result,) = await broker.topic("in").publish_drafts(
            PUBLISHING, [(self.bank.draft("input"), 0)]
        )
        if not isinstance(result, tuple):
            raise result
        self.conservation.sent(name, [result[1]])
        polled = await broker.consume.poll(POLLING, "g", member, None, PollLimits(100, 10_000, 0))
        offsets = BitMap64()
        for part in polled.parts:
            self.conservation.delivered("g", name, set_of(part.order), part.failures)
            await self.bank.tx.hold(mine, "g", [ack_of(part)])
            offsets |= set_of(part.order)
        return offsets

    async def live(self) -> None:
        await self.open()
        request = JoinRequest(client_id="c", topics=("in",), options={})
        _, member = await self.bank.rig.broker.groups.join("g", request)
        app = await self.bank.init("app")
        for number in range(3):
            batch = str(number)
            first, second = await self.task("a", batch), await self.task("b", batch)
            lost = await self.task("lost", f"lost{batch}")
            held = await self.consume(first, member)
            for mine in (first, second, lost):
                await self.bank.tx.detach(mine)
            parent = await self.bank.begin(app)
            await self.write(parent, batch, 0, f"{batch} d0")
            await self.write(parent, batch, 1, f"{batch} d1")
            await self.bank.tx.adopt(parent, [first, second])
            outcome = ABORT if number == 1 else COMMIT
            await self.bank.tx.end(parent, outcome, token=batch)
            if outcome == COMMIT:
                self.committed.append(batch)
                self.conservation.settled("g", self.place("in", 0), held)

    async def audit(self) -> None:
        """Everything of a batch is there, or nothing; both checkers agree."""
        await self.bank.crash()
        life = await self.bank.tx.init("app")
        for name in ("a", "b", "lost"):
            await self.bank.init(name)
        await self.bank.settle_down()
        seen = {partition: await self.read(partition) for partition in (0, 1)}
        batches = [{value.split()[0] for value in values} for values in seen.values()]
        assert batches[0] == batches[1], "all or nothing"
        for batch in batches[0]:
            for partition, values in seen.items():
                mine = [value for value in values if value.split()[0] == batch]
                assert sorted(mine) == [f"{batch} {one}{partition}" for one in ("a", "b", "d")]
        assert batches[0] in (set(self.committed), {*self.committed, life.token})
        assert not batches[0] & {"1", "lost0", "lost1", "lost2"}
        assert life.token == max(batches[0], default="")
        self.bank.rig.checker.check()
        for hosted in self.bank.rig.broker.consume.ledgers:
            self.conservation.compare(
                hosted.group, hosted.partition.name, hosted.ledger, hosted.view()
            )
        self.conservation.check()

    async def read(self, partition: int) -> list[str]:
        """Tell the log checker what a reader of committed messages sees."""
        place = self.place("accounts", partition)
        committed = await self.messages(partition, is_committed=True)
        everything = await self.messages(partition, is_committed=False)
        log = self.bank.rig.broker.topic("accounts").partition(partition)
        hidden = [
            (offset, offset + 1)
            for offset in range(log.log.end_offset)
            if offset not in everything or offset in log.queue.tx.aborted
        ]
        for batch in self.committed:
            for where, offset, payload in self.wishes[batch]:
                if where == place:
                    self.bank.rig.checker.acked(place, offset, payload)
        self.bank.rig.checker.read(
            place,
            sorted(committed.items()),
            start_offset=0,
            end_offset=log.visible_offset,
            gaps=hidden,
        )
        return [value.decode() for value in committed.values()]

    async def messages(self, partition: int, *, is_committed: bool) -> dict[int, bytes]:
        (outcome,) = await fetch(
            FETCHING,
            self.bank.rig.broker.topic("accounts"),
            [FetchPart(partition=partition, offset=0)],
            bytes_max=1_000_000,
            wait_ms=0,
            lens=Isolation(is_committed=is_committed),
        )
        assert isinstance(outcome, Fetched)
        found = messages_in("accounts", partition, outcome.frames)
        return {one.offset: one.value or b"" for one in found}


async def die_at(operation: int) -> bool:
    """Die at an operation and look at the books; tell whether the life ended before."""
    sink = Sink()
    sink.bank.rig.die_in(operation)
    try:
        await sink.live()
        sink.bank.rig.check_alive()
    except (CrashError, StorageFailedError):
        await sink.audit()
        await sink.bank.rig.stop()
        return False
    return True


@pytest.mark.parametrize("first", range(4))
def test_a_crash_at_any_operation_leaves_all_or_nothing(first: int) -> None:
    """The broker dies at every operation of a sink that adopts the work of its tasks."""

    async def main() -> None:
        for operation in itertools.count(first + 1, 4):
            if await die_at(operation):
                assert operation > 200
                return

    run(main())
