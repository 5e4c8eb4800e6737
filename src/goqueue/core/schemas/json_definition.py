"""JSON Schema, draft 7 and 2020-12: understood, compared and tried on messages.

Shape: calculator. Patterns run in linear time, and nothing is ever fetched.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from goqueue.core.schemas.definition import Break, Definition, Misfit
from goqueue.core.schemas.json_compare import JsonComparison
from goqueue.core.schemas.json_document import JsonDocument
from goqueue.core.schemas.json_validator import REASON_CHARACTERS_MAX, make_validator, pointer
from goqueue.core.schemas.schema import Resolved, Schema

_decode: Final = msgspec.json.Decoder().decode


class JsonDefinition(Definition):
    """A JSON schema with its validator."""

    def __init__(self, schema: Schema, resolved: Resolved) -> None:
        documents: dict[str, JsonDocument] = {}
        for name, other in resolved:
            documents[name] = JsonDocument(other.text, dict(documents))
        self.document = JsonDocument(schema.text, documents)
        self.document.check_expansion()
        self.validator = make_validator(self.document)
        super().__init__(
            schema, canonical=self.document.canonical(), record_name=self.document.title
        )

    def breaks_reading(self, writer: Definition) -> list[Break]:
        """Return why data written with another schema does not fit this one."""
        assert isinstance(writer, JsonDefinition), "of the same language"
        return JsonComparison(writer.document, self.document).breaks()

    def misfit(self, value: bytes) -> Misfit | None:
        """Return the first reason why a message does not fit."""
        try:
            parsed = _decode(value)
        except (ValueError, RecursionError) as error:
            return Misfit("", f"it is not JSON: {error}"[:REASON_CHARACTERS_MAX])
        try:
            if self.validator.is_valid(parsed):
                return None
            first = next(self.validator.iter_errors(parsed))
        except (ValueError, StopIteration) as fault:
            return Misfit("", f"it cannot be checked: {fault}"[:REASON_CHARACTERS_MAX])
        return Misfit(pointer(first.instance_path), first.message[:REASON_CHARACTERS_MAX])

    def misfits(self, values: Sequence[bytes]) -> dict[int, Misfit]:
        """Return those of many messages that do not fit; the usual case is that all do."""
        is_valid = self.validator.is_valid
        try:
            fit = [is_valid(_decode(value)) for value in values]
        except (ValueError, RecursionError):
            # One of them is not even JSON: each is looked at by itself.
            return super().misfits(values)
        if all(fit):
            return {}
        found = {row: self.misfit(values[row]) for row, fits in enumerate(fit) if not fits}
        return {row: misfit for row, misfit in found.items() if misfit is not None}
