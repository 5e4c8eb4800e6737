"""Dead letters go back, or away: once, as they were, and over restarts."""

import asyncio
import itertools
import logging
from collections.abc import Iterator
from random import Random

import pytest

from goqueue.base.errors import (
    GoQueueError,
    InvalidRequestError,
    RedriveActiveError,
    RedriveNotFoundError,
    TopicNotFoundError,
)
from goqueue.base.limits import REDRIVES_DEFAULT
from goqueue.core.dlq.filter import Filter
from goqueue.core.dlq.record import REDRIVES
from goqueue.core.dlq.redrive import Kind, Order, RedriveState
from goqueue.core.record.message import Message
from goqueue.runtime import broker as broker_module
from goqueue.runtime.dlq import shelf_steps
from goqueue.runtime.dlq.redrive import Redrives
from goqueue.testing.disk import CrashError
from tests.runtime.dlq_rig import Host, Pauses, dead_letters, messages, numbered, publish
from tests.runtime.rig import Rig, run

pytestmark = pytest.mark.usefixtures("both_places")

DLQ = "orders.dlq"
REDRIVE = Order(kind=Kind.REDRIVE, max_redrives=REDRIVES_DEFAULT, by="ann")
PURGE = Order(kind=Kind.PURGE, by="ann")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("asyncio").setLevel(logging.NOTSET)


def order(kind: Kind = Kind.REDRIVE, **fields: object) -> Order:
    chosen: dict[str, object] = {"max_redrives": REDRIVES_DEFAULT, **fields}
    return Order(kind=kind, **chosen)  # type: ignore[arg-type]


async def bury(rig: Rig, offsets: list[int], host: Host | None = None) -> None:
    """Let some of the orders die."""
    host = host or Host(rig)
    await host.doom(offsets)
    letters = dead_letters(rig)
    letters.take(host)
    await letters.idle()


async def begin(*, count: int = 10, partitions: int = 3) -> tuple[Rig, Redrives]:
    """Return a broker whose first ten orders are dead."""
    rig = Rig()
    await rig.start()
    rig.broker.create_topic("orders", partitions=partitions)
    await publish(rig, numbered(count))
    if count:
        await bury(rig, list(range(count)))
    return rig, rig.broker.redrives


async def finish(
    redrives: Redrives, wanted: Order, name: str = "orders"
) -> tuple[RedriveState, int]:
    started = await redrives.start(name, wanted)
    await redrives.wait(name)
    ended = redrives.progress(name, started.job.id)
    return ended.job.state, ended.moved


def offset_of(message: Message) -> int:
    assert message.value is not None
    return int(message.value.rpartition(b"-")[2])


def test_a_message_comes_back_as_it_was() -> None:
    """Key, value, headers, priority and partition; only the count of its redrives is new."""

    async def main() -> None:
        rig, redrives = await begin()
        before = await messages(rig, "orders")
        outcome = await finish(redrives, REDRIVE)
        back = (await messages(rig, "orders"))[len(before) :]

        assert outcome == (RedriveState.DONE, 10)
        assert [message.key for message in back] == [message.key for message in before]
        assert [message.value for message in back] == [message.value for message in before]
        assert [message.priority for message in back] == [message.priority for message in before]
        assert {message.partition for message in back} == {0}
        for old, new in zip(before, back, strict=True):
            assert new.headers == {**(old.headers or {}), REDRIVES: b"1"}
        (summary,) = await redrives.summaries()
        assert (summary.dlq, summary.source, summary.depth) == (DLQ, "orders", 0)
        assert len(await messages(rig, DLQ)) == 10
        await rig.stop()

    run(main())


