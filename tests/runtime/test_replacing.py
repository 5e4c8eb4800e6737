"""A delayed message that takes the place of a waiting one: never both, never none."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from goqueue.base.errors import (
    DelayConflictError,
    DiskFullError,
    GoQueueError,
    InvalidRequestError,
)
from goqueue.base.units import HOUR_MS
from goqueue.core.record.message import Draft, Message
from goqueue.core.record.queue_rows import DELAY_ID, ON_CONFLICT
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.core.schedule.schedule import DelayReleased
from goqueue.runtime import broker as broker_module
from goqueue.runtime.log.places import outcomes_of, place_rows
from goqueue.runtime.log.published import Published
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import MachineHost
from goqueue.runtime.state_log import STATE_TOPIC
from goqueue.testing.disk import CrashError
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, read_all, run

OPERATIONS_MIN = 40


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the state small enough to crash in often."""
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("asyncio").setLevel(logging.NOTSET)


def draft(
    rig: Rig,
    value: bytes,
    *,
    wish: bytes | None = None,
    name: bytes = b"n",
    delay_ms: int = HOUR_MS,
) -> Draft:
    headers = {DELAY_ID: name}
    if wish is not None:
        headers[ON_CONFLICT] = wish
    now_us = rig.clock.now_us()
    return Draft(
        value=value, timestamp_us=now_us, headers=headers, deliver_at_us=now_us + delay_ms * 1_000
    )


async def send(
    rig: Rig, *drafts: Draft, number: int = 0, stamp: ProducerStamp = NO_STAMP
) -> Published:
    topic = rig.broker.topic("t")
    return await topic.publish(PUBLISHING, number, memoryview(frame_drafts(drafts, stamp)))


async def begin(*, partitions: int = 2, **settings: object) -> Rig:
    rig = Rig()
    await rig.start()
    rig.broker.create_topic("t", partitions=partitions, settings=settings)
    return rig


def release(rig: Rig) -> None:
    for partition in rig.broker.topic("t").partitions:
        partition.queue.advance()


async def delivered(rig: Rig) -> list[bytes | None]:
    """Return what readers see when everything is due."""
    rig.clock.advance(2 * HOUR_MS)
    release(rig)
    topic = rig.broker.topic("t")
    found: list[Message] = []
    for number in range(len(topic.partitions)):
        partition = topic.partition(number)
        assert not partition.queue.hidden
        messages = (await read_all(topic, number))[0]
        found += [one for one in messages if one.offset not in partition.queue.cancelled]
    return sorted((one.value for one in found), key=lambda value: value or b"")


def test_both_wait_unless_something_else_is_asked_for() -> None:
    """As it always was."""

    async def main() -> None:
        rig = await begin()
        await send(rig, draft(rig, b"a"))
        await send(rig, draft(rig, b"b"), number=1)

        assert await delivered(rig) == [b"a", b"b"]
        await rig.stop()

    run(main())


@pytest.mark.parametrize("number", [0, 1])
def test_a_message_takes_the_place_of_those_that_wait(number: int) -> None:
    """Of all of them, in whatever partition they are; over a restart as well."""

    async def main() -> None:
        rig = await begin()
        await send(rig, draft(rig, b"a"))
        await send(rig, draft(rig, b"b"), number=1)
        await send(rig, draft(rig, b"other", name=b"m"))
        await send(rig, draft(rig, b"c", wish=b"replace"), number=number)
        (found,) = await rig.broker.delays.find_id("t", "n")

        assert found.partition == number
        await rig.stop()
        await rig.start()
        assert await delivered(rig) == [b"c", b"other"]
        await rig.stop()

    run(main())


def test_a_message_may_be_refused_where_its_name_is_taken() -> None:
    """Alone of its batch; once nothing waits under the name it is taken."""

    async def main() -> None:
        rig = await begin()
        await send(rig, draft(rig, b"a"))
        batch = [
            draft(rig, b"b", wish=b"error"),
            *(draft(rig, b"%d" % n, name=b"m") for n in range(4)),
        ]
        published = await send(rig, *batch, number=1)
        first, *places = outcomes_of(published, 5)

        assert isinstance(first, DelayConflictError)
        assert places == [(1, 0), (1, 1), (1, 2), (1, 3)]
        await rig.broker.delays.cancel_id("t", "n")
        await send(rig, draft(rig, b"c", wish=b"error"))
        assert b"c" in await delivered(rig)
        await send(rig, draft(rig, b"d", wish=b"error"))
        await rig.stop()

    run(main())


def test_the_last_of_one_request_wins() -> None:
    """Earlier ones are not written at all, and are told where the last one is."""

    async def main() -> None:
        rig = await begin()
        await send(rig, draft(rig, b"old"))
        rows = [
            draft(rig, b"%d" % n, wish=b"replace", name=b"n" if n % 2 else b"m") for n in range(8)
        ]
        published = await send(rig, *rows, number=1)
        refused = await send(
            rig,
            draft(rig, b"x", wish=b"error", name=b"k"),
            draft(rig, b"y", wish=b"error", name=b"k"),
        )

        assert place_rows(published, 8) == [(1, 0), (1, 1)] * 4
        assert [type(one) for one in outcomes_of(refused, 2)] == [tuple, DelayConflictError]
        assert await delivered(rig) == [b"6", b"7", b"x"]
        await rig.stop()

    run(main())


