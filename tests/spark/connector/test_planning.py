"""Tasks get even ranges, everything once, and always the same."""

from hypothesis import given
from hypothesis import strategies as st

from goqueue.spark.connector.options import Offsets
from goqueue.spark.connector.planning import (
    TASK_ROWS,
    OffsetRange,
    admit,
    from_json,
    ranges_between,
    rows_between,
    share_out,
    to_json,
)

PLACES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 500), st.integers(0, 500))),
)


def offsets_of(places: dict[str, dict[int, tuple[int, int]]]) -> tuple[Offsets, Offsets]:
    start = {topic: {p: one[0] for p, one in parts.items()} for topic, parts in places.items()}
    end = {topic: {p: sum(one) for p, one in parts.items()} for topic, parts in places.items()}
    return start, end


def rows_in(ranges: list[OffsetRange]) -> set[tuple[str, int, int]]:
    return {
        (one.topic, one.partition, offset)
        for one in ranges
        for offset in range(one.start_offset, one.end_offset)
    }


@given(PLACES, st.integers(1, 40), st.none() | st.integers(1, 300))
def test_every_row_is_read_once_by_even_tasks(
    places: dict[str, dict[int, tuple[int, int]]], tasks_min: int, most: int | None
) -> None:
    start, end = offsets_of(places)
    ranges = ranges_between(start, end)
    rows = rows_between(start, end)

    tasks = share_out(ranges, tasks_min=tasks_min, rows_per_task_max=most)

    sizes = [sum(one.rows for one in task) for task in tasks]
    flat = [one for task in tasks for one in task]
    assert sum(sizes) == rows
    assert rows_in(flat) == rows_in(ranges)
    assert len(tasks) >= min(tasks_min, rows)
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert most is None or not sizes or max(sizes) <= most
    assert share_out(ranges, tasks_min=tasks_min, rows_per_task_max=most) == tasks


def test_few_rows_of_many_partitions_share_a_task() -> None:
    """A task costs more than a few rows."""
    ranges = ranges_between({}, {"t": dict.fromkeys(range(100), 10)})

    assert len(share_out(ranges)) == 1


def test_many_rows_of_one_partition_are_cut() -> None:
    tasks = share_out(ranges_between({}, {"t": {0: 4 * TASK_ROWS}}))

    assert [one.rows for task in tasks for one in task] == [TASK_ROWS] * 4


@given(PLACES, st.integers(1, 400))
def test_a_micro_batch_takes_shares_and_always_gets_on(
    places: dict[str, dict[int, tuple[int, int]]], rows_max: int
) -> None:
    """No partition is passed over, and the limit is kept but for one row of each."""
    start, latest = offsets_of(places)
    partitions = sum(len(parts) for parts in places.values())

    end = admit(start, latest, rows_max=rows_max)

    taken = rows_between(start, end)
    assert taken <= max(rows_max, 0) + partitions
    assert all(
        start[topic][p] + (latest[topic][p] > start[topic][p]) <= end[topic][p] <= latest[topic][p]
        for topic in places
        for p in places[topic]
    )


def test_a_log_that_began_anew_is_read_from_its_beginning() -> None:
    [found] = ranges_between({"t": {0: 90}}, {"t": {0: 9}})

    assert (found.start_offset, found.end_offset) == (0, 9)


@given(PLACES)
def test_offsets_survive_the_checkpoint(places: dict[str, dict[int, tuple[int, int]]]) -> None:
    start, _ = offsets_of(places)

    assert from_json(to_json(start)) == start
