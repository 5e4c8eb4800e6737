"""A JSON Schema as a document: its parts, where references lead, and how much there is of it.

Shape: codec. Everything is bounded here, before a validator is made of it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from goqueue.base.errors import InvalidSchemaError
from goqueue.base.limits import (
    SCHEMA_CHAIN_MAX,
    SCHEMA_DEPTH_MAX,
    SCHEMA_EXPANSION_MAX,
    SCHEMA_NODES_MAX,
)

Node = dict[str, Any] | bool

DRAFT_7: Final = "draft 7"
DRAFT_2020: Final = "2020-12"
_DRAFTS: Final = {
    "http://json-schema.org/draft-07/schema": DRAFT_7,
    "https://json-schema.org/draft-07/schema": DRAFT_7,
    "https://json-schema.org/draft/2020-12/schema": DRAFT_2020,
    "http://json-schema.org/draft/2020-12/schema": DRAFT_2020,
}

LISTED: Final = ("allOf", "anyOf", "oneOf")
"""Keywords with schemas for the same place of a message, in a list."""
SINGLE: Final = ("not", "if", "then", "else")
"""Keywords with one schema for the same place of a message."""
NAMED: Final = ("dependentSchemas", "dependencies")
"""Keywords with schemas for the same place of a message, by name."""


class JsonDocument:
    """One schema text, read."""

    def __init__(self, text: str, others: Mapping[str, "JsonDocument"] | None = None) -> None:
        self.root = _read(text)
        self.others = others or {}
        self.draft = _draft(self.root)
        self._by_id: dict[str, Node] = {}
        measure(self.root)
        self._note_ids(self.root)
        self._measures: dict[int, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"<JsonDocument of {self.draft}>"

    def canonical(self) -> bytes:
        """Return the text without what does not matter: spaces and the order of keys."""
        return msgspec.json.encode(self.root, order="sorted")

    @property
    def title(self) -> str | None:
        """What the schema calls itself."""
        title = self.root.get("title") if isinstance(self.root, dict) else None
        return title if isinstance(title, str) else None

    def follow(self, reference: str) -> tuple["JsonDocument", Node] | None:
        """Return where a reference leads, or None if that is not known here."""
        base, _, fragment = reference.partition("#")
        if not base:
            found = self._within(fragment)
            return None if found is None else (self, found)
        if base in self._by_id:
            node = self._by_id[base]
            return (self, node) if not fragment else None
        other = self.others.get(base)
        if other is None:
            return None
        found = other._within(fragment)  # noqa: SLF001 - of the same class
        return None if found is None else (other, found)

    def check_expansion(self) -> None:
        """Refuse references that lead back to the same place, and schemas that explode."""
        for node in parts(self.root):
            weight, _ = self._measure(node, frozenset())
            if weight > SCHEMA_EXPANSION_MAX:
                raise InvalidSchemaError(
                    "invalid schema: its references and combinations multiply to more than"
                    f" {SCHEMA_EXPANSION_MAX} parts for one value"
                )

    def _measure(self, node: Node, above: frozenset[int]) -> tuple[int, int]:
        """Return how many parts look at one value, and through how many it goes at most."""
        known = self._measures.get(id(node))
        if known is not None:
            return known
        if id(node) in above:
            raise InvalidSchemaError("invalid schema: a reference leads back to itself")
        weight = 1
        height = SCHEMA_CHAIN_MAX if len(above) > SCHEMA_CHAIN_MAX else 0
        children = () if height else self.in_place(node)
        for document, child in children:
            below = document._measure(child, above | {id(node)})  # noqa: SLF001 - same class
            weight, height = weight + below[0], max(height, below[1])
        if height >= SCHEMA_CHAIN_MAX:
            raise InvalidSchemaError(
                f"invalid schema: a chain of more than {SCHEMA_CHAIN_MAX} references"
            )
        self._measures[id(node)] = weight, height + 1
        return weight, height + 1

    def in_place(self, node: Node) -> Iterator[tuple["JsonDocument", Node]]:
        """Yield the schemas that look at the same value as a schema."""
        if not isinstance(node, dict):
            return
        reference = node.get("$ref")
        if isinstance(reference, str):
            target = self.follow(reference)
            if target is not None:
                yield target
            if self.draft == DRAFT_7:
                return
        for child in _beside(node):
            if isinstance(child, dict):
                yield self, child

    def _within(self, fragment: str) -> Node | None:
        if not fragment:
            return self.root
        if not fragment.startswith("/"):
            return self._by_id.get(f"#{fragment}")
        found: Any = self.root
        for step in fragment[1:].split("/"):
            key = _unescape(step)
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                return None
        return found if isinstance(found, dict | bool) else None

    def _note_ids(self, root: Node) -> None:
        for node in parts(root):
            if not isinstance(node, dict):
                continue
            for name, prefix in (("$id", ""), ("$anchor", "#")):
                value = node.get(name)
                if isinstance(value, str):
                    self._by_id.setdefault(prefix + value, node)


def parts(root: Any) -> Iterator[Node]:  # noqa: ANN401 - any JSON
    """Yield every object in a document; some of them may be no schemas, which does no harm."""
    waiting: list[Any] = [root]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict):
            yield current
            waiting += current.values()
        elif isinstance(current, list):
            waiting += current


def _read(text: str) -> Node:
    try:
        root = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidSchemaError(f"invalid schema: it is not JSON: {error}") from error
    except RecursionError as error:
        raise InvalidSchemaError("invalid schema: nested too deeply") from error
    if not isinstance(root, dict | bool):
        raise InvalidSchemaError("invalid schema: a JSON schema is an object, true or false")
    return root


def measure(root: object) -> None:
    """Refuse a document that is nested too deeply or has too many parts."""
    nodes = 0
    level: list[Any] = [root]
    for _ in range(SCHEMA_DEPTH_MAX):
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below += one.values()
            elif isinstance(one, list):
                below += one
        nodes += len(level)
        if nodes > SCHEMA_NODES_MAX:
            raise InvalidSchemaError(f"invalid schema: more than {SCHEMA_NODES_MAX} parts")
        level = below
        if not level:
            return
    raise InvalidSchemaError(f"invalid schema: nested more than {SCHEMA_DEPTH_MAX} deep")


def _draft(root: Node) -> str:
    named = root.get("$schema") if isinstance(root, dict) else None
    if named is None:
        return DRAFT_7
    draft = _DRAFTS.get(named.rstrip("#")) if isinstance(named, str) else None
    if draft is None:
        raise InvalidSchemaError(
            f"invalid schema: $schema {str(named)[:80]!a} is not known; there are"
            f" {', '.join(sorted({*_DRAFTS.values()}))}"
        )
    return draft


def _unescape(step: str) -> str:
    plain = step.replace("~1", "/").replace("~0", "~")
    if "%" not in plain:
        return plain
    raw = plain.encode()
    pieces = raw.split(b"%")
    out = [pieces[0]]
    for piece in pieces[1:]:
        try:
            out += [bytes([int(piece[:2], 16)]), piece[2:]]
        except ValueError:
            out += [b"%", piece]
    return b"".join(out).decode(errors="replace")


def _beside(node: dict[str, Any]) -> Iterator[Any]:
    """Yield what stands in the keywords that look at the same value."""
    for name in LISTED:
        yield from _list_of(node.get(name))
    for name in SINGLE:
        yield node.get(name)
    for name in NAMED:
        yield from _mapping_of(node.get(name)).values()


def _list_of(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping_of(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
