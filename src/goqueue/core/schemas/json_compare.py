"""Whether all data of one JSON schema fits another, and where it does not.

Shape: calculator. A verdict without breaks is a proof for every value whose properties the older
schema names: what an open object may hold beside them is taken to be absent (ADR 0010). What
cannot be proved is a break.
"""

from typing import Any, Final

import jsonschema_rs
import msgspec

from goqueue.base.errors import InvalidSchemaError
from goqueue.base.limits import (
    SCHEMA_BREAKS_MAX,
    SCHEMA_COMPARE_STEPS_MAX,
    SCHEMA_DEPTH_MAX,
    SCHEMA_PATTERN_BYTES_MAX,
)
from goqueue.core.schemas import json_arrays, json_objects, json_scalars
from goqueue.core.schemas.definition import Break
from goqueue.core.schemas.json_document import JsonDocument, Node, parts
from goqueue.core.schemas.json_validator import make_validator
from goqueue.core.schemas.json_view import (
    FRACTION,
    SchemaView,
    Views,
    are_same,
    flatten,
    identity,
    own_values,
    takes_everything,
    takes_nothing,
    types_of,
    values_of,
)

CHOICES_MAX: Final = 8
"""Choices of the writer that are looked into, one within the other."""
VALUES_MAX: Final = 1_000
_OPAQUE: Final = ("$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems")


class _JsonTooComplexError(Exception):
    """The comparison takes too many steps."""


