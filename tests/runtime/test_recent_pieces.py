"""Pieces of logs kept for the next poll: within a bound, and never what the log no longer holds."""

from goqueue.base.ids import Offset
from goqueue.runtime.partition import Partition
from goqueue.runtime.recent_pieces import RecentPieces, StoredPiece
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
