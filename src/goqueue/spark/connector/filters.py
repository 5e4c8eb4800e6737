"""Filters that Spark hands down: what they leave of ranges, and of the rows in them.

Shape: calculator. A filter is taken only if it is then applied to the letter; Spark applies the
others by itself.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import ModuleType
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from goqueue.client.positions import microseconds_of
from goqueue.spark.connector.planning import OffsetRange

NUMBER_MAX: Final = 2**63 - 1
VALUES_MAX: Final = 10_000
"""Most values of an ``IN`` that are tried on each row here."""

NEVER_NULL: Final = ("topic", "partition", "offset", "timestamp", "priority")
ORDERED: Final = ("partition", "offset", "timestamp", "priority")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Numbers from one to another, both included."""

    least: int = -NUMBER_MAX
    most: int = NUMBER_MAX


@dataclass(frozen=True, slots=True)
class Pushed:
    """What rows must be like: numbers within bounds, and one of some values."""

    bounds: dict[str, Bounds] = field(default_factory=dict)
    choices: dict[str, frozenset[Any]] = field(default_factory=dict)

    def of(self, column: str) -> Bounds:
        """Return the bounds of a column."""
        return self.bounds.get(column, Bounds())

    @property
    def least_us(self) -> int | None:
        """Return the time before which no row is wanted, if there is one."""
        least = max([self.of("timestamp").least, *_least(self.choices.get("timestamp"))])
        return least if least > -NUMBER_MAX else None

    def narrow(self, wanted: OffsetRange) -> OffsetRange | None:
        """Return what is left of a range, or None if that is nothing."""
        if not self._has_place(wanted):
            return None
        offsets = self.of("offset")
        start = max(wanted.start_offset, offsets.least)
        end = min(wanted.end_offset, offsets.most + 1)
        chosen = self.choices.get("offset")
        if chosen is not None:
            start = max([start, *_least(chosen)])
            end = min([end, *(most + 1 for most in _most(chosen))])
        return replace(wanted, start_offset=start, end_offset=end) if start < end else None

    def _has_place(self, wanted: OffsetRange) -> bool:
        numbers = self.of("partition")
        topics = self.choices.get("topic")
        partitions = self.choices.get("partition")
        return (
            numbers.least <= wanted.partition <= numbers.most
            and (topics is None or wanted.topic in topics)
            and (partitions is None or wanted.partition in partitions)
        )

    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are wanted."""
        if not self.bounds and not self.choices:
            return batch
        # Only now, because most readers have no filters and loading this takes a tenth of a second.
        import pyarrow.compute as pc  # noqa: PLC0415

        masks = [*self._bound_masks(batch, pc), *self._choice_masks(batch, pc)]
        if not masks:
            return batch
        mask = masks[0]
        for one in masks[1:]:
            mask = pc.and_(mask, one)
        return batch.filter(mask)

    def _bound_masks(self, batch: pa.RecordBatch, pc: ModuleType) -> Iterable[pa.Array]:
        for column, bounds in self.bounds.items():
            # Ranges were narrowed to these already.
            if column in ("partition", "offset"):
                continue
            numbers = batch.column(column)
            if column == "timestamp":
                numbers = numbers.view(pa.int64())
            if bounds.least > -NUMBER_MAX:
                yield pc.greater_equal(numbers, bounds.least)
            if bounds.most < NUMBER_MAX:
                yield pc.less_equal(numbers, bounds.most)

    def _choice_masks(self, batch: pa.RecordBatch, pc: ModuleType) -> Iterable[pa.Array]:
        for column, values in self.choices.items():
            if column in ("topic", "partition"):
                continue
            array = batch.column(column)
            if column == "timestamp":
                array = array.view(pa.int64())
            kind = array.type
            # A choice too large for the type is no row's value.
            known = [value for value in values if _fits(value, kind)]
            yield pc.is_in(array, value_set=pa.array(known, kind))


def push(filters: Sequence[Filter]) -> tuple[Pushed, list[Filter]]:
    """Take the filters that can be applied here; return them, and those left to Spark."""
    pushed = Pushed()
    left: list[Filter] = []
    for one in filters:
        taken = _take(pushed, one)
        if taken is None:
            left.append(one)
        else:
            pushed = taken
    return pushed, left


def _take(pushed: Pushed, one: Filter) -> Pushed | None:
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if len(path) != 1:
        return None
    column = path[0]
    if isinstance(one, IsNotNull):
        return pushed if column in NEVER_NULL else None
    if isinstance(one, EqualTo | EqualNullSafe):
        return _choose(pushed, column, (one.value,))
    if isinstance(one, In):
        return _choose(pushed, column, one.value)
    return _bound(pushed, column, one)


def _bound(pushed: Pushed, column: str, one: Filter) -> Pushed | None:
    compare = _COMPARISONS.get(type(one))
    number = _number(column, getattr(one, "value", None))
    if compare is None or column not in ORDERED or number is None:
        return None
    old = pushed.of(column)
    least, most = compare(number)
    new = Bounds(max(old.least, least), min(old.most, most))
    return replace(pushed, bounds={**pushed.bounds, column: new})


_COMPARISONS: Final[dict[type[Filter], Callable[[int], tuple[int, int]]]] = {
    GreaterThan: lambda number: (number + 1, NUMBER_MAX),
    GreaterThanOrEqual: lambda number: (number, NUMBER_MAX),
    LessThan: lambda number: (-NUMBER_MAX, number - 1),
    LessThanOrEqual: lambda number: (-NUMBER_MAX, number),
}


def _choose(pushed: Pushed, column: str, values: Sequence[Any]) -> Pushed | None:
    if len(values) > VALUES_MAX:
        return None
    found: list[Any]
    if column in ORDERED:
        found = [_number(column, value) for value in values]
    elif column == "key":
        found = [bytes(value) if isinstance(value, bytes | bytearray) else None for value in values]
    elif column == "topic":
        found = [value if isinstance(value, str) else None for value in values]
    else:
        return None
    # A null among them is left to Spark, whose rules for nulls these are.
    if None in found:
        return None
    chosen = frozenset(found)
    known = pushed.choices.get(column)
    chosen = chosen if known is None else chosen & known
    return replace(pushed, choices={**pushed.choices, column: chosen})


def _number(column: str, value: object) -> int | None:
    if column == "timestamp":
        if not isinstance(value, datetime):
            return None
        # Spark hands times over in UTC, with or without saying so.
        return microseconds_of(value if value.tzinfo else value.replace(tzinfo=UTC))
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _fits(value: object, kind: pa.DataType) -> bool:
    try:
        pa.scalar(value, kind)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


def _least(values: Iterable[int] | None) -> list[int]:
    return [min(values)] if values else []


def _most(values: Iterable[int] | None) -> list[int]:
    return [max(values)] if values else []