class JsonComparison:
    """Compares a writer's schema with a reader's."""

    def __init__(self, writer: JsonDocument, reader: JsonDocument) -> None:
        self._writer = SchemaView(writer, writer.root)
        self._reader = SchemaView(reader, reader.root)
        self._is_same = are_same(writer.root, reader.root)
        self._open: set[tuple[object, ...]] = set()
        self._steps = 0
        self._validators: dict[int, jsonschema_rs.Validator | None] = {}
        self._patterns: dict[str, jsonschema_rs.Validator] = {}
        # Kept, because they are told apart by where they lie in memory.
        self._made: list[Node] = []

    def breaks(self) -> list[Break]:
        """Return what of the writer's data the reader does not take."""
        try:
            return self.contained([self._writer], self._reader, "")[:SCHEMA_BREAKS_MAX]
        except (_JsonTooComplexError, RecursionError):
            return [Break("", "the schemas are too intricate to be compared")]

    def contained(self, writers: Views, reader: SchemaView, path: str) -> list[Break]:
        """Return why values that fit all of the writers may not fit the reader."""
        self._steps += 1
        if self._steps > SCHEMA_COMPARE_STEPS_MAX or path.count("/") > 4 * SCHEMA_DEPTH_MAX:
            raise _JsonTooComplexError
        flat = flatten(writers)
        if flat is None or takes_everything(reader.node):
            return []
        if takes_nothing(reader.node):
            return [Break(path, "nothing is allowed here any more")]
        key = (*(id(view.node) for view in flat), None, id(reader.node))
        if key in self._open:
            return []
        self._open.add(key)
        try:
            return self._compare(flat, reader, path, is_split=False, choices=0)
        finally:
            self._open.discard(key)

    def _compare(
        self, writers: Views, reader: SchemaView, path: str, *, is_split: bool, choices: int
    ) -> list[Break]:
        """Compare as a whole and, where that does not do, alternative by alternative."""
        breaks = self._compare_whole(writers, reader, path)
        if not breaks or choices >= CHOICES_MAX:
            return breaks
        self._steps += 1
        if self._steps > SCHEMA_COMPARE_STEPS_MAX:
            raise _JsonTooComplexError
        rest, branches = self._take_choice(writers)
        if not branches and not is_split:
            is_split, branches = True, self._by_type(writers, reader)
        if not branches:
            return breaks
        for branch in branches:
            flat = flatten([*rest, branch])
            if flat is None:
                continue
            breaks = self._compare(flat, reader, path, is_split=is_split, choices=choices + 1)
            if breaks:
                return breaks
        return []

    def _take_choice(self, writers: Views) -> tuple[list[SchemaView], list[SchemaView]]:
        """Return the writers without their first choice, and the branches of that choice."""
        for number, view in enumerate(writers):
            for keyword in ("anyOf", "oneOf"):
                branches = view.get(keyword)
                if isinstance(branches, list) and isinstance(view.node, dict):
                    made: Node = {k: v for k, v in view.node.items() if k not in {keyword, "allOf"}}
                    self._made.append(made)
                    rest = [*writers[:number], view.inside(made), *writers[number + 1 :]]
                    return rest, [view.inside(branch) for branch in branches]
        return list(writers), []

    def _by_type(self, writers: Views, reader: SchemaView) -> list[SchemaView]:
        """Return the types of the writers one by one, where the reader has branches for them."""
        if not (reader.get("anyOf") or reader.get("oneOf")):
            return []
        nodes: list[Node] = [
            {"type": name} for name in sorted({_plain(name) for name in types_of(writers)})
        ]
        self._made += nodes
        return [reader.inside(node) for node in nodes]

    def _compare_whole(self, writers: Views, reader: SchemaView, path: str) -> list[Break]:
        if any(self._is_equal(view, reader) for view in writers):
            return []
        reference = reader.get("$ref")
        breaks: list[Break] = []
        if isinstance(reference, str):
            target = reader.document.follow(reference)
            if target is None:
                return [Break(path, f"the reference {reference} cannot be followed")]
            breaks += self.contained(writers, SchemaView(*target), path)
            if reader.is_draft_7:
                return breaks
        types = types_of(writers)
        if not types:
            return []
        values = values_of(writers, types)
        if values is not None and len(values) <= VALUES_MAX:
            told = self._check_values(values, reader, path)
            if told is not None:
                return breaks + told
        return breaks + self._compare_keywords(writers, reader, path, types)

    def _compare_keywords(
        self, writers: Views, reader: SchemaView, path: str, types: frozenset[str]
    ) -> list[Break]:
        breaks = json_scalars.breaks(writers, reader, path, types=types)
        breaks += self._check_combinations(writers, reader, path)
        if "object" in types:
            breaks += json_objects.breaks(self, writers, reader, path)
        if "array" in types:
            breaks += json_arrays.breaks(self, writers, reader, path)
        breaks += [
            Break(path, f"{keyword} cannot be compared")
            for keyword in _OPAQUE
            if reader.get(keyword) not in (None, True)
        ]
        return breaks

    def _is_equal(self, writer: SchemaView, reader: SchemaView) -> bool:
        return writer.node is reader.node or self._is_same_text(writer.node, reader.node)

    def _is_same_text(self, ours: object, theirs: object) -> bool:
        """Return True if two parts say the same: equal, and without references that may differ."""
        if not are_same(ours, theirs):
            return False
        return self._is_same or not any(
            isinstance(one, dict) and "$ref" in one for one in parts(theirs)
        )

    def says_same(self, writer: SchemaView, reader: SchemaView, *keywords: str) -> bool:
        """Return True if keywords stand in both with the same meaning, or in neither."""
        return all(self._is_same_text(writer.get(one), reader.get(one)) for one in keywords)

    # Values, one by one.

    def _check_values(self, values: list[Any], reader: SchemaView, path: str) -> list[Break] | None:
        """Try every value there is on the reader; None where that cannot be done."""
        validator = self._validator(reader)
        if validator is None:
            return None
        refused = [value for value in values if not validator.is_valid(value)][:SCHEMA_BREAKS_MAX]
        return [Break(path, f"the value {_show(value)} is not allowed") for value in refused]

    def _validator(self, reader: SchemaView) -> jsonschema_rs.Validator | None:
        known = id(reader.node)
        if known not in self._validators:
            self._validators[known] = _standalone(reader)
        return self._validators[known]

    def matches(self, pattern: str, name: str) -> bool:
        """Return True if a pattern finds something in a name, in linear time."""
        validator = self._patterns.get(pattern)
        if validator is None:
            options = jsonschema_rs.RegexOptions(
                size_limit=SCHEMA_PATTERN_BYTES_MAX, dfa_size_limit=SCHEMA_PATTERN_BYTES_MAX
            )
            validator = jsonschema_rs.Draft7Validator({"pattern": pattern}, pattern_options=options)
            self._patterns[pattern] = validator
        return validator.is_valid(name)

    # Combinations in the reader.

    def _check_combinations(self, writers: Views, reader: SchemaView, path: str) -> list[Break]:
        breaks: list[Break] = []
        for part in reader.get("allOf") or ():
            breaks += self.contained(writers, reader.inside(part), path)
        for keyword in ("anyOf", "oneOf"):
            branches = reader.get(keyword)
            if branches:
                views = [reader.inside(branch) for branch in branches]
                breaks += self._check_branches(writers, views, path, keyword=keyword)
        refused = reader.get("not")
        if refused is not None and not self._keeps_out(writers, reader.inside(refused)):
            breaks.append(Break(path, "not: it may refuse what was allowed"))
        if reader.get("if") is not None:
            breaks += self._check_condition(writers, reader, path)
        return breaks

    def _check_branches(
        self, writers: Views, branches: list[SchemaView], path: str, *, keyword: str
    ) -> list[Break]:
        attempts: list[list[Break]] = []
        for number, branch in enumerate(branches):
            attempts.append(self.contained(writers, branch, path))
            if attempts[-1]:
                continue
            others = [*branches[:number], *branches[number + 1 :]]
            if keyword == "oneOf" and not all(self.are_disjoint(writers, one) for one in others):
                return [Break(path, "oneOf: more than one branch may take it")]
            return []
        best = min(attempts, key=len)
        return [Break(path, f"{keyword}: no branch takes it ({best[0]})")]

    def _check_condition(self, writers: Views, reader: SchemaView, path: str) -> list[Break]:
        if any(self.says_same(view, reader, "if", "then", "else") for view in writers):
            return []
        breaks: list[Break] = []
        for keyword in ("then", "else"):
            part = reader.get(keyword)
            if part is not None:
                breaks += self.contained(writers, reader.inside(part), path)
        return breaks

    def _keeps_out(self, writers: Views, refused: SchemaView) -> bool:
        """Return True if no value that fits the writers fits what the reader refuses."""
        said = any(
            view.get("not") is not None and self._is_equal(view.inside(view.get("not")), refused)
            for view in writers
        )
        return said or self.are_disjoint(writers, refused)

    def are_disjoint(self, writers: Views, other: SchemaView) -> bool:
        """Return True if surely no value fits both."""
        theirs, ours = flatten([other]), flatten(writers)
        if theirs is None or ours is None:
            return True
        common = types_of(ours) & types_of(theirs)
        if not common:
            return True
        if _named_apart(ours, theirs):
            return True
        required = {name for view in ours for name in view.get("required") or ()}
        required &= {name for view in theirs for name in view.get("required") or ()}
        if common != {"object"}:
            return False
        return any(_named_apart(_at(ours, name), _at(theirs, name)) for name in required)


