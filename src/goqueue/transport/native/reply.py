"""What a native operation is given and what it answers."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from goqueue.base.errors import GoQueueError
from goqueue.runtime import fetch
from goqueue.runtime.kept_frames import KeptFrames
from goqueue.storage.disk import File
from goqueue.wire import calls
from goqueue.wire.packet import Buffer


def nothing() -> None:
    """Leave everything as it is."""


class Reply(NamedTuple):
    """A reply's header and the buffers behind it."""

    header: calls.Call
    payload: Sequence[Buffer] = ()
    undo: Callable[[], None] = nothing
    """What to do when it cannot be sent."""
    files: Sequence[File] = ()
    """What the client is told to open; it stays open here until it has had the time to."""


class Begun(NamedTuple):
    """A request that was carried out, and whose reply waits for nothing but the disk."""

    ready: asyncio.Future[None] | None
    """Done when the reply may be sent; None where it may be sent now."""
    finish: Callable[[], Reply]
    """Makes the reply."""


class Beside(NamedTuple):
    """What a request has beside its header, and the memory its reply may take."""

    payload: memoryview
    room: fetch.Room
    kept: KeptFrames | None = None
    """Frames the client has, where it has a connection to itself."""


def failure_of(error: GoQueueError) -> calls.Failure:
    """Return an error as it travels."""
    return calls.Failure(error.code, error.message, error.retryable)
