"""A filter is taken only if it is applied to the letter, as Python itself compares."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from goqueue.client.arrow import SCHEMA
from goqueue.spark.connector.filters import Pushed, push
from goqueue.spark.connector.planning import OffsetRange

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 12
COMPARE: dict[Any, Callable[[Any, Any], bool]] = {
    EqualTo: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
    In: lambda a, b: a in b,
}


def rows() -> list[dict[str, Any]]:
    return [
        {
            "topic": "t",
            "partition": 1,
            "offset": number,
            "timestamp": START + timedelta(seconds=number * 7 % 5),
            "key": None if number % 3 == 0 else b"k%d" % (number % 4),
            "value": b"v",
            "headers": None,
            "priority": number % 5,
            "deliver_at": None,
        }
        for number in range(ROWS)
    ]


def values_of(column: str) -> st.SearchStrategy[Any]:
    if column == "timestamp":
        return st.integers(-1, 6).map(lambda seconds: START + timedelta(seconds=seconds))
    if column == "key":
        return st.sampled_from([b"k1", b"k2", b"none"])
    return st.integers(-1, ROWS)


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(["offset", "partition", "timestamp", "priority", "key"]))
    kind = draw(st.sampled_from(list(COMPARE)))
    value: Any = draw(values_of(column))
    if kind is In:
        value = tuple(draw(st.lists(values_of(column), min_size=1, max_size=3)))
    made: Filter = kind((column,), value)
    return made


def fits(row: dict[str, Any], one: Any) -> bool:
    value = row[one.attribute[0]]
    return value is not None and bool(COMPARE[type(one)](value, one.value))


@given(st.lists(filters(), max_size=4))
def test_what_is_pushed_leaves_just_the_rows_that_fit(given_filters: list[Filter]) -> None:
    pushed, left = push(given_filters)
    taken = [one for one in given_filters if one not in left]
    whole = OffsetRange(topic="t", partition=1, start_offset=0, end_offset=ROWS)

    narrowed = pushed.narrow(whole)
    batch = pa.RecordBatch.from_pylist(rows(), schema=SCHEMA)
    kept: list[int] = []
    if narrowed is not None:
        found = batch.slice(narrowed.start_offset, narrowed.rows)
        kept = pushed.rows_of(found).column("offset").to_pylist()

    expected = [row["offset"] for row in rows() if all(fits(row, one) for one in taken)]
    assert kept == expected


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(("offset",), 3)),
        IsNull(("key",)),
        IsNotNull(("key",)),
        EqualTo(("value",), b"v"),
        EqualTo(("key",), "text"),
        In(("key",), (b"a", None)),
        GreaterThan(("key",), b"a"),
        StringStartsWith(("topic",), "t"),
        EqualTo(("headers", "a"), b"x"),
        In(("offset",), tuple(range(10_001))),
    ],
)
def test_others_are_left_to_spark(one: Filter) -> None:
    assert push([one]) == (Pushed(), [one])
