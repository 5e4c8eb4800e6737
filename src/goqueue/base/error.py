"""The base of all errors that may cross a transport."""

from typing import ClassVar


class GoQueueError(Exception):
    """Base of all errors that may cross a transport."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False
    retry_after_ms: int = 0
    """How long to wait before another try; 0 where it is not known."""

    @property
    def message(self) -> str:
        """Say what went wrong, for a person."""
        return str(self.args[0]) if self.args else (self.__doc__ or self.code)
