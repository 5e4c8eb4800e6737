"""Which leader epoch each message of a log was written in, and where two logs part.

Shape: calculator, and codec. Frames have no room for an epoch, so a list of epoch starts is kept
beside each log. An epoch that got no message leaves no entry: the next one begins at the same
offset and replaces it. By the epoch of its last message a follower finds what it shares with its
leader (KIP-101, KIP-279, KIP-595): messages of one epoch were written by one leader, in one order,
so two logs are equal up to the end of the last epoch they have in common.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from goqueue.base.cluster_limits import LEADER_EPOCHS_MAX
from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import NO_EPOCH, Epoch, Offset

_NUMBER_MAX: Final = 2**62
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[int]).decode


class EpochStart(NamedTuple):
    """An epoch and the offset of its first message."""

    epoch: Epoch
    start_offset: Offset


class EpochEnd(NamedTuple):
    """An epoch and the offset behind its last message."""

    epoch: Epoch
    end_offset: Offset


class EpochHistory:
    """The epochs of one log, oldest first; epochs and offsets both grow."""

    __slots__ = ("_epochs", "_starts", "latest")

    def __init__(self, starts: Iterable[EpochStart] = (), *, latest: Epoch = NO_EPOCH) -> None:
        self._epochs: list[Epoch] = []
        self._starts: list[Offset] = []
        self.latest = latest
        """The highest epoch ever begun in this directory. Truncation does not lower it: a message
        written in that epoch and lost here may have reached a follower."""
        for start in starts:
            self.begin(start)

    def __repr__(self) -> str:
        return f"<EpochHistory {list(self)}, latest {self.latest}>"

    def __len__(self) -> int:
        return len(self._epochs)

    def __iter__(self) -> Iterator[EpochStart]:
        return map(EpochStart, self._epochs, self._starts)

    def may_lead(self, epoch: Epoch) -> bool:
        """Return True if this log may be led in an epoch: never twice in the same one.

        A leader that was started again and lost its unsynced tail would write other messages at
        offsets that followers have from the same epoch, and nothing would show the difference.
        """
        return epoch > self.latest

    # What was written when.

    def epoch_at(self, offset: int) -> Epoch:
        """Return the epoch of the message at an offset, NO_EPOCH before the first one known."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else NO_EPOCH

    def last_epoch(self, end_offset: Offset) -> Epoch:
        """Return the epoch of the last message of a log that ends at an offset."""
        return self.epoch_at(end_offset - 1)

    def end_of(self, epoch: Epoch, *, end_offset: Offset) -> EpochEnd:
        """Return the last epoch up to the given one, and where it ends in a log of this length."""
        index = bisect_right(self._epochs, epoch) - 1
        found = self._epochs[index] if index >= 0 else NO_EPOCH
        following = index + 1
        end = self._starts[following] if following < len(self._starts) else end_offset
        return EpochEnd(found, min(end, end_offset))

    def divergence(
        self, *, offset: Offset, last_epoch: Epoch, end_offset: Offset
    ) -> EpochEnd | None:
        """Return where a follower's log can agree with this one, None if it is a prefix of it.

        The follower's log ends at ``offset`` with a message of ``last_epoch``; this one ends at
        ``end_offset``. An empty log agrees with every log that reaches its offset.
        """
        if last_epoch == NO_EPOCH and offset <= end_offset:
            return None
        found = self.end_of(last_epoch, end_offset=end_offset)
        is_prefix = found.epoch == last_epoch and offset <= found.end_offset
        return None if is_prefix and last_epoch != NO_EPOCH else found

    def common_end(self, diverging: EpochEnd, *, end_offset: Offset) -> Offset:
        """Return where to cut this log, of the follower, after the leader's ``divergence``."""
        own = self.end_of(diverging.epoch, end_offset=end_offset)
        return min(own.end_offset, diverging.end_offset)

    def between(self, *, start_offset: Offset, end_offset: Offset) -> tuple[EpochStart, ...]:
        """Return the epochs of a range of messages, the first one cut to its start."""
        if start_offset >= end_offset:
            return ()
        first = max(bisect_right(self._starts, start_offset) - 1, 0)
        last = bisect_left(self._starts, end_offset)
        return tuple(
            EpochStart(self._epochs[index], max(self._starts[index], start_offset))
            for index in range(first, last)
        )

    def agreed_end(
        self, starts: Iterable[EpochStart], *, start_offset: Offset, end_offset: Offset
    ) -> Offset:
        """Return up to where the messages of a range are those of a log with other epochs.

        ``starts`` are that log's ``between`` of the same range. A message is known by its epoch and
        its offset: two logs that have both have the same message.
        """
        other = EpochHistory(starts)
        borders = {start_offset, *(one.start_offset for one in self), *other._starts}
        for border in sorted(one for one in borders if start_offset <= one < end_offset):
            if self.epoch_at(border) != other.epoch_at(border):
                return border
        return end_offset

    def has_start(self, offset: Offset) -> bool:
        """Return True if an epoch was noted that begins at an offset or behind it."""
        return bool(self._starts) and self._starts[-1] >= offset

    # Changes.

    def begin(self, start: EpochStart) -> None:
        """Note that an epoch begins at an offset; what was noted from there on never came to be."""
        self.truncate(start.start_offset)
        if self._epochs and start.epoch <= self._epochs[-1]:
            raise CorruptFrameError(
                f"epoch {start.epoch} at offset {start.start_offset} follows {self._epochs[-1]}"
            )
        self._epochs.append(start.epoch)
        self._starts.append(start.start_offset)
        self.latest = max(self.latest, start.epoch)
        if len(self._epochs) > LEADER_EPOCHS_MAX:
            del self._epochs[0], self._starts[0]

    def truncate(self, end_offset: Offset) -> None:
        """Forget the epochs of messages from an offset on."""
        kept = bisect_left(self._starts, end_offset)
        del self._epochs[kept:], self._starts[kept:]

    def trim(self, start_offset: Offset) -> None:
        """Forget the epochs of messages that retention removed, but for the very last one.

        A follower that ends where the log now starts is judged by the message before.
        """
        gone = max(bisect_left(self._starts, start_offset) - 1, 0)
        del self._epochs[:gone], self._starts[:gone]

    def clear(self) -> None:
        """Forget all epochs of messages: the log starts again, empty."""
        self._epochs.clear()
        self._starts.clear()

    def copy(self) -> "EpochHistory":
        """Return another one that is equal."""
        return EpochHistory(self, latest=self.latest)


def encode_history(history: EpochHistory) -> bytes:
    """Return a history as bytes: the latest epoch, then epochs and their offsets in turn."""
    numbers = [number for start in history for number in start]
    return _encode([history.latest, *numbers])


def decode_history(raw: bytes) -> EpochHistory:
    """Return what was encoded, or raise CorruptFrameError."""
    try:
        latest, *numbers = _decode(raw)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptFrameError(f"not a history of epochs: {error}") from error
    if len(numbers) % 2 or len(numbers) > 2 * LEADER_EPOCHS_MAX or latest < NO_EPOCH:
        raise CorruptFrameError("a history of epochs is a number and pairs of numbers")
    if any(not 0 <= number < _NUMBER_MAX for number in numbers):
        raise CorruptFrameError("a history of epochs holds a number that is neither")
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    starts = [EpochStart(Epoch(epoch), Offset(offset)) for epoch, offset in pairs]
    if any(a.start_offset >= b.start_offset for a, b in pairwise(starts)):
        raise CorruptFrameError("the epochs of a history are not in order")
    return EpochHistory(starts, latest=Epoch(latest))