def test_to_another_topic_the_key_decides() -> None:
    """The same key always goes to the same partition; those without share them out."""

    async def main() -> None:
        rig, redrives = await begin()
        rig.broker.create_topic("repairs", partitions=4)
        await finish(redrives, order(target="repairs"))
        back = await messages(rig, "repairs")

        assert sorted(map(offset_of, back)) == list(range(10))
        for message in back:
            if message.key is not None:
                expected = rig.broker.topic("repairs").choose_all([message.key])
                assert [message.partition] == expected
        assert len({message.partition for message in back if message.key is None}) > 1
        await rig.stop()

    run(main())


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Filter(key=b"key-4"), [4]),
        (Filter(key_prefix=b"key-"), [1, 2, 4, 5, 7, 8]),
        (Filter(reason="REJECTED"), list(range(10))),
        (Filter(reason="TTL_EXPIRED"), []),
        (Filter(header="traceparent"), [1, 3, 5, 7, 9]),
        (Filter(header="traceparent", header_value=b"00-trace-3"), [3]),
        (Filter(text="EXPLODED"), list(range(10))),
        (Filter(text="imploded"), []),
        (Filter(group="billing", since_ms=1_700_000_000_000), list(range(10))),
        (Filter(until_ms=1_700_000_000_000), []),
        (Filter(group="shipping"), []),
    ],
    ids=repr,
)
def test_only_what_is_meant_goes(wanted: Filter, expected: list[int]) -> None:
    """Dry run, redrive, peek and purge mean the same by a filter."""

    async def main() -> None:
        rig, redrives = await begin()
        trial = await redrives.try_out("orders", order(filter=wanted))
        peeked = await redrives.peek(DLQ, wanted, limit=100, bytes_max=10**6)
        assert len(await messages(rig, "orders")) == 10
        state, moved = await finish(redrives, order(filter=wanted))
        back = (await messages(rig, "orders"))[10:]
        (job,) = redrives.history("orders")

        assert [offset_of(letter.message) for letter in peeked.letters] == expected
        assert (trial.matched, trial.unmatched) == (len(expected), 10 - len(expected))
        assert [offset_of(letter.message) for letter in trial.sample] == expected[:10]
        assert (state, moved) == (RedriveState.DONE, len(expected))
        assert [offset_of(message) for message in back] == expected
        assert job.job.unmatched == 10 - len(expected)
        assert redrives.shelves.depth(rig.broker.topic(DLQ)) == 10 - len(expected)
        await finish(redrives, order(Kind.PURGE, filter=Filter()))
        assert redrives.shelves.depth(rig.broker.topic(DLQ)) == 0
        await rig.stop()

    run(main())


def test_peeking_takes_nothing() -> None:
    """It can be done again and again, from anywhere."""

    async def main() -> None:
        rig, redrives = await begin()
        for skip, limit in itertools.product(range(0, 12, 3), (1, 4, 20)):
            page = await redrives.peek("orders", Filter(), limit=limit, skip=skip, bytes_max=10**6)
            found = [offset_of(letter.message) for letter in page.letters]
            assert found == list(range(10))[skip : skip + limit]
            assert page.depth == 10
            assert page.is_cut == (skip + limit < 10)
        page = await redrives.peek(
            "orders", Filter(), limit=3, partition=0, from_offset=6, bytes_max=10**6
        )
        assert [offset_of(letter.message) for letter in page.letters] == [6, 7, 8]
        with pytest.raises(InvalidRequestError):
            await redrives.peek("orders", Filter(), limit=3, from_offset=6, bytes_max=10**6)
        await rig.stop()

    run(main())


def test_purged_letters_are_gone_for_good() -> None:
    """A purge drops what is meant; a restart and a redrive do not bring it back."""

    async def main() -> None:
        rig, redrives = await begin()
        outcome = await finish(redrives, order(Kind.PURGE, filter=Filter(key_prefix=b"key-")))
        assert outcome == (RedriveState.DONE, 6)
        await rig.stop()
        await rig.start()
        redrives = rig.broker.redrives
        (job,) = redrives.history("orders")
        assert (job.job.order.kind, job.moved, job.job.unmatched) == (Kind.PURGE, 6, 4)
        assert await finish(redrives, REDRIVE) == (RedriveState.DONE, 4)
        back = (await messages(rig, "orders"))[10:]

        assert [offset_of(message) for message in back] == [0, 3, 6, 9]
        await rig.stop()

    run(main())


def test_what_came_back_too_often_stays() -> None:
    """The loop guard: the third death is the last, and skipped letters are counted."""

    async def main() -> None:
        rig, redrives = await begin(count=2, partitions=1)
        host = Host(rig, "shipping")
        for redrive in range(3):
            assert await finish(redrives, REDRIVE) == (RedriveState.DONE, 2)
            await bury(rig, [2 + 2 * redrive, 3 + 2 * redrive], host)
        trial = await redrives.try_out("orders", REDRIVE)
        outcome = await finish(redrives, REDRIVE)
        last = redrives.history("orders")[0]

        assert outcome == (RedriveState.DONE, 0)
        assert (trial.matched, trial.skipped) == (0, 2)
        assert last.job.skipped == 2
        assert await finish(redrives, order(max_redrives=4)) == (RedriveState.DONE, 2)
        await rig.stop()

    run(main())


