"""Starting a broker: what is read, by whom, and what is said when that fails."""

import threading
from collections.abc import Sequence

import msgspec
import pytest

from goqueue.base.errors import StorageFailedError
from goqueue.base.ids import Position
from goqueue.config.model import BrokerConfig
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.observability.logging import configure_logging
from goqueue.runtime.broker import Broker
from goqueue.runtime.log import partition_snapshots
from goqueue.runtime.log.partitions_start import PROGRESS_EVERY_MS, THREADS_MAX
from goqueue.storage.swap import SWAP_NAME
from goqueue.testing.disk import Operation
from goqueue.testing.file import MemoryFile
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, run


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("window", ["0", "1m"], ids=["plain", "dedup"])
def test_start_reads_no_more_of_a_long_topic(
    window: str, monkeypatch: pytest.MonkeyPatch, *, is_clean: bool
) -> None:
    """Trap B7: the indexes and tails of the newest segments, the snapshot, the dedup window."""
    monkeypatch.setattr(partition_snapshots, "SNAPSHOT_EVERY_FRAMES", 10)
    counts: list[int] = []
    read = MemoryFile.read

    def counting(file: MemoryFile, position: Position, size_max: int) -> bytes:
        content = read(file, position, size_max)
        counts[-1] += len(content)
        return content

    async def life(segments: int) -> None:
        rig = Rig()
        await rig.start()
        settings = {"segment_bytes": 4_096, "dedup_window_ms": window, "retention_ms": 0}
        topic = rig.broker.create_topic("orders", partitions=1, settings=settings)
        log = topic.partition(0).log
        stamp = rig.client("a").stamp
        while len(log.segments) < segments + 2:
            draft = Draft(
                value=b"." * 400,
                timestamp_us=rig.clock.now_us(),
                dedup_id=b"%d" % log.end_offset,
            )
            await topic.publish(PUBLISHING, 0, memoryview(frame_drafts([draft], stamp)))
            stamp = stamp.after(1)
            rig.clock.advance(10_000)
        if is_clean:
            await rig.stop()
        rig.recover_with(rig.disk.kill())
        counts.append(0)
        with monkeypatch.context() as patch:
            patch.setattr(MemoryFile, "read", counting)
            await rig.start()
        assert rig.broker.topic("orders").partition(0).ledger.judge(stamp, 1) is None
        await rig.stop()

    for segments in (3, 50):
        run(life(segments))

    # A killed broker replays what its last snapshot lacks, which is a few segments here or none.
    assert counts[1] <= counts[0] + 5 * 4_096


TOPICS = ("invoices", "orders", "refunds")
PARTITIONS = 6
WINDOW = {"dedup_window_ms": "1m"}


async def filled(rig: Rig) -> None:
    """Stop a broker that has topics with a message with a dedup id in each partition."""
    await rig.start()
    for name in TOPICS:
        topic = rig.broker.create_topic(name, partitions=PARTITIONS, settings=WINDOW)
        for number in range(PARTITIONS):
            await topic.publish_drafts(PUBLISHING, [(one_of(rig, number), number)])
    await rig.stop()
    rig.recover_with(rig.disk.kill())


def one_of(rig: Rig, number: int) -> Draft:
    dedup_id = b"id %d" % number
    return Draft(value=b"v", timestamp_us=rig.clock.now_us(), dedup_id=dedup_id)


def with_threads(rig: Rig, threads: int) -> Broker:
    return Broker(BrokerConfig(sync_threads=threads), rig.disk, rig.clock)


