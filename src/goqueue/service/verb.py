"""Verbs: what can be asked of a noun's service, each with the deeds it serves.

A verb takes the grant of its request first. Most have no other use for it, and the decorator takes
it for them: it is compared with the verb's deeds and the method gets the rest; with it the caller
where it matters on which connection a member speaks, or the grant where a name has to be found.
Verbs on busy paths hand it on to the runtime, which compares it itself; for them the decorator
costs nothing.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from goqueue.base.caller import Caller
from goqueue.base.deeds import Deed
from goqueue.base.errors import GoQueueError
from goqueue.base.grant import Grant
from goqueue.runtime.log.fetch import BOUNDLESS, Room
from goqueue.wire import calls
from goqueue.wire.packet import Buffer

DEEDS: Final = "deeds"
"""The attribute of a verb with the deeds it serves."""

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


def verb(
    *deeds: Deed,
) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, Grant, P], R]]:
    """Make a method a verb that serves these deeds; its callers give the grant first."""
    return lambda method: _checked(deeds, method, lambda _: ())


def caller_verb(
    *deeds: Deed,
) -> Callable[[Callable[Concatenate[S, Caller, P], R]], Callable[Concatenate[S, Grant, P], R]]:
    """Make a method a verb as ``verb`` does, and give it the caller for the grant."""
    return lambda method: _checked(deeds, method, lambda grant: (grant.caller,))


def finding_verb(
    *deeds: Deed,
) -> Callable[[Callable[Concatenate[S, Grant, P], R]], Callable[Concatenate[S, Grant, P], R]]:
    """Make a method a verb as ``verb`` does, and leave it the grant.

    For requests whose resource has to be found: the gate is then asked about its name.
    """
    return lambda method: _checked(deeds, method, lambda grant: (grant,))


def _checked(
    deeds: tuple[Deed, ...],
    method: Callable[..., R],
    first: Callable[[Grant], tuple[Any, ...]],
) -> Callable[..., R]:
    """Return a method that compares its grant with the deeds, and calls one without it."""

    @wraps(method)
    def checked(self: object, grant: Grant, /, *args: object, **kwargs: object) -> R:
        assert grant.deed in deeds, f"a grant for {deeds[0]}, not for {grant.deed}"
        return method(self, *first(grant), *args, **kwargs)

    setattr(checked, DEEDS, deeds)
    return checked


def granted_verb(*deeds: Deed) -> Callable[[F], F]:
    """Make a method a verb that takes the grant itself and hands it on to the runtime."""

    def make(method: F) -> F:
        setattr(method, DEEDS, deeds)
        return method

    return make


def deeds_of(method: Callable[..., Any]) -> tuple[Deed, ...]:
    """Return the deeds a verb serves; none where it is no verb."""
    deeds: tuple[Deed, ...] = getattr(method, DEEDS, ())
    return deeds


class RequestContext(NamedTuple):
    """What a request has beside its header, and the memory its reply may take."""

    payload: memoryview
    room: Room = BOUNDLESS
    is_local: bool = False
    """Whether the client runs on the broker's machine, and may be told where files lie."""


def nothing() -> None:
    """Leave everything as it is."""


class Reply(NamedTuple):
    """A reply with more than a header: buffers behind it, or something to look after."""

    header: calls.Call
    payload: Sequence[Buffer] = ()
    undo: Callable[[], None] = nothing
    """What to do when it cannot be sent."""
    files: Sequence[object] = ()
    """Files the client is told to open; they stay open here until it has had the time to."""


NO_REPLY: Final = Reply(calls.Nothing())
"""Where there is nothing to look after."""


class Later(NamedTuple):
    """A request that was carried out, and whose reply waits for the disk, or for news."""

    ready: asyncio.Future[None]
    """Done when the reply may be made; cancelled by who gives up."""
    finish: Callable[[], Reply]
    """Makes the reply."""
    undo: Callable[[], None] = nothing
    """What to do when it is given up, or fails."""

    async def reply(self) -> Reply:
        """Return the reply when it is there."""
        try:
            await self.ready
        except BaseException:
            self.undo()
            raise
        return self.finish()


def failure_of(error: GoQueueError) -> calls.Failure:
    """Return an error as it travels."""
    return calls.Failure(error.code, error.message, error.retryable, error.retry_after_ms)
