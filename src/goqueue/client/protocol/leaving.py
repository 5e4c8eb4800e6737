"""Closing: which error the caller gets when there are several."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from logging import getLogger
from typing import Self

from goqueue.base.errors import GoQueueError

log = getLogger("goqueue.client")


@contextmanager
def keep_first(error: BaseException | None) -> Iterator[None]:
    """Log what closing raises if the block itself has failed: its error is the one to raise."""
    try:
        yield
    except GoQueueError as later:
        if error is None:
            raise
        log.warning("not closed cleanly: %s", later.message)


class Closes(ABC):
    """Is closed where a ``with`` block ends; an error of the block goes before one of closing."""

    @abstractmethod
    def close(self) -> None:
        """End it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with keep_first(error):
            self.close()


class AsyncCloses(ABC):
    """The same for ``async with``."""

    @abstractmethod
    async def close(self) -> None:
        """End it."""

    async def _ready(self) -> None:  # noqa: B027 - nothing, for most
        """Return when the block may begin, or raise why not."""

    async def __aenter__(self) -> Self:
        await self._ready()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with keep_first(error):
            await self.close()


class Closing:
    """Closes one thing after the other, whatever fails, and remembers the first failure."""

    def __init__(self) -> None:
        self._first: GoQueueError | None = None

    def __repr__(self) -> str:
        return f"<Closing: {self._first!r}>"

    @contextmanager
    def goes_on(self) -> Iterator[None]:
        """Go on behind the block if it fails."""
        try:
            yield
        except GoQueueError as error:
            if self._first is None:
                self._first = error
            else:
                log.warning("not closed cleanly: %s", error.message)

    def check(self) -> None:
        """Raise the first failure."""
        if self._first is not None:
            raise self._first
