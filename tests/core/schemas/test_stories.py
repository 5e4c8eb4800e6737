"""The schema registry, told as stories. See tests/golden/schemas."""

import os
from pathlib import Path

import pytest

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import SchemaVersion, SubjectName
from goqueue.core.schemas.compatibility import read_compatibility
from goqueue.core.schemas.events import Event
from goqueue.core.schemas.registry import Registry
from goqueue.core.schemas.schema import Reference, read_schema
from goqueue.testing import golden

GOLDEN = Path(__file__).parents[2] / "golden" / "schemas"


class RegistryShell:
    """``register SUBJECT TYPE [name=subject/version …] TEXT`` and so on; ``restart`` replays."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.journal: list[Event] = []

    def execute(self, command: str) -> str:
        verb, _, rest = command.partition(" ")
        try:
            return str(getattr(self, verb)(rest))
        except GoQueueError as error:
            return f"{error.code}: {error.message.replace('; ', chr(10) + '  ')}"

    def _commit(self, events: tuple[Event, ...]) -> str:
        for event in events:
            self.journal.append(event)
            self.registry.apply(event)
        return " ".join(type(event).__name__ for event in events) or "nothing new"

    def _read(self, rest: str) -> tuple[str, object]:
        subject, kind, text = rest.split(maxsplit=2)
        references = []
        while "=" in text.split(maxsplit=1)[0] and text[0] not in "{[":
            word, text = text.split(maxsplit=1)
            name, place = word.split("=")
            other, version = place.split("/")
            references.append(
                Reference(
                    name=name, subject=SubjectName(other), version=SchemaVersion(int(version))
                )
            )
        return subject, read_schema(text, kind, references)

    def register(self, rest: str) -> str:
        subject, schema = self._read(rest)
        decision = self.registry.register(subject, schema)  # type: ignore[arg-type]
        done = self._commit(decision.events)
        return f"{done}: id {decision.reply.id}, version {decision.reply.version}"

    def check(self, rest: str) -> str:
        subject, schema = self._read(rest)
        found = self.registry.check_all(subject, schema)  # type: ignore[arg-type]
        return "\n".join(found) or "compatible"

    def find(self, rest: str) -> str:
        subject, schema = self._read(rest)
        stored = self.registry.lookup(subject, schema)  # type: ignore[arg-type]
        return f"version {stored.version}, id {stored.id}"

    def get(self, rest: str) -> str:
        subject, version = rest.split()
        stored = self.registry.get(subject, None if version == "latest" else int(version))
        return f"version {stored.version}, id {stored.id}: {stored.schema.text}"

    def id(self, rest: str) -> str:
        stored = self.registry.by_id(int(rest))
        hidden = ", deleted" if stored.is_deleted else ""
        return f"{stored.subject} version {stored.version}{hidden}"

    def delete(self, rest: str) -> str:
        return self._delete(*rest.split(), is_permanent=False)

    def purge(self, rest: str) -> str:
        return self._delete(*rest.split(), is_permanent=True)

    def _delete(self, subject: str, version: str = "", *, is_permanent: bool) -> str:
        if version:
            one = self.registry.delete_version(subject, int(version), is_permanent=is_permanent)
            return self._commit(one.events)
        return self._commit(self.registry.delete_subject(subject, is_permanent=is_permanent).events)

    def config(self, rest: str) -> str:
        name, mode = rest.split()
        subject = None if name == "*" else name
        return self._commit(self.registry.configure(subject, read_compatibility(mode)).events)

    def lock(self, rest: str) -> str:
        return self._commit(self.registry.lock(rest, is_read_only=True).events)

    def show(self, _: str = "") -> str:
        lines = [
            f"{one.name} ({self.registry.compatibility_of(one.name)}): "
            + ", ".join(
                f"{version}{' deleted' if one.is_deleted(version) else ''} = id {schema_id}"
                for version, schema_id in one
            )
            for one in self.registry.subjects(with_deleted=True)
        ]
        return "\n".join(lines) or "empty"

    def restart(self, _: str = "") -> str:
        self.registry = Registry()
        for event in self.journal:
            self.registry.apply(event)
        return self.show()

    def compact(self, _: str = "") -> str:
        registry = self.registry
        self.journal = [
            *registry.root_snapshot(),
            *(registry.library.snapshot(one) for one in registry.library),
            *(
                event
                for one in registry.subjects(with_deleted=True)
                for event in registry.subject_snapshot(one.name)
            ),
        ]
        return f"{len(self.journal)} events"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    """Each story reads as it was reviewed; GOLDEN_REWRITE=1 accepts what it says now."""
    script = path.read_text()
    told = golden.run(script, RegistryShell().execute)
    if os.environ.get("GOLDEN_REWRITE"):
        path.write_text(told)

    assert told == script
