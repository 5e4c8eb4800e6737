"""A table: one row for each key, kept as Parquet in versions of which one is current.

    ROOT/versions/00000012-WRITER/      the rows
    ROOT/_goqueue/table.json            which version is current, and what made it
    ROOT/current                        a link to it, for other programs

A version is written whole before it is made current, so a reader never sees half of one.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from goqueue.spark.pipelines.atomic import write_atomically

VERSIONS_KEPT: Final = 2
"""The one before stays for those who read it when it was replaced."""


class Current(msgspec.Struct, frozen=True, kw_only=True):
    """What is current."""

    version: str
    number: int
    writer: str
    batch: int


@dataclass(frozen=True, slots=True)
class Table:
    """One table on a local or mounted file system. One pipeline writes to it."""

    root: Path

    def state(self) -> Current | None:
        """Return what is current, None if nothing was written yet."""
        try:
            content = (self.root / "_goqueue" / "table.json").read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return msgspec.json.decode(content, type=Current)

    def current(self) -> Path | None:
        """Return the folder of the current version."""
        state = self.state()
        return None if state is None else self.root / "versions" / state.version

    def replace(self, writer: str, batch: int, write: Callable[[Path | None, Path], None]) -> bool:
        """Make a new version from the one before; False if this batch is in it already."""
        state = self.state()
        if state is not None and state.writer == writer and state.batch >= batch:
            return False
        number = 0 if state is None else state.number + 1
        version = f"{number:08d}-{writer[:8]}"
        folder = self.root / "versions" / version
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        write(self.current(), folder)
        made = Current(version=version, number=number, writer=writer, batch=batch)
        (self.root / "_goqueue").mkdir(exist_ok=True)
        write_atomically(self.root / "_goqueue" / "table.json", msgspec.json.encode(made))
        self._link(version)
        self._forget_old(number)
        return True

    def _link(self, version: str) -> None:
        fresh = self.root / ".current"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(Path("versions") / version)
        os.replace(fresh, self.root / "current")  # noqa: PTH105 - a link is replaced, not followed

    def _forget_old(self, number: int) -> None:
        for folder in (self.root / "versions").iterdir():
            head = folder.name.partition("-")[0]
            if head.isdigit() and int(head) <= number - VERSIONS_KEPT:
                shutil.rmtree(folder, ignore_errors=True)
