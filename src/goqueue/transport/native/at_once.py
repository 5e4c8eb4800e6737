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
        answer(reply)
        return None
    reply.ready.add_done_callback(partial(_finish, reply, answer))
    return reply.ready


def _finish(later: Later, answer: Callable[[Outcome], None], ready: asyncio.Future[None]) -> None:
    """Answer a request that was carried out, once the disk has done its part."""
    error = None if ready.cancelled() else ready.exception()
    if error is None and not ready.cancelled():
        answer(later.finish())
    else:
        later.undo()
        answer(error)
