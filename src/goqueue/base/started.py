"""Coroutines that are begun at once, in the step that makes them, without a task.

Much of what may have to wait mostly does not: the bytes are in memory, the lock is free. Such a
coroutine is over after its first step, and the result is there. Only one that really waits is
awaited, in a task, for the rest of it. What it does before it first waits must not ask for the
current task, as ``asyncio.timeout`` does: there is none.
"""

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class Started(Generic[T]):
    """A coroutine that has run up to where it first waits. Raises what that part of it raises."""

    __slots__ = ("_awaited", "_work", "is_done", "result")

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.is_done = False
        """Whether it is over and has a result."""
        self._work = work
        self.result = cast("T", None)
        """What it returned, once it is done."""
        self._awaited: Any = None
        try:
            self._awaited = work.send(None)
        except StopIteration as end:
            self.is_done = True
            self.result = end.value

    def __repr__(self) -> str:
        return f"<Started {self._work!r}>"

    def __await__(self) -> Generator[Any, Any, T]:
        """Wait for the rest of it; once."""
        awaited = self._awaited
        while not self.is_done:
            try:
                sent = yield awaited
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's to deal with
                awaited = self._step(self._work.throw, error)
            else:
                awaited = self._step(self._work.send, sent)
        return self.result

    def _step(self, step: Any, value: Any) -> Any:  # noqa: ANN401 - whatever is awaited
        try:
            return step(value)
        except StopIteration as end:
            self.is_done = True
            self.result = end.value
            return None