def test_partitions_are_opened_side_by_side() -> None:
    """As many as there are threads wait for the disk at once, none of them in the loop's thread."""

    async def main() -> None:
        rig = Rig()
        await filled(rig)
        meeting, met = threading.Barrier(THREADS_MAX), threading.Event()
        seen: set[threading.Thread] = set()

        def meet(path: str) -> None:
            if path.startswith("logs/") and path.endswith(".log"):
                seen.add(threading.current_thread())
                if not met.is_set():
                    meeting.wait(60)
                    met.set()

        rig.disk.delay_sync(meet)
        broker = with_threads(rig, THREADS_MAX)
        await broker.start()
        rig.disk.delay_sync(None)

        assert len(seen) == THREADS_MAX
        assert threading.main_thread() not in seen
        for name in TOPICS:
            topic = broker.topic(name)
            assert [one.name.partition for one in topic.partitions] == list(range(PARTITIONS))
            assert [one.log.end_offset for one in topic.partitions] == [1] * PARTITIONS
            (place,) = await topic.publish_drafts(PUBLISHING, [(one_of(rig, 4), 0)])
            assert place == (4, 0), "the repeat of a message in another partition"
        await broker.stop()

    run(main())


def test_without_threads_the_disk_sees_the_same_operations_in_the_same_order() -> None:
    """Whoever counts operations of the disk finds the same one at the same number again."""
    logs: list[Sequence[Operation]] = []

    async def main() -> None:
        rig = Rig()
        await filled(rig)
        await rig.start()
        logs.append([*rig.disk.log])
        await rig.stop()

    run(main())
    run(main())

    assert logs[0] == logs[1]
    synced = [one.path for one in logs[0] if one.path.endswith(".log")]
    in_order = [f"logs/{name}/{number}/" for name in TOPICS for number in range(PARTITIONS)]
    assert [path.rpartition("/")[0] + "/" for path in synced] == in_order


@pytest.mark.parametrize("threads", [0, 2], ids=["in the loop", "in threads"])
def test_every_partition_that_cannot_be_opened_is_named(
    threads: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The start fails once all were tried; what is mended by then starts as if nothing was."""
    bad = ["logs/invoices/1", "logs/orders/3", "logs/orders/4", "logs/refunds/5"]

    async def main() -> None:
        rig = Rig()
        await filled(rig)
        for directory in bad:
            rig.disk.open(f"{directory}/{SWAP_NAME}", create=True).append([b"not a note"])
        with pytest.raises(StorageFailedError) as raised:
            await with_threads(rig, threads).start()
        for directory in bad:
            rig.disk.remove(f"{directory}/{SWAP_NAME}")
        broker = with_threads(rig, threads)
        await broker.start()
        assert {len(topic.partitions) for topic in broker.topics.values()} == {PARTITIONS}
        await broker.stop()

        message = raised.value.message
        assert message.startswith("cannot open 4 of 18 partitions: invoices/1: ")
        assert "orders/4: " in message
        assert message.endswith("and 1 more, named in the log")

    run(main())

    printed = capsys.readouterr().err
    for directory in bad:
        assert directory.removeprefix("logs/") in printed


@pytest.mark.parametrize("threads", [0, 2], ids=["in the loop", "in threads"])
def test_a_file_where_a_partition_should_be_is_named(threads: int) -> None:
    """Also when it is the directory itself that cannot be had."""

    async def main() -> None:
        rig = Rig()
        await filled(rig)
        rig.disk.remove_tree("logs/orders/2")
        rig.disk.open("logs/orders/2", create=True)
        with pytest.raises(StorageFailedError, match="cannot open 1 of 18 partitions: orders/2: "):
            await with_threads(rig, threads).start()

    run(main())


def test_a_long_start_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Every few seconds there is a line with how many of how many partitions are open."""

    async def main() -> None:
        rig = Rig()
        await filled(rig)
        rig.disk.delay_sync(lambda _: rig.clock.advance(PROGRESS_EVERY_MS // 4))
        await rig.start()
        rig.disk.delay_sync(None)
        await rig.stop()

    configure_logging(level="info", style="json")
    try:
        run(main())
    finally:
        configure_logging(level="warning", style="json")

    events = [msgspec.json.decode(line) for line in capsys.readouterr().err.splitlines()]
    told = [event for event in events if event["event"] == "opening partitions"]
    opened = [event["opened"] for event in told]
    assert 1 < len(opened) < len(TOPICS) * PARTITIONS
    assert opened == sorted(set(opened))
    assert {event["total"] for event in told} == {len(TOPICS) * PARTITIONS}
