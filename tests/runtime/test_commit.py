"""Group commit: many acks for one sync, and nobody waits for ever."""

import asyncio
import threading
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from goqueue.base.errors import (
    GoQueueError,
    ShuttingDownError,
    StorageFailedError,
    TopicNotFoundError,
)
from goqueue.config.model import BrokerConfig
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.runtime import commit
from goqueue.runtime.broker import Broker
from goqueue.runtime.commit import Committer
from goqueue.runtime.log.places import place_rows
from goqueue.runtime.maintenance import Maintenance
from goqueue.testing.clock import FakeClock
from goqueue.testing.disk import CrashError, MemoryDisk
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, read_all, run


class Partitionlike:
    """Something to sync whose syncs do what a test wants."""

    def __init__(self, sync: Callable[[], None] = lambda: None) -> None:
        self.sync = sync
        self.begun = 0
        self.is_writing = False
        """Whether the system was asked to begin to write before the sync."""
        self.errors: list[StorageFailedError | None] = []

    def unsynced_bytes(self) -> int:
        return 0

    def begin_commit(self) -> tuple[Any, Callable[[], None]]:
        self.begun += 1
        return self, lambda: None

    def begin(self) -> None:
        self.is_writing = True

    def run(self) -> None:
        self.sync()

    def finish_commit(
        self, commit: object, error: StorageFailedError | None, *, seconds: float
    ) -> None:
        assert commit is self
        assert seconds >= 0
        self.errors.append(error)


class Gone(Partitionlike):
    def begin_commit(self) -> tuple[Any, Callable[[], None]]:
        raise TopicNotFoundError("gone")


def fail_with(error: BaseException) -> Callable[[], None]:
    def sync() -> None:
        raise error

    return sync


def test_syncs_of_several_are_begun_before_the_first_is_waited_for() -> None:
    """What is synced second is on its way while the first sync runs; each has its own outcome."""
    seen: list[tuple[bool, bool]] = []

    async def story() -> None:
        committer = Committer(threads=0)
        second = Partitionlike(fail_with(StorageFailedError("a bad block")))
        first = Partitionlike(lambda: seen.append((first.is_writing, second.is_writing)))
        assert committer.is_free(1, 2)
        errors = committer.sync_all_here([first, Gone(), second])

        assert [type(error) for error in errors] == [
            type(None),
            TopicNotFoundError,
            StorageFailedError,
        ]
        assert (first.errors, len(second.errors)) == ([None], 1)
        assert not committer.is_free(1), "a request right behind"

    asyncio.run(story())
    assert seen == [(False, True)]


def test_one_sync_covers_everything_that_is_waiting() -> None:
    """A hundred publishes cost a sync or two, not a hundred."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        topic = rig.broker.create_topic("orders", partitions=1)
        before = topic.partition(0).log.counters.syncs
        raw = memoryview(frame_drafts([Draft(value=b"v")]))
        await asyncio.gather(*(topic.publish(PUBLISHING, 0, raw) for _ in range(100)))
        assert topic.partition(0).log.counters.syncs - before <= 2
        assert topic.partition(0).log.durable_offset == 100

    run(main())


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("error", [StorageFailedError("disk"), ValueError("bug"), OSError("bug")])
def test_a_sync_that_fails_is_told_to_all_who_wait(threads: int, error: Exception) -> None:
    """Also if it fails in a way nobody thought of; other partitions are not concerned."""

    async def main() -> None:
        committer = Committer(threads=threads)
        bad, good, gone = Partitionlike(fail_with(error)), Partitionlike(), Gone()
        waiting = [committer.durable(one) for one in (bad, good, bad, gone)]
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in outcomes] == [
            StorageFailedError,
            type(None),
            StorageFailedError,
            TopicNotFoundError,
        ]
        assert (bad.begun, good.begun) == (1, 1)
        assert good.errors == [None]
        await committer.durable(good)
        await committer.stop()
        with pytest.raises(ShuttingDownError):
            committer.durable(good)

    run(main())


@pytest.mark.parametrize("threads", [0, 2])
def test_a_sync_cut_short_leaves_nobody_waiting(threads: int) -> None:
    """Whatever ends it."""

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        committer = Committer(threads=threads)
        with pytest.raises(StorageFailedError):
            await committer.durable(Partitionlike(fail_with(CrashError("dead"))))
        await committer.stop()

    run(main())


@pytest.mark.parametrize("seed", range(5))
def test_sync_here_and_durable_do_the_same(seed: int) -> None:
    """Whatever a sync does: what was asked for is durable, or both say why it is not."""
    random = Random(seed)

    async def ask(committer: Committer, owner: Partitionlike, *, is_here: bool) -> object:
        try:
            if is_here:
                committer.sync_here(owner)
            else:
                await committer.durable(owner)
        except GoQueueError as error:
            return error.code, error.message
        return None

    async def main() -> None:
        here, shared = Committer(threads=0), Committer(threads=random.randrange(3))
        for _ in range(50):
            error = random.choice([None, StorageFailedError("disk"), OSError("bug")])
            kind = Gone if random.random() < 0.1 else Partitionlike
            sync = (lambda: None) if error is None else fail_with(error)
            first, second = kind(sync), kind(sync)
            outcome = await ask(here, first, is_here=True)
            assert outcome == await ask(shared, second, is_here=False)
            assert first.begun == second.begun
            assert list(map(str, first.errors)) == list(map(str, second.errors))
        await here.stop()
        await shared.stop()

    run(main())


def test_what_comes_during_a_sync_gets_the_next() -> None:
    """A sync covers only what was there when it began."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        committer = Committer(threads=1)
        late: list[asyncio.Future[None]] = []
        asked = asyncio.Event()

        def ask_again() -> None:
            if not late:
                late.append(committer.durable(owner))
                asked.set()

        def sync() -> None:
            loop.call_soon_threadsafe(ask_again)

        owner = Partitionlike(sync)
        await committer.durable(owner)
        await asked.wait()
        await late[0]
        assert owner.begun == 2
        await committer.stop()

    run(main())


