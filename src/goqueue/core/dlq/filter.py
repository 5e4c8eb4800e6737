"""Which dead letters are meant.

Shape: calculator.
"""

from bisect import bisect_right
from itertools import pairwise
from typing import Annotated

import msgspec

from goqueue.base.limits import (
    KEY_BYTES_MAX,
    NAME_CHARACTERS_MAX,
    PARTITIONS_MAX,
    REDRIVE_RUNS_MAX,
)
from goqueue.core.dlq.record import END_OF_TIME_MS, Story
from goqueue.core.record.message import Message

Key = Annotated[bytes, msgspec.Meta(max_length=KEY_BYTES_MAX)]
Text = Annotated[str, msgspec.Meta(max_length=1_000)]
Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARACTERS_MAX)]
Moment = Annotated[int, msgspec.Meta(ge=0, lt=END_OF_TIME_MS)]

Partition = Annotated[int, msgspec.Meta(ge=0, lt=PARTITIONS_MAX)]
Offset = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
Runs = Annotated[list[Offset], msgspec.Meta(max_length=2 * REDRIVE_RUNS_MAX)]
Places = Annotated[dict[Partition, Runs], msgspec.Meta(max_length=REDRIVE_RUNS_MAX)]


class Filter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is given must hold. ``since_ms`` and ``until_ms`` are of the death, half-open."""

    reason: Text | None = None
    group: Name | None = None
    key: Key | None = None
    key_prefix: Key | None = None
    header: Text | None = None
    header_value: Key | None = None
    since_ms: Moment | None = None
    until_ms: Moment | None = None
    text: Text | None = None
    """Somewhere in an error, in capitals or not."""
    places: Places | None = None
    """Just these, by partition: half-open runs ``[start, end, start, end, …]``, ascending."""

    @property
    def is_empty(self) -> bool:
        """Return True if everything is meant."""
        return self == EVERYTHING

    @property
    def is_sound(self) -> bool:
        """Return True if the runs are runs, and not too many."""
        runs = list((self.places or {}).values())
        return sum(map(len, runs)) <= 2 * REDRIVE_RUNS_MAX and all(
            len(one) % 2 == 0 and all(before < after for before, after in pairwise(one))
            for one in runs
        )

    @property
    def named(self) -> int | None:
        """Return how many offsets are named, None if it does not go by them."""
        if self.places is None:
            return None
        return sum(sum(one[1::2]) - sum(one[::2]) for one in self.places.values())

    def matches(self, message: Message, story: Story) -> bool:
        """Return True if a dead letter is meant."""
        return (
            self._matches_place(message)
            and self.reason in (None, story.reason)
            and self.group in (None, story.last_group)
            and self._matches_key(message.key)
            and self._matches_header(message)
            and self._matches_time(message.timestamp_us // 1_000)
            and (self.text is None or _mentions(story, self.text.lower()))
        )

    def _matches_place(self, message: Message) -> bool:
        if self.places is None:
            return True
        runs = self.places.get(message.partition, [])
        # Behind an odd number of bounds one is inside a run.
        return bisect_right(runs, message.offset) % 2 == 1

    def _matches_key(self, key: bytes | None) -> bool:
        if self.key is not None and key != self.key:
            return False
        return self.key_prefix is None or (key is not None and key.startswith(self.key_prefix))

    def _matches_header(self, message: Message) -> bool:
        if self.header is None:
            return True
        value = (message.headers or {}).get(self.header)
        return value is not None and self.header_value in (None, value)

    def _matches_time(self, at_ms: int) -> bool:
        if self.since_ms is not None and at_ms < self.since_ms:
            return False
        return self.until_ms is None or at_ms < self.until_ms


EVERYTHING = Filter()


def _mentions(story: Story, text: str) -> bool:
    errors = (story.last_error, *(attempt.error for attempt in story.receipt_log))
    return any(text in error.lower() for error in errors)
