"""Requests that are carried out in the step in which they come, without a task."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from goqueue.base.started import Started
from goqueue.service.verb import Later, Reply

Outcome = Reply | BaseException | None
"""A reply, why there is none, or None where nobody waits for it any more."""


def begin_at_once(
    request: Coroutine[Any, Any, Reply | Later], answer: Callable[[Outcome], None]
) -> Started[Reply | Later] | asyncio.Future[None] | None:
    """Begin a request: return None if it is answered, or the future that answers it.

    What has to wait for more than that is returned as it is, begun: it needs a task.
    """
    try:
        started = Started(request)
    except Exception as error:  # noqa: BLE001 - the outermost frame of a request
        answer(error)
        return None
    if not started.is_done:
        return started
    reply = started.result
    if isinstance(reply, Reply):
        _answer(reply, answer)
        return None
    reply.ready.add_done_callback(partial(_finish, reply, answer))
    return reply.ready


def _finish(later: Later, answer: Callable[[Outcome], None], ready: asyncio.Future[None]) -> None:
    """Answer a request that was carried out, once the disk has done its part."""
    error = None if ready.cancelled() else ready.exception()
    if error is not None or ready.cancelled():
        later.undo()
        answer(error)
        return
    try:
        reply = later.finish()
    except Exception as fault:  # noqa: BLE001 - the outermost frame of a request
        later.undo()
        answer(fault)
    else:
        _answer(reply, answer)


def _answer(reply: Reply, answer: Callable[[Outcome], None]) -> None:
    """Write a reply; one that cannot be written is taken back, and the client told why."""
    try:
        answer(reply)
    except Exception as error:  # noqa: BLE001 - the outermost frame of a request
        reply.undo()
        answer(error)
