"""Where exported spans go."""

from collections.abc import Sequence
from typing import Protocol

from goqueue.core.tracing.note import TraceSpan


class Sink(Protocol):
    """Takes spans, in a thread of its own. May wait, may fail."""

    def write(self, spans: Sequence[TraceSpan]) -> None:
        """Write spans, or raise."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...
