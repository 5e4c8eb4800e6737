"""``python -m examples.demo``: everything at once, with a report that must add up.

Some orders come twice, late or broken. A consumer group charges them, with retries and dead
letters; a Spark pipeline checks, enriches and counts them into a topic and a Parquet lake. At the
end every row is looked for where it should be; the exit code is 1 if one is not there.
"""

import argparse
import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from examples.demo.folder import DEFAULT
from examples.demo.report import plain
from examples.demo.run import ORDERS_MAX, DemoOptions, run_demo
from examples.demo.screen import Screen, tell_report
from examples.demo.terminal import escape, remark, say, style
from goqueue import GoQueueError

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RATE_MAX: Final = 5_000
UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0}
FAILED: Final = 1
INTERRUPTED: Final = 130


class MismatchError(GoQueueError):
    """A row is not where it should be."""

    code = "demo_mismatch"


def main(arguments: Sequence[str]) -> int:
    """Run the demonstration, print its report and return the exit code."""
    given = _parser().parse_args(arguments)
    is_json = given.output == "json"
    try:
        _run(given, is_json=is_json)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (GoQueueError, OSError) as error:
        _tell(error, is_json=is_json)
        return FAILED
    return 0


def _run(given: argparse.Namespace, *, is_json: bool) -> None:
    is_live = not is_json and sys.stdout.isatty()
    with _stop_wish() as stop, Screen(is_live=is_live, stop=stop) as screen:
        report = run_demo(
            DemoOptions(
                folder=given.data,
                seconds=given.seconds,
                rate=given.rate,
                orders_max=given.orders,
                seed=given.seed,
                native=given.native,
                http=given.http,
                wants_spark=not given.no_spark,
                stop=stop,
                watch=screen.update,
                tell=screen.tell,
            )
        )
    if is_json:
        say(json.dumps(plain(report), indent=2))
    else:
        tell_report(report)
    if not report.adds_up:
        raise MismatchError(f"the books do not add up; what is left to look at is {report.folder}")


def _tell(error: GoQueueError | OSError, *, is_json: bool) -> None:
    code = error.code if isinstance(error, GoQueueError) else "system"
    if is_json:
        remark(json.dumps({"error": {"code": code, "message": str(error)}}))
    else:
        remark(f"{style('error:', '31;1', sys.stderr)} {escape(str(error))} ({code})")


@contextmanager
def _stop_wish() -> Iterator[threading.Event]:
    """Set an event at the first signal; the second one is obeyed at once."""
    stop = threading.Event()

    def wish(number: int, frame: FrameType | None) -> None:
        del number, frame
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, wish) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="See it at work: a broker, orders, a consumer group and a Spark pipeline.",
        epilog="Exit codes: 0 every row is where it should be, 1 not so or it failed.",
    )
    add = parser.add_argument
    add("--seconds", type=_seconds, help="how long all of it runs, e.g. 30 or 2m [until Ctrl-C]")
    add("--rate", type=_up_to(RATE_MAX), default=300, help="orders a second [%(default)s]")
    add("--orders", type=_up_to(ORDERS_MAX), default=ORDERS_MAX, help="end after so many orders")
    add("--seed", type=int, default=1, help="the same seed makes the same orders [%(default)s]")
    add("--data", "-d", type=Path, default=DEFAULT, help="folder, emptied at first [%(default)s]")
    add("--no-spark", action="store_true", help="leave the pipeline out")
    add("--native", default="", help="address of the broker [127.0.0.1:7070, or a free port]")
    add("--http", default="", help="address of HTTP [127.0.0.1:8080, or a free port]")
    add("--output", "-o", choices=("table", "json"), default="table", help="how to report")
    return parser


class _up_to:  # noqa: N801 - argparse puts its name into errors
    """A number from 1 to the largest allowed."""

    def __init__(self, most: int) -> None:
        self._most = most

    def __repr__(self) -> str:
        return f"number from 1 to {self._most:,}"

    def __call__(self, text: str) -> int:
        number = int(text)
        if not 1 <= number <= self._most:
            raise ValueError(text)
        return number


def _seconds(text: str) -> float:
    unit = text.lstrip("0123456789.")
    seconds = float(text.removesuffix(unit)) * UNITS[unit or "s"] if unit in {"", *UNITS} else 0.0
    if seconds <= 0.0:
        raise argparse.ArgumentTypeError(f"{text!a} is no duration; write for example 30 or 2m")
    return seconds


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
