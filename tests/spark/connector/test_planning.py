"""Tasks get whole partitions, or even ranges if asked for; everything once, always the same."""

from hypothesis import given
from hypothesis import strategies as st

from goqueue.spark.connector.option_places import Offsets
from goqueue.spark.connector.planning import (
    TASK_ROWS_MIN,
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
def test_every_row_is_read_once_by_as_many_tasks_as_asked_for(
    places: dict[str, dict[int, tuple[int, int]]], tasks_min: int, most: int | None
) -> None:
    start, end = offsets_of(places)
    ranges = ranges_between(start, end)
    rows = rows_between(start, end)

    tasks = share_out(ranges, tasks_min=tasks_min, rows_per_task_max=most)

    sizes = [sum(one.rows for one in task) for task in tasks]
    flat = [one for task in tasks for one in task]
    has_cuts = len(flat) > len(ranges)
    assert sum(sizes) == rows
    assert rows_in(flat) == rows_in(ranges)
    assert len(tasks) >= min(tasks_min, rows)
    assert not has_cuts or max(sizes) - min(sizes) <= 1
    assert most is None or not sizes or max(sizes) <= most
    assert all(sizes)
    assert share_out(ranges, tasks_min=tasks_min, rows_per_task_max=most) == tasks


LARGE = st.lists(st.integers(1, 20 * TASK_ROWS_MIN), min_size=1, max_size=12)


@given(LARGE, st.integers(1, 12), st.none() | st.integers(TASK_ROWS_MIN, 30 * TASK_ROWS_MIN))
def test_a_partition_is_cut_only_where_that_is_asked_for(
    sizes: list[int], tasks_min: int, most: int | None
) -> None:
    """The order of a key is that of its partition, so a whole one must stay in one task."""
    ranges = ranges_between({}, {"t": dict(enumerate(sizes))})
    must_cut = tasks_min > len(sizes) or (most is not None and max(sizes) > most)

    found = [one for task in share_out(ranges) for one in task]
    asked = share_out(ranges, tasks_min=tasks_min, rows_per_task_max=most)

    assert sorted(found, key=lambda one: one.partition) == ranges
    if not must_cut:
        flat = [one for task in asked for one in task]
        assert sorted(flat, key=lambda one: one.partition) == ranges


def test_large_partitions_have_tasks_of_their_own() -> None:
    ranges = ranges_between({}, {"t": {0: 900_000, 1: 1, 2: 300_000, 3: 200_000}})

    tasks = share_out(ranges)

    assert [[one.partition for one in task] for task in tasks] == [[0], [2], [3], [1]]


def test_few_rows_of_many_partitions_share_a_task() -> None:
    """A task costs more than a few rows."""
    ranges = ranges_between({}, {"t": dict.fromkeys(range(100), 10)})

    assert len(share_out(ranges)) == 1


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
