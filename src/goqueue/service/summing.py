"""Putting together what several nodes say about the same things."""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

FIRST: Final = frozenset(
    {"node_id", "at_ms", "uptime", "uptime_ms", "topics", "partitions", "name", "sampling_rate",
     "next_producer_id", "enabled", "exporters_enabled"}
)  # fmt: skip
"""Fields that are the same everywhere, or those of the node that was asked first."""
LARGEST: Final = frozenset({"current_tick", "lag_ms", "members", "last_rebalance_duration_ms"})


def total(answers: Iterable[T]) -> T:
    """Return the sum of what nodes counted, each for what it leads; there is one at least."""
    return reduce(_add, answers)


def _add(one: Any, other: Any) -> Any:  # noqa: ANN401 - any JSON-like value
    if isinstance(one, msgspec.Struct):
        fields = {
            name: _field(getattr(one, name), getattr(other, name), name)
            for name in one.__struct_fields__
        }
        return type(one)(**fields)
    if isinstance(one, dict):
        both = {key: _add(one[key], other[key]) for key in one if key in other}
        return {**other, **one, **both}
    if isinstance(one, list):
        return [_add(*pair) for pair in zip(one, other, strict=True)] if _counts(one) else one
    return one + other if isinstance(one, int | float) else one or other


def _field(one: Any, other: Any, name: str) -> Any:  # noqa: ANN401
    if name in LARGEST:
        return max(one, other)
    is_first = name in FIRST and not isinstance(one, dict)
    return one if is_first else _add(one, other)


def _counts(values: Sequence[object]) -> bool:
    return all(isinstance(value, int) for value in values)


def by_name(answers: Iterable[Sequence[T]], field: str = "name") -> list[T]:
    """Return lists of named things as one: things of one name are summed up, in order of names."""
    found: dict[str, T] = {}
    for listed in answers:
        for one in listed:
            name = getattr(one, field)
            known = found.get(name)
            found[name] = one if known is None else total([known, one])
    return [found[name] for name in sorted(found)]
