"""Starting a broker costs no more when its topics are long."""

import pytest

from goqueue.base.ids import Position
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.runtime import partition as partition_module
from goqueue.testing.file import MemoryFile
from tests.runtime.rig import Rig, run


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("window", ["0", "1m"], ids=["plain", "dedup"])
def test_start_reads_no_more_of_a_long_topic(
    window: str, monkeypatch: pytest.MonkeyPatch, *, is_clean: bool
) -> None:
    """Trap B7: the indexes and tails of the newest segments, the snapshot, the dedup window."""
    monkeypatch.setattr(partition_module, "SNAPSHOT_EVERY_FRAMES", 10)
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
            await topic.publish(0, memoryview(frame_drafts([draft], stamp)))
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
