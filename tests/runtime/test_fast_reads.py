"""What is read from the page cache is what a thread reads from the disk."""

from pathlib import Path
from random import Random

import pytest

from goqueue.base.ids import Offset, Position
from goqueue.config.model import BrokerConfig
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.runtime.broker import Broker
from goqueue.storage.local import LocalDisk
from goqueue.testing.clock import FakeClock
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import run

READS = 100


@pytest.mark.parametrize("seed", range(3))
def test_read_cached_and_a_read_in_a_thread_return_the_same(seed: int, tmp_path: Path) -> None:
    """Of a file, and of a partition of many segments: any offset, any size."""

    async def main() -> None:
        random = Random(seed)
        disk = LocalDisk(tmp_path)
        broker = Broker(BrokerConfig(sync_threads=0), disk, FakeClock())
        await broker.start()
        topic = broker.create_topic("orders", partitions=1, settings={"segment_bytes": 1 << 16})
        for _ in range(60):
            drafts = [Draft(value=random.randbytes(80)) for _ in range(random.choice([1, 9, 60]))]
            await topic.publish(PUBLISHING, 0, memoryview(frame_drafts(drafts)))
        partition = topic.partition(0)
        end = partition.visible_offset
        assert disk.reads_cached
        for _ in range(READS):
            offset, size = Offset(random.randrange(end)), random.randrange(1, 40_000)
            stop = Offset(random.randrange(offset + 1, end + 1))
            location = partition.reader.locate(offset, bytes_max=size)
            position = Position(location.position + random.randrange(100))
            cached = location.file.read_cached(position, size)
            assert cached is None or cached == location.file.read(position, size)
            piece = await partition.read(offset, end_offset=stop, bytes_max=size)
            disk.reads_cached = False
            assert await partition.read(offset, end_offset=stop, bytes_max=size) == piece
            disk.reads_cached = True
        await broker.stop()

    run(main())
