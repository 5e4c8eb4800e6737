"""A lake: Parquet files in folders, to which batches are added exactly once.

    ROOT/topic=orders/date=2026-01-31/hour=07/WRITER-BATCH-NUMBER.parquet
    ROOT/_goqueue/lake.json              columns, and by which of them the folders are made
    ROOT/_goqueue/pending/ID.json        a change that is decided: it is finished after any crash
    ROOT/_goqueue/writers/WRITER.json    the last batch of a writer
    ROOT/_goqueue/staging/ID/            files of a change that is not decided

A batch is written aside, then decided by one file that says what moves where, then moved. Whoever
comes after a crash finishes what was decided and throws away what was not.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from goqueue.base.errors import GoQueueError
from goqueue.spark.pipelines.atomic import write_atomically

INSIDE: Final = "_goqueue"
SUFFIX: Final = ".parquet"
WRITER_CHARACTERS: Final = 8

Stage = Callable[[Path], None]


class LakeError(GoQueueError):
    """A lake does not fit what is to be written to it or read from it."""

    code = "lake"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A decided change: files to be moved into place, and files that go. Paths are below ROOT."""

    id: str
    writer: str = ""
    batch: int = -1
    add: dict[str, str] = {}
    """Where a file is staged, and where it goes."""
    remove: list[str] = []


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """What a lake is made of: its columns as Spark writes them, and how its folders are made."""

    columns: dict[str, Any]
    partition_by: list[str]


@dataclass(frozen=True, slots=True)
class Lake:
    """One lake on a local or mounted file system."""

    root: Path

    @property
    def _inside(self) -> Path:
        return self.root / INSIDE

    # What it is.

    def layout(self) -> Layout | None:
        """Return what the lake is made of, None if nothing was written yet."""
        try:
            return msgspec.json.decode((self._inside / "lake.json").read_bytes(), type=Layout)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise LakeError(f"{self._inside / 'lake.json'} cannot be read: {error}") from error

    def prepare(self, layout: Layout) -> None:
        """Take a layout on; one that is there must fit, new columns may come."""
        known = self.layout()
        if known == layout:
            return
        if known is not None:
            layout = _merge(known, layout, self.root)
        self._inside.mkdir(parents=True, exist_ok=True)
        write_atomically(self._inside / "lake.json", msgspec.json.encode(layout))

    def files(self) -> list[Path]:
        """Return the files of the lake as of one moment: no change is half seen."""
        with self._locked():
            self._recover()
            return sorted(_parquet_below(self.root))

    # Changing it.

    def commit(self, writer: str, batch: int, stage: Stage) -> bool:
        """Add the files that ``stage`` writes into a folder; False if this batch is there."""
        with self._locked():
            self._recover()
            if self._last_batch(writer) >= batch:
                return False
        name = f"{writer[:WRITER_CHARACTERS]}-{batch:08d}"
        folder = self._inside / "staging" / f"{writer}-{batch}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        stage(folder)
        add: dict[str, str] = {}
        for number, file in enumerate(sorted(_parquet_below(folder))):
            final = file.relative_to(folder).parent / f"{name}-{number:04d}{SUFFIX}"
            add[str(file.relative_to(self.root))] = str(final)
        change = Change(id=f"{writer}-{batch}", writer=writer, batch=batch, add=add)
        self.decide(change)
        return True

    def decide(self, change: Change) -> None:
        """Make sure a change happens, and let it happen."""
        for staged in change.add:
            _sync(self.root / staged)
        with self._locked():
            pending = self._inside / "pending"
            pending.mkdir(parents=True, exist_ok=True)
            write_atomically(pending / f"{change.id}.json", msgspec.json.encode(change))
            self._finish(change)

    def recover(self) -> None:
        """Finish what was decided before a crash."""
        with self._locked():
            self._recover()

    def staging(self, change_id: str) -> Path:
        """Return an empty folder for the files of a change."""
        folder = self._inside / "staging" / change_id
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def sweep(self, *, older_than_s: float) -> None:
        """Throw away what was staged long ago and never decided."""
        now_s = time.time()
        with self._locked():
            self._recover()
            staging = self._inside / "staging"
            for folder in staging.iterdir() if staging.is_dir() else ():
                if now_s - folder.stat().st_mtime > older_than_s:
                    shutil.rmtree(folder, ignore_errors=True)

    def _recover(self) -> None:
        for change in self._pending():
            self._finish(change)

    def _finish(self, change: Change) -> None:
        """Carry a change out; what was done of it before a crash is not done again."""
        folders: set[Path] = set()
        for staged, final in change.add.items():
            target = self.root / final
            target.parent.mkdir(parents=True, exist_ok=True)
            if (self.root / staged).exists():
                (self.root / staged).replace(target)
                folders.add(target.parent)
        for name in change.remove:
            (self.root / name).unlink(missing_ok=True)
        for folder in folders:
            _sync(folder)
        if change.writer:
            writers = self._inside / "writers"
            writers.mkdir(exist_ok=True)
            content = json.dumps({"batch": change.batch}).encode()
            write_atomically(writers / f"{change.writer}.json", content)
        (self._inside / "pending" / f"{change.id}.json").unlink(missing_ok=True)
        shutil.rmtree(self._inside / "staging" / change.id, ignore_errors=True)

    def _pending(self) -> list[Change]:
        changes: list[Change] = []
        for path in sorted((self._inside / "pending").glob("*.json")):
            try:
                changes.append(msgspec.json.decode(path.read_bytes(), type=Change))
            except FileNotFoundError:
                continue
        return changes

    def _last_batch(self, writer: str) -> int:
        try:
            return int(
                json.loads((self._inside / "writers" / f"{writer}.json").read_bytes())["batch"]
            )
        except FileNotFoundError:
            return -1

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lake: one process at a time changes it, and nobody looks meanwhile."""
        self._inside.mkdir(parents=True, exist_ok=True)
        with (self._inside / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _merge(known: Layout, new: Layout, root: Path) -> Layout:
    if known.partition_by != new.partition_by:
        raise LakeError(
            f"{root} has folders by {', '.join(known.partition_by) or 'nothing'},"
            f" not by {', '.join(new.partition_by) or 'nothing'}"
        )
    before, after = _types(known), _types(new)
    for name, kind in after.items():
        if before.get(name, kind) != kind:
            raise LakeError(f"{root}: column {name} is {_brief(before[name])}, not {_brief(kind)}")
    added = [field for field in new.columns["fields"] if field["name"] not in before]
    columns = {**known.columns, "fields": [*known.columns["fields"], *added]}
    return Layout(columns=columns, partition_by=known.partition_by)


def _types(layout: Layout) -> Mapping[str, Any]:
    return {field["name"]: field["type"] for field in layout.columns["fields"]}


def _brief(kind: object) -> str:
    return kind if isinstance(kind, str) else json.dumps(kind)[:80]


def _parquet_below(root: Path) -> Iterator[Path]:
    """Yield the data files below a folder, without those that begin with . or _."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        for name in names:
            if name.endswith(SUFFIX) and not name.startswith((".", "_")):
                yield Path(folder, name)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