def test_the_rate_is_kept() -> None:
    """A thousand letters at a hundred a second take ten seconds, in small steps."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        rig.broker.create_topic("orders", partitions=1)
        await publish(rig, numbered(300))
        await bury(rig, list(range(300)))
        redrives = rig.broker.redrives
        redrives.sleep = Pauses(rig)
        before = rig.clock.monotonic_ms()
        assert await finish(redrives, order(rate=100)) == (RedriveState.DONE, 300)
        passed_ms = rig.clock.monotonic_ms() - before

        assert 2_900 <= passed_ms <= 3_000
        await rig.stop()

    run(main())


def test_only_what_was_there_goes() -> None:
    """A letter that dies while the redrive runs waits for the next one."""

    async def main() -> None:
        rig, redrives = await begin(count=4, partitions=1)
        pauses = Pauses(rig)
        pauses.gate = asyncio.Event()
        redrives.sleep = pauses
        started = await redrives.start("orders", order(rate=1))
        await pauses.reach(1)
        await publish(rig, numbered(1, 77))
        end = rig.broker.topic("orders").partition(0).log.end_offset
        await bury(rig, [end - 1], Host(rig, "shipping"))
        pauses.gate.set()
        await redrives.wait("orders")
        ended = redrives.progress("orders", started.job.id)

        assert (ended.job.total, ended.moved) == (4, 4)
        assert redrives.shelves.depth(rig.broker.topic(DLQ)) == 1
        await rig.stop()

    run(main())


def test_one_job_at_a_time_and_it_can_be_cancelled() -> None:
    """A second one is refused while the first runs; what was not moved stays."""

    async def main() -> None:
        rig, redrives = await begin()
        pauses = Pauses(rig)
        redrives.sleep = pauses
        started = await redrives.start("orders", order(rate=1))
        await pauses.reach(2)
        with pytest.raises(RedriveActiveError):
            await redrives.start("orders", PURGE)
        cancelled = await redrives.cancel("orders", started.job.id)
        again = await redrives.cancel("orders", started.job.id)

        assert cancelled.job.state is RedriveState.CANCELLED
        assert again == cancelled
        assert 0 < cancelled.moved < 10
        depth = redrives.shelves.depth(rig.broker.topic(DLQ))
        assert depth == 10 - cancelled.moved
        assert await finish(redrives, REDRIVE) == (RedriveState.DONE, depth)
        assert len(await messages(rig, "orders")) == 20
        await rig.stop()

    run(main())


def test_bad_orders_change_nothing() -> None:
    """Unknown topics, targets and numbers are refused with their reason."""

    async def main() -> None:
        rig, redrives = await begin()
        refused: list[tuple[str, Order, type[GoQueueError]]] = [
            ("nowhere", REDRIVE, TopicNotFoundError),
            ("__consumer_offsets", REDRIVE, TopicNotFoundError),
            ("orders", order(target="nowhere"), TopicNotFoundError),
            ("orders", order(target=DLQ), InvalidRequestError),
            ("orders", order(target="__consumer_offsets"), InvalidRequestError),
            ("orders", order(rate=-1), InvalidRequestError),
            ("orders", order(max_redrives=10**6), InvalidRequestError),
        ]
        for name, wanted, kind in refused:
            with pytest.raises(kind):
                await redrives.start(name, wanted)
            with pytest.raises(kind):
                await redrives.try_out(name, wanted)
        with pytest.raises(RedriveNotFoundError):
            await redrives.cancel("orders", 1)
        with pytest.raises(RedriveNotFoundError):
            redrives.progress("orders", 1)

        assert redrives.history("orders") == []
        assert redrives.shelves.depth(rig.broker.topic(DLQ)) == 10
        await rig.stop()

    run(main())


def test_a_full_target_is_waited_for() -> None:
    """Nothing is lost, nothing doubled; the job says why it does not get on."""

    async def main() -> None:
        rig, redrives = await begin()
        rig.broker.create_topic("repairs", partitions=1)
        rig.disk.fill_up(0, path_glob="logs/repairs/*")
        pauses = Pauses(rig)
        redrives.sleep = pauses
        started = await redrives.start("orders", order(target="repairs"))
        await pauses.reach(4)
        assert "disk" in redrives.progress("orders", started.job.id).error
        rig.disk.make_room()
        await redrives.wait("orders")

        assert redrives.progress("orders", started.job.id).moved == 10
        assert sorted(map(offset_of, await messages(rig, "repairs"))) == list(range(10))
        await rig.stop()

    run(main())


def test_a_deleted_target_ends_the_job() -> None:
    """It cannot go on; the letters stay."""

    async def main() -> None:
        rig, redrives = await begin()
        rig.broker.create_topic("repairs", partitions=1)
        pauses = Pauses(rig)
        redrives.sleep = pauses
        started = await redrives.start("orders", order(target="repairs", rate=1))
        await pauses.reach(3)
        rig.broker.delete_topic("repairs")
        await redrives.wait("orders")
        ended = redrives.progress("orders", started.job.id)

        assert ended.job.state is RedriveState.FAILED
        assert ended.error == "topic not found: repairs"
        assert redrives.shelves.depth(rig.broker.topic(DLQ)) == 10 - ended.moved
        await rig.stop()

    run(main())


def test_a_bug_ends_the_job_and_not_the_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told as failed, and the next one can begin."""

    async def main() -> None:
        rig, redrives = await begin()
        with monkeypatch.context() as patch:
            patch.setattr(shelf_steps, "revive", None)
            started = await redrives.start("orders", REDRIVE)
            await redrives.wait("orders")
        ended = redrives.progress("orders", started.job.id)

        assert ended.job.state is RedriveState.FAILED
        assert "broke off" in ended.error
        assert await finish(redrives, REDRIVE) == (RedriveState.DONE, 10)
        await rig.stop()

    run(main())


