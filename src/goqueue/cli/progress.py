"""Progress bars for long work, shown only where somebody watches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from goqueue.base.units import KiB

STEP_BYTES: Final = 256 * KiB

Advance = Callable[[int], None]


@contextmanager
def bytes_bar(label: str, total_bytes: int) -> Iterator[Advance]:
    """Yield a function that is told how many bytes were done."""
    if not sys.stderr.isatty():
        yield _ignore
        return
    # Rich takes time to load, and most commands end before a bar would be seen.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total_bytes)
        waiting = 0

        def advance(count: int) -> None:
            # Moving the bar costs more than checking a small frame does.
            nonlocal waiting
            waiting += count
            if waiting >= STEP_BYTES:
                progress.advance(task, waiting)
                waiting = 0

        yield advance


def _ignore(_: int) -> None:
    """Show nothing."""


@contextmanager
def messages_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that is told how many messages were done, of how many."""
    if not sys.stderr.isatty():
        yield _ignore_both
        return
    # Rich takes time to load, and most commands end before a bar would be seen.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _ignore_both(_: int, __: int) -> None:
    """Show nothing."""
