"""Asynchronous methods as ordinary code calls them: run in the client's loop, and waited for.

``blocking`` keeps the name of a method, its arguments with their types, what it returns and its
docstring (ADR 0039).
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from goqueue.client.blocking.loop_thread import LoopThread

Given = ParamSpec("Given")
Result = TypeVar("Result")


class BlockingCalls:
    """Calls methods of something asynchronous, or its own, in a loop, and waits for them."""

    def __init__(self, client: Any, thread: LoopThread) -> None:  # noqa: ANN401 - it has the methods
        self._client = client
        self._thread = thread

    def __repr__(self) -> str:
        return f"<{type(self).__name__} by {self._client!r}>"


def blocking(
    method: Callable[Concatenate[Any, Given], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[BlockingCalls, Given], Result]:
    """Return a method as ordinary code calls it."""

    @wraps(method)
    def call(self: BlockingCalls, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        # Their own fields on purpose: this is a method of theirs.
        return self._thread.run(method(self._client or self, *args, **kwargs))

    return call
