"""Progress bars for long work, shown only where somebody watches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
        yield lambda count: progress.advance(task, count)


def _ignore(_: int) -> None:
    """Show nothing."""
