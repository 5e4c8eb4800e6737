"""A shelf: numbers in order, the oldest leave, and two that are told the same are the same."""

import random

from goqueue.base.limits import SHELF_BYTES_MAX, SHELF_FRAMES_MAX, SHELF_ROW_BYTES
from goqueue.core.delivery.shelf import Shelf, room_for
from goqueue.core.record.batch import BatchFields


def test_things_have_numbers_in_their_order() -> None:
    """What is put first is number 0; a number that was never given has nothing."""
    shelf: Shelf[str] = Shelf()

    assert [shelf.put(thing, 1) for thing in ("a", "b")] == [[], []]

    assert shelf.next_number == 2
    assert [shelf.get(number) for number in (0, 1, 2, -1)] == ["a", "b", None, None]


def test_the_oldest_make_room() -> None:
    """Bytes are bounded; numbers are never given twice."""
    shelf: Shelf[str] = Shelf()
    shelf.put("a", SHELF_BYTES_MAX // 2)
    shelf.put("b", SHELF_BYTES_MAX // 2)

    assert shelf.put("c", 1) == ["a"]
    assert shelf.put("d", SHELF_BYTES_MAX // 2) == ["b"]
    assert [shelf.get(number) for number in range(5)] == [None, None, "c", "d", None]


def test_the_number_of_things_is_bounded() -> None:
    """Small things take memory, too."""
    shelf: Shelf[int] = Shelf()

    left = [gone for number in range(SHELF_FRAMES_MAX + 3) for gone in shelf.put(number, 1)]

    assert left == [0, 1, 2]


def test_what_is_too_large_leaves_with_all_others() -> None:
    """It has had a number; nothing is there afterwards."""
    shelf: Shelf[str] = Shelf()
    shelf.put("a", 1)

    assert shelf.put("b", SHELF_BYTES_MAX + 1) == ["a", "b"]
    assert shelf.put("c", 1) == []
    assert [shelf.get(number) for number in range(3)] == [None, None, "c"]


def test_both_ends_count_alike() -> None:
    """Whatever is put, a naive list of the last things agrees."""
    dice = random.Random(7)
    for _ in range(50):
        shelf: Shelf[int] = Shelf()
        put: list[tuple[int, int]] = []
        for number in range(dice.randrange(200)):
            size = dice.randrange(1, SHELF_BYTES_MAX // 20)
            shelf.put(number, size)
            put.append((number, size))
        total, expected = 0, set()
        for number, size in reversed(put):
            total += size
            if total > SHELF_BYTES_MAX:
                break
            expected.add(number)
        assert {number for number, _ in put if shelf.get(number) is not None} == expected


def test_a_frame_counts_what_it_takes_unpacked() -> None:
    """The sender chooses how well a batch is compressed; whoever keeps it holds every message."""
    plain = BatchFields(rows=10, column_set=0, compression=None, raw_size=900, first_timestamp_us=0)
    packed = BatchFields(
        rows=10, column_set=0, compression="zstd", raw_size=100_000, first_timestamp_us=0
    )

    assert room_for(plain, 1_000) == 1_000 + 10 * SHELF_ROW_BYTES
    assert room_for(packed, 1_000) == 100_000 + 10 * SHELF_ROW_BYTES
