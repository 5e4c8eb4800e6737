"""Compaction in a broker at work: nothing that was promised is lost, and nobody has to wait."""

import asyncio
import threading
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from goqueue.base.errors import InvalidRequestError, OutOfOrderSequenceError
from goqueue.base.ids import Offset
from goqueue.base.units import DAY_MS, HOUR_MS
from goqueue.config.model import BrokerConfig
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.runtime.broker import Broker
from goqueue.runtime.log.compactor import dirty_ratio, is_due
from goqueue.runtime.log.page import read_page
from goqueue.runtime.log.published import Published
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.maintenance import Maintenance
from goqueue.testing.clock import FakeClock
from goqueue.testing.disk import CrashError, MemoryDisk
from tests.runtime.grants import FETCHING, PUBLISHING
from tests.runtime.rig import HANGS_SECONDS, read_all

NAME = "state"


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, HANGS_SECONDS))


class Stage:
    """A broker with one compacted topic of one partition, over restarts."""

    def __init__(self, *, threads: int = 0) -> None:
        self.disk = MemoryDisk()
        self.clock = FakeClock()
        self._threads = threads

    async def start(self, **settings: object) -> Topic:
        config = BrokerConfig(sync_threads=self._threads)
        self.broker = Broker(config, self.disk, self.clock)
        await self.broker.start()
        if NAME not in self.broker.topics:
            chosen = {"cleanup_policy": "compact", "segment_bytes": 4_096, **settings}
            self.broker.create_topic(NAME, partitions=1, settings=chosen)
        return self.broker.topic(NAME)

    async def restart(self) -> Topic:
        await self.broker.stop()
        self.disk = self.disk.kill()
        return await self.start()

    def draft(self, key: str | None, value: str | None, dedup_id: str | None = None) -> Draft:
        return Draft(
            key=None if key is None else key.encode(),
            value=None if value is None else value.encode(),
            timestamp_us=self.clock.now_us(),
            dedup_id=None if dedup_id is None else dedup_id.encode(),
        )

    async def publish(self, *drafts: Draft, stamp: ProducerStamp = NO_STAMP) -> Published:
        topic = self.broker.topic(NAME)
        return await topic.publish(PUBLISHING, 0, memoryview(frame_drafts(drafts, stamp)))


async def state_of(topic: Topic) -> dict[bytes | None, bytes | None]:
    messages, gaps = await read_all(topic, 0)
    assert gaps == []
    return {message.key: message.value for message in messages}


def test_a_repeat_is_recognised_after_its_original_is_compacted_away() -> None:
    """The sequences of producers survive compaction and a restart, by kill or by power cut."""

    async def main() -> None:
        stage = Stage()
        await stage.start()
        first = stage.broker.init_producer()
        drafts = [stage.draft("k", f"{n}") for n in range(6)]
        published = await stage.publish(*drafts, stamp=first)
        await stage.publish(stage.draft("k", "last"), stamp=first.after(6))
        await stage.publish(stage.draft("k", "other"))
        topic = stage.broker.topic(NAME)
        (result,) = await stage.broker.compactor.compact(topic)
        for disk in (stage.disk.kill, stage.disk.crash):
            stage.disk = disk()
            topic = await stage.start()
            again = await stage.publish(*drafts, stamp=first)

            assert result.records_removed == 7
            assert (again.is_duplicate, again.base_offset) == (True, published.base_offset)
            assert await state_of(topic) == {b"k": b"other"}
            with pytest.raises(OutOfOrderSequenceError):
                await stage.publish(stage.draft("k", "x"), stamp=first.after(9))
        await stage.publish(stage.draft("k", "next"), stamp=first.after(7))
        assert await state_of(topic) == {b"k": b"next"}
        await stage.broker.stop()

    run(main())


