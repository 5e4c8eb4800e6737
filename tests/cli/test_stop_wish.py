"""Ctrl-C is Ctrl-C, whatever the code it came upon makes of it."""

import signal

import pytest

from goqueue.cli.stop_wish import stop_wish


def bridge(*, is_interrupted: bool) -> None:
    """Fail as Spark's bridge to Java does."""
    try:
        if is_interrupted:
            signal.default_int_handler(signal.SIGINT, None)
    finally:
        raise RuntimeError("Gateway must be connected")


def test_an_error_that_came_of_ctrl_c_is_ctrl_c() -> None:
    """Nobody is told that this should not happen."""
    with pytest.raises(KeyboardInterrupt), stop_wish(signal.SIGINT):
        bridge(is_interrupted=True)


def test_any_other_error_stays_as_it_is() -> None:
    """It is told and explained as ever."""
    with pytest.raises(RuntimeError, match="Gateway"), stop_wish(signal.SIGINT):
        bridge(is_interrupted=False)
