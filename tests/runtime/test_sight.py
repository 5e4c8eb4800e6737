"""What plain readers get while messages wait: all the others, and the news of what was passed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.base.units import HOUR_MS
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.runtime.log.fetch import Fetched, FetchPart, fetch
from goqueue.runtime.log.isolation import Isolation, look, ranges_of
from tests.runtime.grants import FETCHING, PUBLISHING
from tests.runtime.rig import Rig, messages_in, run


async def publish(rig: Rig, pattern: str) -> None:
    """Publish one batch: a star is a message that waits, a dot one that does not."""
    due_us = rig.clock.now_us() + HOUR_MS * 1_000
    drafts = [
        Draft(
            value=b"SECRET" if sign == "*" else b"plain",
            timestamp_us=rig.clock.now_us(),
            deliver_at_us=due_us if sign == "*" else None,
        )
        for sign in pattern
    ]
    await rig.broker.topic("t").publish(PUBLISHING, 0, memoryview(frame_drafts(drafts)))


async def begin() -> Rig:
    rig = Rig()
    await rig.start()
    rig.broker.create_topic("t", partitions=1)
    return rig


async def fetch_one(
    rig: Rig, offset: int, *, show: bool = False, end: int | None = None
) -> Fetched:
    (outcome,) = await fetch(
        FETCHING,
        rig.broker.topic("t"),
        [FetchPart(partition=0, offset=offset, end_offset=end)],
        bytes_max=100_000,
        wait_ms=0,
        lens=Isolation(show_delayed=show),
    )
    assert isinstance(outcome, Fetched)
    return outcome


def offsets_of(fetched: Fetched) -> list[int]:
    return [message.offset for message in messages_in("t", 0, fetched.frames)]


def test_bytes_that_are_not_due_never_leave() -> None:
    """From any offset, also one behind hidden messages of the same frame, no byte of them goes."""

    async def main() -> None:
        rig = await begin()
        await publish(rig, "*.**.....*")
        await publish(rig, "*")
        await publish(rig, ".")
        for offset in range(12):
            fetched = await fetch_one(rig, offset)

            assert b"SECRET" not in bytes(fetched.frames)
            visible = [at for at in (1, 4, 5, 6, 7, 8, 11) if at >= offset]
            assert [at for at in offsets_of(fetched) if at >= offset] == visible
            assert fetched.next_offset == 12
            passed = {at for start, end in fetched.hidden for at in range(start, end)}
            assert passed == {at for at in (0, 2, 3, 9, 10) if at >= offset}
        shown = await fetch_one(rig, 0, show=True)
        assert offsets_of(shown) == list(range(12))
        assert shown.hidden == ()
        await rig.stop()

    run(main())


def test_a_fetch_of_hidden_messages_moves_on_and_says_so() -> None:
    """Nothing to give is still news: the reader gets on and knows what it passed."""

    async def main() -> None:
        rig = await begin()
        await publish(rig, "*****")
        fetched = await fetch_one(rig, 0)

        assert len(fetched.frames) == 0
        assert fetched.hidden == ((0, 5),)
        assert fetched.next_offset == 5
        rig.clock.advance(HOUR_MS)
        rig.broker.delays.timer.tick()
        again = await fetch_one(rig, 0)
        assert offsets_of(again) == [0, 1, 2, 3, 4]
        assert again.hidden == ()
        await rig.stop()

    run(main())


def test_what_needs_no_cutting_is_not_touched() -> None:
    """Where nothing of a range is hidden the bytes of the log go out as they were read."""

    async def main() -> None:
        rig = await begin()
        await publish(rig, "." * 10)
        await publish(rig, "*")
        partition = rig.broker.topic("t").partition(0)
        piece = await partition.read(Offset(0), end_offset=Offset(10), bytes_max=10_000)
        sight = look(partition.queue, piece, Offset(0))

        assert sight.frames is piece.frames
        assert sight.hidden == ()
        await rig.stop()

    run(main())


def test_a_reply_names_a_bounded_number_of_ranges() -> None:
    """Every other message hidden: the reply ends early, and reading on gives the rest."""

    async def main() -> None:
        rig = await begin()
        await publish(rig, "*." * 50)
        partition = rig.broker.topic("t").partition(0)
        offset = Offset(0)
        seen: list[int] = []
        passed: list[int] = []
        while offset < 100:
            piece = await partition.read(offset, end_offset=Offset(100), bytes_max=100_000)
            sight = look(partition.queue, piece, offset, ranges_max=7)
            assert len(sight.hidden) <= 7
            found = messages_in("t", 0, sight.frames)
            seen += [message.offset for message in found if message.offset >= offset]
            passed += [start for start, _ in sight.hidden]
            assert sight.next_offset > offset
            offset = sight.next_offset

        assert seen == list(range(1, 100, 2))
        assert passed == list(range(0, 100, 2))
        await rig.stop()

    run(main())


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.text("*.", min_size=1, max_size=12), min_size=1, max_size=6),
    cancelled=st.sets(st.integers(0, 60), max_size=10),
    start=st.integers(0, 20),
)
def test_seen_and_hidden_together_are_everything(
    batches: list[str], cancelled: set[int], start: int
) -> None:
    """Whatever waits or was cancelled: each offset is seen or named, never both, never neither."""

    async def main() -> None:
        rig = await begin()
        for batch in batches:
            await publish(rig, batch)
        partition = rig.broker.topic("t").partition(0)
        waiting = [at for at, sign in enumerate("".join(batches)) if sign == "*"]
        for at in sorted(cancelled & set(waiting)):
            await rig.broker.delays.cancel("t", 0, at)
        total = int(partition.log.end_offset)
        offset = min(start, total)
        fetched = await fetch_one(rig, offset)
        seen = [at for at in offsets_of(fetched) if at >= offset]
        passed = [at for first, end in fetched.hidden for at in range(first, end)]

        assert sorted(seen + passed) == list(range(offset, total))
        assert set(passed) == {at for at in waiting if at >= offset}
        await rig.stop()

    run(main())


@pytest.mark.parametrize("hidden", [[], [3], [0, 1, 2], [5, 7, 9]])
def test_ranges_are_what_the_bitmap_holds(hidden: list[int]) -> None:
    """From an offset on, as half-open ranges."""
    ranges = ranges_of(BitMap64(hidden), Offset(1))

    assert [at for start, end in ranges for at in range(start, end)] == [at for at in hidden if at]