def test_dedup_ids_survive_compaction_and_a_restart() -> None:
    """A message with an id stays while the window remembers it, and goes afterwards."""

    async def main() -> None:
        stage = Stage()
        topic = await stage.start(dedup_window_ms=HOUR_MS)
        await stage.publish(stage.draft("k", "1", "id"))
        await stage.publish(stage.draft("k", "2"))
        await stage.broker.compactor.compact(topic)
        topic = await stage.restart()
        again = await stage.publish(stage.draft("k", "1", "id"))

        assert [(one.row, one.offset) for one in again.repeats] == [(0, 0)]

        stage.clock.advance(HOUR_MS)
        (result,) = await stage.broker.compactor.compact(topic)
        assert result.records_removed == 1
        await stage.broker.stop()

    run(main())


def test_it_runs_by_itself_when_half_is_dirty() -> None:
    """And not before; the ratio falls to nothing, also for the next process."""

    async def main() -> None:
        stage = Stage()
        topic = await stage.start()
        partition = topic.partition(0)
        for n in range(100):
            await stage.publish(stage.draft(f"{n}", "v" * 100))
        assert is_due(partition)
        await stage.broker.compactor.compact_due(topic)
        assert (dirty_ratio(partition), is_due(partition)) == (0.0, False)
        clean = partition.log.sealed_bytes
        dues = []
        for n in range(200):
            await stage.publish(stage.draft(f"{n % 7}", "v" * 100))
            dues.append(is_due(partition))
            assert dues[-1] == (partition.log.dirty_bytes >= clean)
        assert dues[0] is False
        await stage.broker.compactor.compact_due(topic)
        topic = await stage.restart()
        assert dirty_ratio(topic.partition(0)) == 0.0
        assert len(await state_of(topic)) == 100
        assert len(topic.partition(0).log.segments) <= 6
        await stage.broker.stop()

    run(main())


def test_maintenance_compacts() -> None:
    """The broker's own rounds do it, without anybody asking."""

    async def main() -> None:
        stage = Stage(threads=1)
        config = BrokerConfig(sync_threads=1, maintenance_interval_ms=1)
        stage.broker = Broker(config, stage.disk, stage.clock)
        await stage.broker.start()
        settings = {"cleanup_policy": "compact", "segment_bytes": 4_096}
        topic = stage.broker.create_topic(NAME, partitions=1, settings=settings)
        count = 0
        while topic.partition(0).log.cleaned_offset < 200:
            await stage.publish(stage.draft("k", "v" * 100))
            count += 1
            assert count < 20_000, "it never ran"
        messages, gaps = await read_all(topic, 0)
        assert len(messages) < count
        assert gaps == []
        assert messages[-1].offset == count - 1
        await stage.broker.stop()

    run(main())


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete"])
def test_retention_leaves_a_topic_alone_that_is_only_compacted(policy: str) -> None:
    """What is old but current stays for ever; with both policies retention goes on as well."""

    async def main() -> None:
        stage = Stage()
        topic = await stage.start(cleanup_policy=policy, retention_ms=HOUR_MS, retention_bytes=1)
        for n in range(100):
            await stage.publish(stage.draft(f"{n}", "v" * 100))
        stage.clock.advance(DAY_MS)
        Maintenance(stage.broker).keep(topic)

        assert (topic.partition(0).log.start_offset == 0) == (policy == "compact")
        await stage.broker.stop()

    run(main())


def test_a_topic_that_keeps_everything_is_not_compacted() -> None:
    """Not by mistake of whoever asks; a dry run is fine."""

    async def main() -> None:
        stage = Stage()
        topic = await stage.start(cleanup_policy="delete")
        await stage.publish(stage.draft("k", "1"), stage.draft("k", "2"))
        with pytest.raises(InvalidRequestError, match="cleanup_policy is delete"):
            await stage.broker.compactor.compact(topic)
        (result,) = await stage.broker.compactor.compact(topic, dry_run=True)

        assert (result.records_before, result.records_after) == (2, 1)
        assert len((await read_all(topic, 0))[0]) == 2
        await stage.broker.stop()

    run(main())


