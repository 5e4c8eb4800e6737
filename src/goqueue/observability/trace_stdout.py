"""Spans as lines of JSON on the standard output."""

import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from goqueue.core.tracing.note import TraceSpan

_encode: Final = msgspec.json.Encoder().encode


class TraceStdout:
    """Prints spans. Whoever does not read them holds up this exporter alone."""

    def write(self, spans: Sequence[TraceSpan]) -> None:
        """Print spans, one a line."""
        sys.stdout.buffer.write(b"".join(_encode(span) + b"\n" for span in spans))
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """Leave the standard output to others."""
