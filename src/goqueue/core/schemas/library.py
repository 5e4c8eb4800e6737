"""Every schema by its id: texts, what they say in common, and who uses them.

Shape: decider, the changing half: ``apply`` only changes, the registry decides.
"""

from collections import Counter
from collections.abc import Iterator

from goqueue.base.errors import SchemaNotFoundError
from goqueue.base.ids import SchemaId
from goqueue.core.schemas.events import Defined, Undefined
from goqueue.core.schemas.schema import Schema


class Library:
    """Schemas by id and by fingerprint."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._schemas: dict[SchemaId, Defined] = {}
        self._ids: dict[bytes, SchemaId] = {}
        self._uses: Counter[SchemaId] = Counter()

    def __len__(self) -> int:
        return len(self._schemas)

    def __contains__(self, schema_id: SchemaId) -> bool:
        return schema_id in self._schemas

    def __iter__(self) -> Iterator[SchemaId]:
        return iter(self._schemas)

    def __repr__(self) -> str:
        return f"<Library of {len(self)} schemas, {self.size_bytes} bytes>"

    def get(self, schema_id: int) -> Schema:
        """Return a schema or raise."""
        found = self._schemas.get(SchemaId(schema_id))
        if found is None:
            raise SchemaNotFoundError(f"schema {schema_id} not found")
        return found.schema

    def find(self, fingerprint: bytes) -> SchemaId | None:
        """Return the id of a schema that says the same."""
        return self._ids.get(fingerprint)

    def uses(self, schema_id: SchemaId) -> int:
        """Return how many versions are this schema."""
        return self._uses[schema_id]

    def count(self, schema_id: SchemaId, change: int) -> None:
        """Note that a version with the schema came or went."""
        self._uses[schema_id] += change

    def apply(self, event: Defined | Undefined) -> None:
        """Change."""
        match event:
            case Defined(id=schema_id, fingerprint=fingerprint, schema=schema):
                self._schemas[schema_id] = event
                self._ids[fingerprint] = schema_id
                self.size_bytes += len(schema.text)
            case Undefined(id=schema_id):
                gone = self._schemas.pop(schema_id)
                del self._ids[gone.fingerprint]
                del self._uses[schema_id]
                self.size_bytes -= len(gone.schema.text)

    def snapshot(self, schema_id: SchemaId) -> Defined:
        """Return the event that rebuilds one schema."""
        return self._schemas[schema_id]
