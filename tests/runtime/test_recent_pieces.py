"""Pieces of logs kept for the next poll: within a bound, and never what the log no longer holds."""

import pyarrow as pa

from goqueue.base.ids import Offset
from goqueue.core.record.batch import ALIGNMENT_BYTES
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.queue.recent_pieces import BATCH_BYTES, FRAME_BYTES, RecentPieces, StoredPiece
from tests.runtime.rig import Rig, run

MESSAGES = 40
VALUE = b"x" * 1_000


async def orders(**settings: object) -> tuple[Rig, Partition]:
    rig = Rig()
    await rig.start()
    rig.broker.create_topic("orders", partitions=1, settings=settings)
    for _ in range(MESSAGES):
        await rig.publish("orders", 0, [VALUE], producer="a")
    return rig, rig.broker.topic("orders").partition(0)


async def read(recent: RecentPieces, partition: Partition, offset: int) -> StoredPiece:
    end = partition.visible_offset
    return await recent.read(partition, Offset(offset), end_offset=end, bytes_max=5_000)


def test_what_was_read_is_there_for_any_offset_in_it() -> None:
    """The log is read once for all that lies in a piece."""

    async def main() -> None:
        _, partition = await orders()
        recent = RecentPieces(1_000_000)
        first = await read(recent, partition, 0)

        assert first.end_offset > 2
        assert await read(recent, partition, 2) is first
        assert (await read(recent, partition, first.end_offset)).start_offset == first.end_offset
        recent.drop(partition, first)
        assert await read(recent, partition, 0) is not first

    run(main())


def test_the_oldest_go_when_there_is_no_room() -> None:
    """A bound in bytes holds for all partitions together."""

    async def main() -> None:
        _, partition = await orders()
        recent = RecentPieces(25_000)
        first = await read(recent, partition, 0)
        offset = 0
        while offset < MESSAGES:
            offset = (await read(recent, partition, offset)).end_offset

        assert await read(recent, partition, 0) is not first

    run(main())


def test_a_piece_of_a_segment_that_is_gone_is_not_found() -> None:
    """Retention and compaction count at once."""

    async def main() -> None:
        rig, partition = await orders(segment_bytes=10_000, retention_bytes=15_000)
        recent = RecentPieces(1_000_000)
        stale = await read(recent, partition, 0)
        rig.keep("orders")
        start = partition.log.start_offset

        assert start >= stale.end_offset
        assert not partition.log.holds(stale.segment)
        assert (await read(recent, partition, start)) is not stale

    run(main())


def test_the_bound_counts_what_small_frames_cost() -> None:
    """A thousand single messages take several times their bytes, and the bound knows."""

    async def main() -> None:
        rig, partition = await orders()
        for _ in range(200):
            await rig.publish("orders", 0, [b"small"], producer="a")
        recent = RecentPieces(1_000_000)
        end = partition.visible_offset
        for offset in range(MESSAGES, end, 10):
            await recent.read(
                partition, Offset(offset), end_offset=Offset(offset + 10), bytes_max=9
            )

        assert recent.size_bytes > 20 * FRAME_BYTES
        small = RecentPieces(50 * FRAME_BYTES)
        for offset in range(MESSAGES, end):
            await small.read(partition, Offset(offset), end_offset=end, bytes_max=1)
        assert small.size_bytes <= 50 * FRAME_BYTES

    run(main())


def test_a_kept_piece_does_not_keep_what_was_read_around_it() -> None:
    """One message of a chunk that is wanted again keeps its own bytes, not those of the chunk."""

    async def main() -> None:
        rig, partition = await orders()
        await rig.publish("orders", 0, [b"row %d" % row for row in range(50)], producer="a")
        recent = RecentPieces(1_000_000)
        first, end = Offset(MESSAGES - 1), Offset(MESSAGES + 1)
        piece = await recent.read(partition, first, end_offset=end, bytes_max=100_000)
        batch = piece.frames[-1]
        values = batch.batch.column("value").to_pylist()
        before = recent.size_bytes
        recent.keep(partition, piece)

        assert before - recent.size_bytes > 0
        held = memoryview(batch.frame.obj).nbytes
        assert held < 2 * sum(len(one.frame) for one in piece.frames)
        assert recent.size_bytes == piece.size
        assert pa.py_buffer(batch.frame).address % ALIGNMENT_BYTES == 0
        assert batch.batch.column("value").to_pylist() == values
        assert piece.size > BATCH_BYTES
        assert await recent.read(partition, first, end_offset=end, bytes_max=1) is piece
        recent.drop(partition, piece)
        assert recent.size_bytes == 0

    run(main())
