"""One place of a JSON schema as comparisons see it: types, values, bounds.

Shape: calculator. A *view* is a schema and the document its references lead through. Several views
together mean that a value fits all of them.
"""

from collections.abc import Callable, Iterable, Sequence
from math import ceil, floor, inf
from typing import Any, Final, NamedTuple

import msgspec

from goqueue.core.schemas.json_document import DRAFT_7, JsonDocument, Node


class SchemaView(NamedTuple):
    """A schema in its document."""

    document: JsonDocument
    node: Node

    def get(self, keyword: str) -> Any:  # noqa: ANN401 - any JSON
        """Return what a keyword says, or None."""
        return self.node.get(keyword) if isinstance(self.node, dict) else None

    def inside(self, node: Node) -> "SchemaView":
        """Return a view of a part."""
        return SchemaView(self.document, node)

    @property
    def is_draft_7(self) -> bool:
        """Return True if the rules of draft 7 hold."""
        return self.document.draft == DRAFT_7


Views = Sequence[SchemaView]

FRACTION: Final = "number with a fraction"
ALL_TYPES: Final = frozenset({"null", "boolean", "object", "array", "string", "integer", FRACTION})
DEPTH: Final = 2
BRANCHES: Final = 16
"""How far choices are looked into for the types they leave; further it only says less."""
HIDDEN: Final = 1_000
NUMBERS: Final = frozenset({"integer", FRACTION})
FINITE_TYPES: Final[dict[str, list[Any]]] = {"null": [None], "boolean": [False, True]}


ANNOTATIONS: Final = frozenset(
    {
        "$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "title", "description",
        "default", "examples", "readOnly", "writeOnly", "deprecated",
    }
)  # fmt: skip
"""Keywords that refuse nothing."""


def takes_everything(node: Any) -> bool:  # noqa: ANN401 - any JSON
    """Return True if a schema surely refuses nothing, however that is written."""
    if not isinstance(node, dict):
        return node is True
    return all(
        name in ANNOTATIONS or (name == "not" and takes_nothing(value))
        for name, value in node.items()
    )


def takes_nothing(node: Any) -> bool:  # noqa: ANN401 - any JSON
    """Return True if a schema surely refuses everything, however that is written."""
    if not isinstance(node, dict):
        return node is False
    # Draft 7 does not look at what stands beside a reference.
    return "$ref" not in node and "not" in node and takes_everything(node["not"])


def flatten(views: Iterable[SchemaView]) -> list[SchemaView] | None:
    """Return the parts that hold together, references and ``allOf`` taken apart.

    None if no value can fit them. What cannot be followed is left out: it only says less.
    """
    flat: list[SchemaView] = []
    seen: set[int] = set()
    waiting = list(views)[::-1]
    while waiting:
        view = waiting.pop()
        if view.node is True or id(view.node) in seen:
            continue
        if takes_nothing(view.node):
            return None
        seen.add(id(view.node))
        reference = view.get("$ref")
        if isinstance(reference, str):
            target = view.document.follow(reference)
            if target is not None:
                waiting.append(SchemaView(*target))
            if view.is_draft_7:
                continue
        waiting += [view.inside(part) for part in view.get("allOf") or ()]
        flat.append(view)
    return flat


def hidden_in(views: Views) -> list[SchemaView] | None:
    """Return what stands in choices and conditions, which may or may not hold.

    None if there is too much of it to look at.
    """
    found: list[SchemaView] = []
    waiting = [(view, part) for view in views for part in _conditional(view)]
    while waiting:
        view, part = waiting.pop()
        if len(found) > HIDDEN:
            return None
        flat = flatten([view.inside(part)]) or []
        found += flat
        waiting += [(one, inner) for one in flat for inner in _conditional(one)]
    return found


def _conditional(view: SchemaView) -> list[Node]:
    parts = [part for keyword in ("anyOf", "oneOf") for part in view.get(keyword) or ()]
    parts += [view.get(keyword) for keyword in ("if", "then", "else")]
    for keyword in ("dependencies", "dependentSchemas"):
        parts += (view.get(keyword) or {}).values()
    return [part for part in parts if isinstance(part, dict)]