def test_a_disk_that_is_quick_again_is_found_out() -> None:
    """One sync that was quick, even in a thread, and the loop does the next by itself.

    A busy loop lets go of Python's lock late: most syncs in threads seem slow, and tell nothing.
    """

    async def main() -> None:
        places: list[bool] = []
        here = threading.get_ident()
        owner = Partitionlike(lambda: places.append(threading.get_ident() == here))
        committer = Committer(threads=1)
        committer._sync_seconds = 1.0  # noqa: SLF001 - as if many had seemed slow
        await committer.durable(owner)
        await committer.durable(owner)
        assert places == [False, True]

        # Done here, a sync takes as long as it seems: behind slow ones it goes to a thread again.
        committer._learn(1.0, is_exact=True)  # noqa: SLF001
        await committer.durable(owner)
        assert places == [False, True, False]
        await committer.stop()

    run(main())


@pytest.mark.parametrize("threads", [0, 3])
def test_syncs_rolls_retention_and_repeats_get_along(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything at once, in threads: every ack is true and every offset has one message.

    The messages carry an old time, so that retention seals and deletes all the while.
    """
    # Syncs go to threads only where they are slow, and nothing is quicker than that.
    monkeypatch.setattr(commit, "INLINE_SYNC_SECONDS_MAX", -1.0)

    async def main() -> None:
        disk = MemoryDisk()
        config = BrokerConfig(sync_threads=threads)
        broker = Broker(config, disk, FakeClock())
        await broker.start()
        topic = broker.create_topic("orders", partitions=3, settings={"segment_bytes": 4_096})
        stamps = [broker.init_producer() for _ in range(3)]
        places: dict[tuple[int, int], bytes] = {}

        async def produce(number: int) -> None:
            stamp = stamps[number]
            for count in range(40):
                value = b"%d-%d " % (number, count) + b"." * 700
                raw = memoryview(frame_drafts([Draft(value=value)], stamp))
                published, again = await asyncio.gather(
                    topic.publish(PUBLISHING, number, raw), topic.publish(PUBLISHING, number, raw)
                )
                assert place_rows(published, 1) == place_rows(again, 1)
                (place,) = place_rows(published, 1)
                assert places.setdefault(place, value) == value
                stamp = stamp.after(1)

        async def maintain() -> None:
            for _ in range(200):
                Maintenance(broker).keep(topic)
                await asyncio.sleep(0)

        await asyncio.gather(*(produce(number) for number in range(3)), maintain())
        await broker.stop()
        again = Broker(config, disk.crash(), FakeClock())
        await again.start()
        for number in range(3):
            messages, gaps = await read_all(again.topic("orders"), number)
            assert gaps == []
            start = again.topic("orders").partition(number).log.start_offset
            assert {(number, one.offset): one.value for one in messages} == {
                (at, offset): value
                for (at, offset), value in places.items()
                if at == number and offset >= start
            }
        await again.stop()

    run(main())
