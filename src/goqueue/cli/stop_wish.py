"""Signals that end programs as a wish to stop, for commands that have something to finish."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_wish(
    *numbers: signal.Signals, tell: Callable[[signal.Signals], None] = lambda _: None
) -> Iterator[threading.Event]:
    """Set an event at the first of these signals and tell of it; the second is obeyed at once."""
    stop = threading.Event()

    def wish(number: int, frame: FrameType | None) -> None:
        del frame
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        tell(signal.Signals(number))

    before = {number: signal.signal(number, wish) for number in numbers}
    try:
        yield stop
    except Exception as error:
        # Spark takes Ctrl-C for itself, and its bridge to Java fails by that in a way of its own.
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_interrupt(error: BaseException | None) -> bool:
    """Return True if an error was caused by Ctrl-C."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