WRITES = 2_000
"""Enough for many rounds, and an end, so that readers catch up on any machine."""


class Crowd:
    """Writers and readers of a topic, at it until they are told to stop."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._topic = stage.broker.topic(NAME)
        self.expected: dict[bytes | None, bytes | None] = {}
        self.reads = [0, 0]
        self.is_over = False

    async def write(self) -> None:
        dice = Random(1)
        for number in range(WRITES):
            if self.is_over:
                return
            key, value = f"{dice.randrange(20)}", f"{number} {'x' * 200}"
            await self._stage.publish(self._stage.draft(key, value))
            self.expected[key.encode()] = value.encode()

    async def read(self, reader: int) -> None:
        dice = Random(reader)
        while not self.is_over:
            known = set(self.expected)
            end = self._topic.partition(0).visible_offset
            await self._read_page(Offset(dice.randrange(end + 1)), end)
            messages, gaps = await read_all(self._topic, 0)
            assert gaps == []
            assert {message.key for message in messages} >= known
            self.reads[reader] += 1 if known else 0
            await asyncio.sleep(0)

    async def _read_page(self, offset: Offset, end: Offset) -> None:
        page = await read_page(
            FETCHING, self._topic, 0, offset=offset, count_max=10_000, bytes_max=1_000_000
        )
        offsets = [message.offset for message in page.messages]
        assert page.unreadable == ()
        assert page.next_offset >= end
        assert offsets == sorted(set(offsets))
        assert all(one >= offset for one in offsets)


def test_publishing_and_reading_go_on_meanwhile() -> None:
    """While segments are rewritten, read from the disk and replaced, nobody sees a gap."""

    async def main() -> None:
        stage = Stage(threads=2)
        topic = await stage.start()
        log = topic.partition(0).log
        # Cold: bytes come from a thread, so segments are replaced under the reader.
        stage.disk.evict("logs/*.log")
        crowd = Crowd(stage)
        tasks = [asyncio.create_task(one) for one in (crowd.write(), crowd.read(0), crowd.read(1))]
        removed = 0
        while min(crowd.reads) < 5 or (removed <= 100 and not tasks[0].done()):
            if len(log.sealed) < 4 and not tasks[0].done():
                news = topic.partition(0).watch()
                await asyncio.wait([news, tasks[0]], return_when=asyncio.FIRST_COMPLETED)
                continue
            (result,) = await stage.broker.compactor.compact(topic)
            assert result.error is None
            removed += result.records_removed
        crowd.is_over = True
        await asyncio.gather(*tasks)

        assert removed > 100
        assert await state_of(topic) == crowd.expected
        topic = await stage.restart()
        assert await state_of(topic) == crowd.expected
        await stage.broker.stop()

    run(main())


def test_stopping_and_deleting_end_a_compaction() -> None:
    """The thread at it is called off, and no file of it is left in another topic's way."""

    async def main() -> None:
        for is_deleted in (False, True):
            stage = Stage(threads=1)
            topic = await stage.start()
            for n in range(100):
                await stage.publish(stage.draft("k", f"{n}" + "v" * 100))
            begun, may_go_on = threading.Event(), threading.Event()

            def hold(path: str, begun: threading.Event, may_go_on: threading.Event) -> None:
                if ".cleaned." in path:
                    begun.set()
                    may_go_on.wait(HANGS_SECONDS)

            stage.disk.delay_sync(lambda path: hold(path, begun, may_go_on))  # noqa: B023
            asked = asyncio.create_task(stage.broker.compactor.compact(topic))
            await asyncio.to_thread(begun.wait, HANGS_SECONDS)
            if is_deleted:
                stage.broker.delete_topic(NAME)
                again = stage.broker.create_topic(
                    NAME, partitions=1, settings={"cleanup_policy": "compact"}
                )
                await stage.publish(stage.draft("new", "1"))
                may_go_on.set()
                (result,) = await asked
                assert await state_of(again) == {b"new": b"1"}
            else:
                stopping = asyncio.create_task(stage.broker.stop())
                await asyncio.sleep(0)
                may_go_on.set()
                await stopping
                (result,) = await asked
            assert result.error is not None
            stage.disk.delay_sync(None)
            if is_deleted:
                await stage.broker.stop()
            stage.disk = stage.disk.kill()
            topic = await stage.start()
            assert len(await state_of(topic)) == 1
            await stage.broker.stop()

    run(main())


