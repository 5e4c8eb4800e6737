"""Replies on their way to a client: how long it may take none of their bytes."""

import asyncio
from collections.abc import Callable
from typing import Final

from goqueue.transport.native.alarm import Alarm

REPLY_SECONDS_MAX: Final = 60.0
"""A client that takes not one byte of its replies for so long is dropped."""

REPLY_SECONDS_CROWDED: Final = 5.0
"""The same while others wait for the memory its replies hold."""


class Departure:
    """Watches the unsent bytes of one connection while there are too many of them."""

    __slots__ = ("_alarm", "_is_crowded", "_patience_s", "_stalled", "_transport", "_unsent")

    def __init__(self, is_crowded: Callable[[], bool], stalled: Callable[[], None]) -> None:
        self._is_crowded = is_crowded
        self._stalled = stalled
        self._alarm = Alarm(self._over)
        self._transport: asyncio.Transport | None = None
        self._unsent = 0
        self._patience_s = REPLY_SECONDS_MAX

    def watch(self, transport: asyncio.Transport) -> None:
        """Bound the time in which a client takes nothing of its replies, from now on."""
        self._transport = transport
        self._unsent = transport.get_write_buffer_size()
        self._patience_s = REPLY_SECONDS_MAX
        self._alarm.set(REPLY_SECONDS_CROWDED)

    def written(self) -> None:
        """Take note that there are more bytes to be sent."""
        if self._transport is not None:
            self._unsent = self._transport.get_write_buffer_size()

    def stop(self) -> None:
        """Stop watching: the client takes its replies, or is gone."""
        self._transport = None
        self._alarm.stop()

    def _over(self) -> None:
        transport = self._transport
        assert transport is not None, "watched"
        self._patience_s -= REPLY_SECONDS_CROWDED
        if transport.get_write_buffer_size() < self._unsent:
            self.watch(transport)
        elif self._patience_s > 0 and not self._is_crowded():
            self._alarm.set(REPLY_SECONDS_CROWDED)
        else:
            self._transport = None
            self._stalled()
