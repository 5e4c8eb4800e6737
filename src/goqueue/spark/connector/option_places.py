"""Options that name places in a log: topics, partitions, offsets and times, in words or JSON.

Shape: calculator.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from goqueue.base.names import check_name

EARLIEST: Final = -2
LATEST: Final = -1
TOPICS_MAX: Final = 1_000
"""Most topics of one reader: each is asked for its offsets in every micro-batch."""
PATTERN_CHARACTERS_MAX: Final = 1_000
ROWS_MAX: Final = 2**62

Offsets = dict[str, dict[int, int]]
"""By topic and partition."""
Position = int | Offsets
"""EARLIEST or LATEST for every partition, or an offset for each; there, too, -2 and -1."""
Times = dict[str, dict[int, int]]
"""Milliseconds since 1970, by topic and partition."""


def topic_of(text: str) -> str:
    """Return a name of a topic."""
    return check_name(text.strip(), field="topic")


def topics_of(text: str) -> tuple[str, ...]:
    """Return names of topics, given with commas."""
    names = [topic_of(name) for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError("names no topic")
    if len(names) > TOPICS_MAX:
        raise ValueError(f"names {len(names)} topics; the limit is {TOPICS_MAX}")
    return tuple(dict.fromkeys(names))


def pattern_of(text: str) -> str:
    """Return a regular expression that can be used."""
    if len(text) > PATTERN_CHARACTERS_MAX:
        raise ValueError(f"has {len(text)} characters; the limit is {PATTERN_CHARACTERS_MAX}")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return text


def partitions_of(text: str) -> Mapping[str, tuple[int, ...]]:
    """Return the partitions of topics, from JSON."""
    found = _json_object(text, '{"orders": [0, 1]}')
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not all(map(_is_natural, partitions)):
            raise ValueError(f"{topic!a} must have a list of partition numbers")
        assigned[topic_of(topic)] = tuple(sorted(set(partitions)))
    if not assigned:
        raise ValueError("names no topic")
    return assigned


def start_of(text: str) -> Position:
    """Return where to begin."""
    return _position(text, allowed=(EARLIEST, LATEST))


def end_of(text: str) -> Position:
    """Return where to end."""
    position = _position(text, allowed=(LATEST,))
    if position == EARLIEST:
        raise ValueError("'earliest' is no end; write latest or offsets")
    return position


def _position(text: str, *, allowed: tuple[int, ...]) -> Position:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    found = _json_object(text, 'earliest, latest or {"orders": {"0": 23, "1": -2}}')
    offsets: Offsets = {}
    for topic, parts in found.items():
        if not isinstance(parts, dict):
            raise ValueError(f"{topic!a} must have an offset for each partition")  # noqa: TRY004
        offsets[topic_of(topic)] = {
            _partition(partition): _offset(offset, allowed) for partition, offset in parts.items()
        }
    return offsets


def _partition(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > len(str(2**31)):
        raise ValueError(f"{text[:50]!a} is not a partition number")
    return int(text)


def _offset(offset: object, allowed: tuple[int, ...]) -> int:
    if _is_natural(offset) or (isinstance(offset, int) and offset in allowed):
        return int(str(offset))
    raise ValueError(f"{str(offset)[:50]!a} is not an offset, nor one of {list(allowed)}")


def _is_natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < ROWS_MAX


def _json_object(text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{text[:100]!a} is not {example}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{text[:100]!a} is not {example}")  # noqa: TRY004 - a value, not a type
    return found


def times_of(text: str) -> Times:
    """Return the times of partitions, from JSON."""
    found = _json_object(text, '{"orders": {"0": 1767225600000}}, in milliseconds since 1970')
    times: Times = {}
    for topic, parts in found.items():
        if not isinstance(parts, dict) or not all(map(_is_natural, parts.values())):
            raise ValueError(f"{topic!a} must have milliseconds since 1970 for each partition")
        times[topic_of(topic)] = {_partition(number): at_ms for number, at_ms in parts.items()}
    if not times:
        raise ValueError("names no topic")
    return times