def test_deleted_dead_letters_are_forgotten() -> None:
    """Made anew, the topic begins with no job and nothing settled."""

    async def main() -> None:
        rig, redrives = await begin()
        await finish(redrives, REDRIVE)
        rig.broker.delete_topic(DLQ)
        assert await redrives.summaries() == []
        rig.clock.advance(1)
        await publish(rig, numbered(3, 10))
        end = rig.broker.topic("orders").partition(0).log.end_offset
        await bury(rig, list(range(end - 3, end)), Host(rig, "shipping"))
        assert redrives.shelves.depth(rig.broker.topic(DLQ)) == 3
        assert redrives.history("orders") == []
        await rig.stop()
        await rig.start()
        assert rig.broker.redrives.shelves.depth(rig.broker.topic(DLQ)) == 3
        assert rig.broker.redrives.history("orders") == []
        await rig.stop()

    run(main())


class Life:
    """A redrive of nine letters in small batches; the process may die at any operation."""

    def __init__(self) -> None:
        self.rig = Rig()

    async def prepare(self) -> None:
        rig = self.rig
        await rig.start()
        rig.broker.create_topic("orders", partitions=2)
        await publish(rig, numbered(12))
        await bury(rig, list(range(12)))
        await rig.stop()

    async def live(self) -> None:
        rig = self.rig
        await rig.start()
        redrives = rig.broker.redrives
        redrives.sleep = Pauses(rig)
        if not redrives.history("orders"):
            wanted = order(rate=10, filter=Filter(key_prefix=b"key-"))
            await redrives.start("orders", wanted)
            rig.check_alive()
        await redrives.wait("orders")
        rig.check_alive()
        await self.check(redrives)
        await rig.stop()

    async def check(self, redrives: Redrives) -> None:
        back = (await messages(self.rig, "orders"))[12:]
        assert [offset_of(message) for message in back] == [1, 2, 4, 5, 7, 8, 10, 11]
        (job,) = redrives.history("orders")
        assert (job.job.state, job.moved) == (RedriveState.DONE, 8)
        assert (job.job.unmatched, job.job.skipped) == (4, 0)
        assert redrives.shelves.depth(self.rig.broker.topic(DLQ)) == 4

    def die_in(self, operations: int) -> bool:
        self.rig.die_in(operations)
        try:
            run(self.live())
        except (CrashError, GoQueueError):
            with pytest.raises(CrashError):
                self.rig.check_alive()
            return True
        return False


def deaths() -> Iterator[tuple[int, Life]]:
    for operation in itertools.count(1):
        life = Life()
        run(life.prepare())
        life.rig.recover_with(life.rig.disk.kill())
        if not life.die_in(operation):
            assert operation > 60
            return
        yield operation, life


@pytest.mark.parametrize("seed", [None, 1], ids=lambda seed: f"torn-{seed}")
def test_a_power_cut_at_every_operation_loses_and_doubles_nothing(seed: int | None) -> None:
    """P5: every letter goes back once, the job goes on by itself and its counts are right."""
    for operation, life in deaths():
        torn = None if seed is None else Random(seed * 1_000 + operation)
        life.rig.recover_with(life.rig.disk.crash(torn=torn))
        run(life.live())


def test_a_kill_at_every_operation_loses_and_doubles_nothing() -> None:
    """P5: nor when the process dies, twice in a row."""
    for operation, life in deaths():
        life.rig.recover_with(life.rig.disk.kill())
        if life.die_in(operation % 37 + 3):
            life.rig.recover_with(life.rig.disk.kill())
            run(life.live())