def _at(views: Views, name: str) -> list[SchemaView]:
    found = [
        view.inside(view.get("properties")[name])
        for view in views
        if name in (view.get("properties") or {})
    ]
    return flatten(found) or []


def _named_apart(ours: Views, theirs: Views) -> bool:
    """Return True if both name all their values, and none in common."""
    mine, other = _named(ours), _named(theirs)
    return any(first.isdisjoint(second) for first in mine for second in other)


def _named(views: Views) -> list[set[bytes]]:
    """Return the values each view names, of those that name any."""
    named = (own_values(view) for view in views)
    return [set(map(identity, values)) for values in named if values is not None]


def _standalone(reader: SchemaView) -> jsonschema_rs.Validator | None:
    """Return a validator of one part of a schema, if it uses nothing but its definitions."""
    allowed = ("#/definitions/", "#/$defs/")
    for node in parts(reader.node):
        reference = node.get("$ref") if isinstance(node, dict) else None
        if isinstance(reference, str) and not reference.startswith(allowed):
            return None
        if isinstance(node, dict) and ("$id" in node or "$anchor" in node or "$dynamicRef" in node):
            return None
    root = reader.document.root
    whole: dict[str, Any] = {"allOf": [reader.node]}
    if isinstance(root, dict):
        whole |= {name: root[name] for name in ("definitions", "$defs") if name in root}
    try:
        return make_validator(reader.document, whole)
    except InvalidSchemaError:
        return None


def _plain(name: str) -> str:
    return "number" if name == FRACTION else name


def _show(value: object) -> str:
    return msgspec.json.encode(value).decode()[:60]