@pytest.mark.parametrize("path", ["*.cleaned.*", "*compaction.*", "*producers.*", "logs/*/0"])
def test_a_disk_that_fails_or_is_full_leaves_the_log_as_good_as_before(path: str) -> None:
    """The result says what went wrong, publishing goes on, and the next try succeeds."""

    async def main() -> None:
        for is_full in (False, True):
            stage = Stage()
            topic = await stage.start()
            for n in range(100):
                await stage.publish(stage.draft(f"{n % 3}", f"{n}" + "v" * 100))
            await topic.partition(0).roll()
            if is_full:
                stage.disk.fill_up(path_glob=path)
            else:
                stage.disk.fail_sync(path)
            (result,) = await stage.broker.compactor.compact(topic)
            assert (result.error is None) == (is_full and path == "logs/*/0")
            stage.disk.heal()
            assert len(await state_of(topic)) == 3
            await stage.publish(stage.draft("0", "after"))
            (result,) = await stage.broker.compactor.compact(topic)
            assert result.error is None
            assert (await state_of(topic))[b"0"] == b"after"
            stage.disk = stage.disk.crash()
            topic = await stage.start()
            assert (await state_of(topic))[b"0"] == b"after"
            assert len((await read_all(topic, 0))[0]) == 3
            await stage.broker.stop()

    run(main())


@pytest.mark.parametrize("seed", [None, 1, 2], ids=lambda seed: f"torn-{seed}")
def test_a_broker_that_dies_at_any_operation_of_a_compaction(seed: int | None) -> None:
    """It comes back with the last value of every key and with what it knew of its producers."""

    async def live(stage: Stage, stamp: ProducerStamp, drafts: list[Draft]) -> None:
        topic = await stage.start()
        again = await stage.publish(*drafts, stamp=stamp)
        state = await state_of(topic)

        assert again.is_duplicate
        assert set(state) == {b"k0", b"k1", b"k2"}
        assert state[b"k0"] == b"end"
        (result,) = await stage.broker.compactor.compact(topic)
        assert result.error is None
        assert len((await read_all(topic, 0))[0]) == 3
        await stage.broker.stop()

    async def die(stage: Stage, operation: int) -> tuple[ProducerStamp, list[Draft], bool]:
        topic = await stage.start()
        stamp = stage.broker.init_producer()
        drafts = [stage.draft(f"k{n % 3}", f"{n}" + "v" * 300) for n in range(9)]
        await stage.publish(*drafts, stamp=stamp)
        for n in range(30):
            await stage.publish(stage.draft(f"k{n % 3}", f"{n}" + "w" * 300))
        await stage.publish(stage.draft("k0", "end"))
        stage.disk.fail_at(stage.disk.operations + operation)
        try:
            await stage.broker.compactor.compact(topic)
            stage.disk.free_bytes()
        except CrashError:
            return stamp, drafts, True
        return stamp, drafts, False

    for operation in range(1, 1_000):
        stage = Stage()
        outcome: list[tuple[ProducerStamp, list[Draft], bool]] = []

        async def first(
            stage: Stage = stage, operation: int = operation, outcome: list[Any] = outcome
        ) -> None:
            outcome.append(await die(stage, operation))

        run(first())
        stamp, drafts, is_dead = outcome[0]
        if not is_dead:
            assert operation > 30
            return
        torn = None if seed is None else Random(seed * 1_000 + operation)
        stage.disk = stage.disk.kill() if seed == 2 else stage.disk.crash(torn=torn)
        run(live(stage, stamp, drafts))