def test_one_that_is_due_at_once_replaces_as_well() -> None:
    """What waited is cancelled, and the new one is there."""

    async def main() -> None:
        rig = await begin()
        await send(rig, draft(rig, b"later"))
        await send(rig, draft(rig, b"now", wish=b"replace", delay_ms=0))

        assert not any(part.queue.hidden for part in rig.broker.topic("t").partitions)
        assert await delivered(rig) == [b"now"]
        await rig.stop()

    run(main())


@pytest.mark.parametrize("window_ms", [0, HOUR_MS])
def test_a_repeat_replaces_nothing(window_ms: int) -> None:
    """A request whose answer was lost finds its own message waiting, and leaves it there."""

    async def main() -> None:
        rig = await begin(dedup_window_ms=window_ms)
        await send(rig, draft(rig, b"a"))
        stamp = rig.broker.init_producer()
        row = draft(rig, b"b", wish=b"replace")
        first = await send(rig, row, stamp=stamp)
        again = await send(rig, row, stamp=stamp)

        assert again.is_duplicate
        assert again.base_offset == first.base_offset
        assert await delivered(rig) == [b"b"]
        await rig.stop()

    run(main())


def test_a_repeat_by_its_dedup_id_replaces_nothing() -> None:
    """The message that waits is the one that was published before."""

    async def main() -> None:
        rig = await begin(dedup_window_ms=HOUR_MS)
        row = draft(rig, b"a", wish=b"replace")
        named = Draft(**{**{f: getattr(row, f) for f in row.__struct_fields__}, "dedup_id": b"id"})
        first = await send(rig, named)
        again = await send(rig, named)

        assert place_rows(again, 1) == place_rows(first, 1)
        assert await delivered(rig) == [b"a"]
        await rig.stop()

    run(main())


def test_what_is_being_replaced_is_not_delivered_meanwhile() -> None:
    """Its time comes while the new one is written: held, and cancelled in the end."""

    async def main() -> None:
        rig = await begin()
        await send(rig, draft(rig, b"a", delay_ms=1_000))
        await send(rig, draft(rig, b"b", delay_ms=1_000), number=1)
        replacing = rig.broker.delays.replacing
        topic = rig.broker.topic("t")
        held = await replacing.hold(
            await replacing.find(topic, b"n", topic.partition(0)),
            name=b"n",
            target=topic.partition(0),
        )
        rig.clock.advance(5_000)
        release(rig)
        hidden = [sorted(part.queue.hidden) for part in topic.partitions]
        replacing.release(held[:1])
        await replacing.finish(held[1:])
        release(rig)

        assert hidden == [[0], [0]]
        assert await delivered(rig) == [b"a"]
        await rig.stop()

    run(main())


def test_a_failed_append_leaves_what_waited() -> None:
    """A full disk refuses the new one, and the old one comes at its time."""

    async def main() -> None:
        rig = await begin()
        await send(rig, draft(rig, b"a"))
        rig.disk.fill_up(0, path_glob="logs/t/*")
        with pytest.raises(GoQueueError):
            await send(rig, draft(rig, b"b", wish=b"replace"), number=1)
        rig.disk.make_room()

        assert not rig.broker.topic("t").partition(0).queue.schedule.held
        assert await delivered(rig) == [b"a"]
        await rig.stop()

    run(main())


def test_what_was_cut_short_by_an_unload_is_seen_to() -> None:
    """Loaded again, the broker looks whether the new message is there."""

    async def main() -> None:
        rig = await begin()
        await send(rig, draft(rig, b"a"))
        topic = rig.broker.topic("t")
        replacing = rig.broker.delays.replacing
        await replacing.hold(
            await replacing.find(topic, b"n", topic.partition(1)),
            name=b"n",
            target=topic.partition(1),
        )
        where = rig.broker.state.partition_of("t")
        await rig.broker.coordinators.unload(STATE_TOPIC, where)
        await rig.broker.coordinators.load(STATE_TOPIC, where)
        await asyncio.wait(rig.broker.delays.resolving.tasks.values())

        assert await delivered(rig) == [b"a"]
        await rig.stop()

    run(main())


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({DELAY_ID: b"n", ON_CONFLICT: b"maybe"}, "on_conflict: must be error or replace"),
    ],
)
def test_what_is_no_wish_is_refused(headers: dict[str, bytes], message: str) -> None:
    """A header of a stranger's making, too."""

    async def main() -> None:
        rig = await begin()
        now_us = rig.clock.now_us()
        bad = Draft(value=b"v", timestamp_us=now_us, headers=headers, deliver_at_us=now_us + 10**9)
        with pytest.raises(InvalidRequestError, match=message):
            await send(rig, bad)
        await rig.stop()

    run(main())


