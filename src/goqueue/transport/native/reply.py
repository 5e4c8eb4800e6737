"""What a native operation is given and what it answers."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from goqueue.base.errors import GoQueueError
from goqueue.runtime import fetch
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


class Beside(NamedTuple):
    """What a request has beside its header, and the memory its reply may take."""

    payload: memoryview
    room: fetch.Room


def failure_of(error: GoQueueError) -> calls.Failure:
    """Return an error as it travels."""
    return calls.Failure(error.code, error.message, error.retryable)
