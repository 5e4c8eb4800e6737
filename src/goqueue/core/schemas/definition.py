"""A schema that was understood: it can be compared with others and tried on messages.

Shape: calculator. One class per language; this is what they have in common.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from goqueue.core.schemas.schema import Schema, SchemaType

FINGERPRINT_BYTES: Final = 16


class Break(msgspec.Struct, frozen=True):
    """One reason why data of one schema cannot be read with another."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path or '/'}: {self.reason}"


class Misfit(msgspec.Struct, frozen=True):
    """Why a message does not fit a schema."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path or '/'}: {self.reason}"


class Definition(ABC):
    """What is known of one schema."""

    def __init__(self, schema: Schema, *, canonical: bytes, record_name: str | None) -> None:
        self.schema = schema
        self.record_name = record_name
        """Full name of the record, where the language has such names."""
        self.fingerprint = fingerprint(schema, canonical)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.record_name or self.fingerprint.hex()}>"

    def serialized(self) -> bytes | None:
        """Return the schema in a form of bytes, where the language has one."""
        return None

    @property
    def type(self) -> SchemaType:
        """The language."""
        return self.schema.type

    @abstractmethod
    def breaks_reading(self, writer: "Definition") -> list[Break]:
        """Return why data written with ``writer`` of the same language cannot be read with this."""

    @abstractmethod
    def misfit(self, value: bytes) -> Misfit | None:
        """Return why a message does not fit, or None if it does."""

    def misfits(self, values: Sequence[bytes]) -> dict[int, Misfit]:
        """Return those of many messages that do not fit, by their place."""
        found: dict[int, Misfit] = {}
        for row, value in enumerate(values):
            misfit = self.misfit(value)
            if misfit is not None:
                found[row] = misfit
        return found

    def framed_misfit(self, payload: bytes) -> Misfit | None:
        """Return why what follows a schema id does not fit."""
        return self.misfit(payload)


def fingerprint(schema: Schema, canonical: bytes) -> bytes:
    """Return what schemas that say the same have in common."""
    digest = blake2b(canonical, digest_size=FINGERPRINT_BYTES, person=schema.type.encode())
    for reference in schema.references:
        digest.update(f"\0{reference.name}\0{reference.subject}\0{reference.version}".encode())
    return digest.digest()
