"""Whether messages fit the schema of their topic.

Shape: calculator. A value is plain, or it names its schema (the format of the registry's clients):

     0   1           5
    +---+-----------+---------
    | 0 | schema id | value …        big-endian; Protobuf puts the type's place in its file first
    +---+-----------+---------
"""

import struct
from collections.abc import Sequence
from typing import Final

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import SchemaId
from goqueue.core.schemas.definition import Definition
from goqueue.core.schemas.registry import Registry
from goqueue.core.schemas.schema import SchemaType
from goqueue.core.schemas.strategy import BY_RECORD, BY_TOPIC, VALUE_SUFFIX
from goqueue.core.schemas.subject import Subject

_FRAME: Final = struct.Struct(">bI")
_MAGIC: Final = 0


class Judge:
    """Judges messages of one topic by the schemas as they are now."""

    def __init__(self, registry: Registry, *, topic: str, strategy: str) -> None:
        self._registry = registry
        self._topic = topic
        self._strategy = strategy
        self._subject: Subject | None = None
        self._latest: Definition | None = None
        self._label = ""
        if strategy == BY_TOPIC:
            self._find_subject()

    def __repr__(self) -> str:
        return f"<Judge of {self._topic} by {self._strategy}>"

    def _find_subject(self) -> None:
        """Take the subject of the topic's own name, or the one the registry's clients make."""
        for name in (self._topic, self._topic + VALUE_SUFFIX):
            subject = self._registry.find(name)
            if subject is not None:
                version = subject.live[-1]
                self._subject = subject
                self._latest = self._registry.definition(subject.id_of(version))
                self._label = f"subject {subject.name} version {version}: "
                return

    def misfits(self, values: Sequence[bytes | None]) -> dict[int, str]:
        """Return those that do not fit, by their place, and why; a tombstone always fits."""
        latest = self._latest
        plain: list[int] = []
        found: dict[int, str] = {}
        for row, value in enumerate(values):
            if value is None:
                continue
            if latest is not None and (value[:1] != b"\0" or len(value) < _FRAME.size):
                plain.append(row)
                continue
            reason = self._judge(value)
            if reason is not None:
                found[row] = reason
        if latest is not None and plain:
            whole = len(plain) == len(values)
            chosen = values if whole else [values[row] for row in plain]
            for place, misfit in latest.misfits(chosen).items():  # type: ignore[arg-type]
                found[plain[place]] = f"{self._label}{misfit}"
        return found

    def _judge(self, value: bytes) -> str | None:
        """Return why a value does not fit that may name its schema."""
        if len(value) < _FRAME.size or value[0] != _MAGIC:
            if self._strategy != BY_TOPIC:
                return "the value does not name its schema, so its subject is not known"
            return (
                f"no schema is registered for subject {self._topic} or {self._topic}{VALUE_SUFFIX}"
            )
        schema_id = SchemaId(_FRAME.unpack_from(value)[1])
        reason = self._judge_framed(schema_id, value[_FRAME.size :])
        if reason is None or self._latest is None or self._latest.type is SchemaType.JSON:
            return reason
        # Plain bytes may begin with a zero, too.
        misfit = self._latest.misfit(value)
        return None if misfit is None else reason

    def _judge_framed(self, schema_id: SchemaId, payload: bytes) -> str | None:
        try:
            definition = self._registry.definition(schema_id)
        except GoQueueError:
            return f"there is no schema {schema_id}"
        subject = self._subject_of(definition)
        if isinstance(subject, str):
            return subject
        versions = subject.versions_of(schema_id, with_deleted=False)
        if not versions:
            return f"schema {schema_id} is no version of subject {subject.name}"
        misfit = definition.framed_misfit(payload)
        if misfit is None:
            return None
        return f"subject {subject.name} version {versions[-1]}: {misfit}"

    def _subject_of(self, definition: Definition) -> Subject | str:
        if self._strategy == BY_TOPIC:
            return self._subject or f"no schema is registered for subject {self._topic}"
        record = definition.record_name
        if record is None:
            return "the schema has no record name, so its subject is not known"
        name = record if self._strategy == BY_RECORD else f"{self._topic}-{record}"
        return self._registry.find(name) or f"subject {name} not found"