def types_of(views: Views, depth: int = DEPTH) -> frozenset[str]:
    """Return the types a value that fits may have; choices are looked into to a small depth."""
    types = ALL_TYPES
    for view in views:
        types &= declared_types(view)
        values = own_values(view)
        if values is not None:
            types &= {type_of(value) for value in values}
        for keyword in ("anyOf", "oneOf"):
            branches = view.get(keyword)
            if isinstance(branches, list) and depth and len(branches) <= BRANCHES:
                types &= _types_of_any([view.inside(branch) for branch in branches], depth - 1)
    return types


def _types_of_any(branches: Views, depth: int) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for branch in branches:
        flat = flatten([branch])
        if flat is not None:
            found |= types_of(flat, depth)
    return found


def declared_types(view: SchemaView) -> frozenset[str]:
    """Return what the keyword ``type`` allows."""
    named = view.get("type")
    if named is None:
        return ALL_TYPES
    names = {named} if isinstance(named, str) else set(named)
    if "number" in names:
        names |= NUMBERS
    return ALL_TYPES & names


def type_of(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return the type of a value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "integer" if value.is_integer() else FRACTION
    named = {str: "string", list: "array", dict: "object", type(None): "null"}
    return named[type(value)]


def identity(value: Any) -> bytes:  # noqa: ANN401 - any JSON
    """Return what equal values have in common: 1.0 is 1, true is not."""
    return msgspec.json.encode(_with_whole_numbers(value), order="sorted")


def _with_whole_numbers(value: Any) -> Any:  # noqa: ANN401 - any JSON
    match value:
        case float():
            return int(value) if value.is_integer() else value
        case list():
            return [_with_whole_numbers(one) for one in value]
        case dict():
            return {name: _with_whole_numbers(one) for name, one in value.items()}
        case _:
            return value


def are_same(first: Any, second: Any) -> bool:  # noqa: ANN401 - any JSON
    """Return True if two pieces of JSON are equal; unlike in Python, true is not 1."""
    # The comparison of Python is fast, and finds most differences.
    return bool(first == second) and (first is second or identity(first) == identity(second))


def own_values(view: SchemaView) -> list[Any] | None:
    """Return the only values a schema names, if it names any."""
    if isinstance(view.node, dict) and "const" in view.node:
        return [view.node["const"]]
    values = view.get("enum")
    return list(values) if isinstance(values, list) else None


def values_of(views: Views, types: frozenset[str]) -> list[Any] | None:
    """Return every value that may fit, if there are only so many."""
    named = [values for view in views if (values := own_values(view)) is not None]
    if named:
        shortest = min(named, key=len)
        return [value for value in shortest if type_of(value) in types]
    if types <= FINITE_TYPES.keys():
        return [value for name in sorted(types) for value in FINITE_TYPES[name]]
    return None


def largest(views: Views, keyword: str, least: float = 0) -> float:
    """Return the strictest lower bound of a size."""
    return max([least, *_numbers(views, keyword)])


def smallest(views: Views, keyword: str, most: float = inf) -> float:
    """Return the strictest upper bound of a size."""
    return min([most, *_numbers(views, keyword)])


def _numbers(views: Views, keyword: str) -> list[float]:
    return [value for view in views if is_number(value := view.get(keyword))]


def is_number(value: object) -> bool:
    """Return True if a value is a number in JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool)


class Bound(NamedTuple):
    """The end of a range of numbers."""

    value: float
    is_open: bool
    """Whether the value itself lies outside."""


def lower_bound(views: Views, *, is_whole: bool) -> Bound:
    """Return where the numbers that fit begin."""
    return _bound(views, ("minimum", "exclusiveMinimum"), is_whole=is_whole, pick=max)


def upper_bound(views: Views, *, is_whole: bool) -> Bound:
    """Return where the numbers that fit end."""
    return _bound(views, ("maximum", "exclusiveMaximum"), is_whole=is_whole, pick=min)


def _bound(
    views: Views,
    keywords: tuple[str, str],
    *,
    is_whole: bool,
    pick: Callable[[list[float]], float],
) -> Bound:
    closed, opened = (_numbers(views, keyword) for keyword in keywords)
    is_lower = pick is max
    nothing = -inf if is_lower else inf
    if is_whole:
        # Whole numbers need no open ends: what lies above 4 begins at 5.
        step, fit = (1, floor) if is_lower else (-1, ceil)
        near: Callable[[float], int] = ceil if is_lower else floor
        ends = [near(value) for value in closed] + [fit(value) + step for value in opened]
        return Bound(pick([nothing, *ends]), is_open=False)
    best = pick([nothing, *closed, *opened])
    return Bound(best, is_open=best in opened)
