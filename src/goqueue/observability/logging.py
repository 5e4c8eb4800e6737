"""Structured logs: colours on a terminal, JSON lines elsewhere, always on stderr.

The loggers are our own, not structlog's global ones: a program that embeds the broker keeps its own
configuration and hears of warnings only, unless it asks for more.
"""

import logging
import sys
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger


class _Pipeline:
    """What every logger of ours does with an event; changed by ``configure_logging``."""

    def __init__(self) -> None:
        self.level = logging.WARNING
        self.renderer: Processor = structlog.processors.JSONRenderer()

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> Any:  # noqa: ANN401
        if getattr(logging, method.upper(), logging.ERROR) < self.level:
            raise structlog.DropEvent
        if method == "exception":
            event.setdefault("exc_info", True)
        for process in (
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
        ):
            event = process(logger, method, event)
        return self.renderer(logger, method, event)


class _Stderr:
    """Prints to whatever stderr is at the time."""

    def msg(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)  # noqa: T201 - this is where logs come out

    debug = info = warning = error = critical = exception = msg


_pipeline = _Pipeline()


def get_logger(name: str) -> structlog.BoundLogger:
    """Return a logger; ``name`` travels with every event."""
    logger: structlog.BoundLogger = structlog.wrap_logger(
        _Stderr(), processors=[_pipeline], wrapper_class=structlog.BoundLogger, source=name
    )
    return logger


def configure_logging(*, level: str, style: str) -> None:
    """Set up logging for this process. ``style`` is auto, console or json."""
    is_console = style == "console" or (style == "auto" and sys.stderr.isatty())
    _pipeline.level = getattr(logging, level.upper())
    _pipeline.renderer = (
        structlog.dev.ConsoleRenderer() if is_console else structlog.processors.JSONRenderer()
    )