class Life:
    """A short life in which messages replace one another."""

    def __init__(self) -> None:
        self.acked = b""
        self.sent = b""

    async def run(self, rig: Rig) -> None:
        await rig.start()
        rig.broker.create_topic("t", partitions=2)
        for number in range(4):
            self.sent = b"%d" % number
            await send(rig, draft(rig, self.sent, wish=b"replace"), number=number % 2)
            self.acked = self.sent
        await rig.stop()


async def die_at(operation: int, seed: int) -> bool:
    """Live, die at an operation, recover twice; return whether the life was over before."""
    rig, life = Rig(), Life()
    rig.die_in(operation)
    is_over = False
    try:
        await life.run(rig)
        is_over = True
    except (CrashError, GoQueueError):
        with pytest.raises(CrashError):
            rig.check_alive()
    torn = Random(seed)
    for again in range(2):
        rig.recover_with(rig.disk.crash(torn=torn) if seed % 2 else rig.disk.kill())
        if again and seed > 1:
            # What was held became due while there was no broker.
            rig.clock.advance(HOUR_MS)
        rig.clock.restart()
        await rig.start()
    if "t" in rig.broker.topics:
        found = await delivered(rig)
        assert len(found) <= 1
        assert set(found) <= {life.acked, life.sent}
        assert found or not life.acked
    await rig.stop()
    return is_over


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_never_both_and_never_none_over_a_crash_at_any_operation(seed: int) -> None:
    """Killed or without power at every step of the disk, the times passed meanwhile or not."""

    async def main() -> None:
        operation = 1
        while not await die_at(operation, seed):
            operation += 1

        assert operation > OPERATIONS_MIN

    run(main())


def test_a_message_that_was_rescheduled_keeps_its_name_over_a_kill() -> None:
    """Its record says it was due long ago; it is found, refused for and replaced all the same."""

    async def main() -> None:
        rig = await begin(partitions=1)
        await send(rig, draft(rig, b"a", delay_ms=5_000))
        await rig.broker.delays.reschedule("t", 0, 0, due_ms=rig.clock.now_ms() + HOUR_MS)
        rig.clock.advance(10_000)
        rig.recover_with(rig.disk.kill())
        rig.clock.restart()
        await rig.start()
        (found,) = await rig.broker.delays.find_id("t", "n")
        refused = await send(rig, draft(rig, b"b", wish=b"error"))
        await send(rig, draft(rig, b"c", wish=b"replace"))

        assert found.offset == 0
        assert isinstance(outcomes_of(refused, 1)[0], DelayConflictError)
        assert await delivered(rig) == [b"c"]
        await rig.stop()

    run(main())


def test_what_was_let_go_is_not_replaced_by_a_later_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A replacement that failed on a full disk leaves nothing that a restart could mistake."""

    async def main() -> None:
        rig = await begin(partitions=1)
        await send(rig, draft(rig, b"a", delay_ms=60_000))
        commit = MachineHost.commit

        def full(*_: object, **__: object) -> Published:
            raise DiskFullError("no room")

        def commit_some(host: MachineHost[Any], events: Sequence[Any], **more: Any) -> None:
            if any(isinstance(event, DelayReleased) for event in events):
                raise DiskFullError("no room for state")
            commit(host, events, **more)

        with monkeypatch.context() as patch:
            patch.setattr(Topic, "append_judged", full)
            patch.setattr(MachineHost, "commit", commit_some)
            with pytest.raises(DiskFullError):
                await send(rig, draft(rig, b"b", wish=b"replace"))
            patch.undo()
        rig.clock.advance(61_000)
        release(rig)
        await send(rig, draft(rig, b"c", wish=b"replace"))
        rig.recover_with(rig.disk.kill())
        rig.clock.restart()
        await rig.start()

        assert await delivered(rig) == [b"a", b"c"]
        await rig.stop()

    run(main())


def test_the_last_of_many_in_a_batch_waits() -> None:
    """Rows that replace each other in turn all give way to the last one."""

    async def main() -> None:
        rig = await begin(partitions=1)
        rows = [draft(rig, b"%d" % n, wish=b"replace") for n in range(5)]
        await send(rig, draft(rig, b"a"))
        published = await send(rig, *rows)
        places = outcomes_of(published, 5)
        (found,) = await rig.broker.delays.find_id("t", "n")

        assert set(places) == {(0, found.offset)}
        assert await delivered(rig) == [b"4"]
        await rig.stop()

    run(main())


def test_messages_cancelled_before_an_unload_are_counted_once() -> None:
    """Statistics do not change when a state partition comes and goes."""

    async def main() -> None:
        rig = await begin(partitions=1)
        await send(rig, draft(rig, b"a"))
        await rig.broker.delays.cancel("t", 0, 0)
        for partition in rig.broker.state.partitions:
            rig.broker.delays.unload(partition)
            rig.broker.delays.load(partition)

        assert rig.broker.topic("t").partitions[0].queue.schedule.cancelled_total == 1
        await rig.stop()

    run(main())
