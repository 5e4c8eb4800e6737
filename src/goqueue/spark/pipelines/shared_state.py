"""Shared readings on the disk: who writes what together, and how far they are.

STATE/PIPELINE/shared/PART-NUMBER/sinks.json        what it writes, and under which name
STATE/PIPELINE/shared/PART-NUMBER/checkpoint/       how far it is
"""

import shutil
import uuid
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from goqueue.base.errors import GoQueueError
from goqueue.spark.pipelines.atomic import write_atomically
from goqueue.spark.pipelines.sharing import free_name

MEMBERS: Final = "sinks.json"
CHECKPOINT: Final = "checkpoint"
WRITER_BYTES: Final = 16


class Members(msgspec.Struct, kw_only=True):
    """What a reading writes. The writer is the same for a sink that leaves with a copy."""

    writer: str
    sinks: list[str]

    def writer_of(self, sink: str) -> str:
        """Return under which name a sink counts the batches it was given."""
        text = f"{self.writer}/{sink}".encode()
        return blake2b(text, digest_size=WRITER_BYTES).hexdigest()


class SharedReadings:
    """All shared readings of one pipeline."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "shared"

    def checkpoint(self, name: str) -> Path:
        """Return where Spark keeps how far a reading is."""
        return self._folder / name / CHECKPOINT

    def members(self, name: str) -> Members:
        """Return what a reading writes."""
        file = self._folder / name / MEMBERS
        try:
            return msgspec.json.decode(file.read_bytes(), type=Members)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise GoQueueError(f"{file} cannot be read: {error}") from error

    def all(self) -> dict[str, list[str]]:
        """Return the readings with what they write; a sink belongs to one of them."""
        found: dict[str, list[str]] = {}
        taken: set[str] = set()
        for file in sorted(self._folder.glob(f"*/{MEMBERS}")):
            name = file.parent.name
            found[name] = [one for one in self.members(name).sinks if one not in taken]
            taken |= {*found[name]}
        return found

    def begin(self, name: str, sinks: list[str]) -> Members:
        """Note what a new reading writes, or return what an old one does."""
        if (self._folder / name / MEMBERS).exists():
            return self.members(name)
        made = Members(writer=uuid.uuid4().hex, sinks=sinks)
        self._write(name, made)
        return made

    def leave(self, name: str, sink: str, part: str) -> None:
        """Let a sink go on by itself from where it is, reading a part."""
        members = self.members(name)
        if self.checkpoint(name).is_dir():
            fresh = free_name(part, [one.name for one in self._folder.iterdir()])
            copied = self.checkpoint(fresh)
            copied.parent.mkdir()
            shutil.copytree(self.checkpoint(name), copied)
            # Spark runs one query of an id at a time.
            (copied / "metadata").write_bytes(msgspec.json.encode({"id": str(uuid.uuid4())}))
            (copied / ".metadata.crc").unlink(missing_ok=True)
            self._write(fresh, Members(writer=members.writer, sinks=[sink]))
        self.forget(sink, only=name)

    def forget(self, sink: str, *, only: str = "") -> None:
        """Take a sink out of its reading; one that writes nothing any more is removed."""
        for file in sorted(self._folder.glob(f"{only or '*'}/{MEMBERS}")):
            members = self.members(file.parent.name)
            if sink not in members.sinks:
                continue
            members.sinks.remove(sink)
            if members.sinks:
                self._write(file.parent.name, members)
            else:
                shutil.rmtree(file.parent)

    def clear(self) -> None:
        """Forget everything."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self, name: str, members: Members) -> None:
        (self._folder / name).mkdir(parents=True, exist_ok=True)
        write_atomically(self._folder / name / MEMBERS, msgspec.json.encode(members))
