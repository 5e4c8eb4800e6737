"""What a JSON schema says of objects, compared.

Shape: calculator.
"""

from math import inf
from typing import Any

from goqueue.core.schemas.definition import Break
from goqueue.core.schemas.json_arrays import Comparison
from goqueue.core.schemas.json_document import Node
from goqueue.core.schemas.json_scalars import sizes
from goqueue.core.schemas.json_view import (
    SchemaView,
    Views,
    hidden_in,
    takes_everything,
    takes_nothing,
)


def breaks(compare: Comparison, writers: Views, reader: SchemaView, path: str) -> list[Break]:
    """Return what of the writers' objects a reader does not take."""
    required = {name for view in writers for name in view.get("required") or ()}
    found = [
        Break(f"{path}/{name}", "the property is required now and may be missing")
        for name in reader.get("required") or ()
        if name not in required
    ]
    hidden = hidden_in(writers)
    if hidden is None:
        return [Break(path, "there are too many choices to be compared")]
    names = {name: None for view in (*writers, reader, *hidden) for name in _properties(view)}
    for name in names:
        is_there = name in required or any(_speaks_of(compare, one, name) for one in hidden)
        found += _property(compare, writers, reader, path, name, is_there=is_there)
    found += _patterns(compare, writers, reader, path)
    if _pattern_properties(reader) and any(_has_others(view) for view in hidden):
        found.append(Break(path, "patternProperties cannot be compared with choices"))
    found += _others(compare, writers, reader, path)
    found += _names(compare, writers, reader, path)
    found += _dependencies(compare, writers, reader, path, required)
    most = min((len(_properties(view)) for view in writers if _is_closed(view)), default=inf)
    known = (len(required), most)
    return found + sizes(
        writers, reader, path, least="minProperties", most="maxProperties", known=known
    )


def _properties(view: SchemaView) -> dict[str, Node]:
    return view.get("properties") or {}


def _pattern_properties(view: SchemaView) -> dict[str, Node]:
    return view.get("patternProperties") or {}


def _is_closed(view: SchemaView) -> bool:
    """Return True if a schema names every property there may be."""
    return takes_nothing(view.get("additionalProperties")) and not _pattern_properties(view)


def _is_open(node: Any) -> bool:  # noqa: ANN401 - any JSON
    return node is None or takes_everything(node)


def _declared(compare: Comparison, view: SchemaView, name: str) -> list[Node]:
    """Return what a schema says of a property by its name or a pattern."""
    nodes = [_properties(view)[name]] if name in _properties(view) else []
    return nodes + [
        node
        for pattern, node in _pattern_properties(view).items()
        if compare.matches(pattern, name)
    ]


def _speaks_of(compare: Comparison, view: SchemaView, name: str) -> bool:
    """Return True if a schema says anything of a property."""
    return (
        bool(_declared(compare, view, name))
        or name in (view.get("required") or ())
        or not _is_open(view.get("additionalProperties"))
    )


def _has_others(view: SchemaView) -> bool:
    """Return True if a schema says something of properties it does not name."""
    return bool(_pattern_properties(view)) or not _is_open(view.get("additionalProperties"))


def _property(
    compare: Comparison, writers: Views, reader: SchemaView, path: str, name: str, *, is_there: bool
) -> list[Break]:
    step = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
    known: list[SchemaView] = []
    is_said = is_there
    for view in writers:
        nodes = _declared(compare, view, name)
        if not nodes and not _is_open(view.get("additionalProperties")):
            nodes = [view.get("additionalProperties")]
        is_said = is_said or bool(nodes)
        known += [view.inside(node) for node in nodes]
    if not is_said:
        # Nobody who wrote by this schema had a reason to write the property.
        return []
    wanted = _declared(compare, reader, name)
    if not wanted and not _is_open(reader.get("additionalProperties")):
        if takes_nothing(reader.get("additionalProperties")) and not _is_impossible(known):
            return [Break(step, "the property is not allowed any more")]
        wanted = [reader.get("additionalProperties")]
    found: list[Break] = []
    for node in wanted:
        found += compare.contained(known, reader.inside(node), step)
    return found


def _is_impossible(views: Views) -> bool:
    return any(takes_nothing(view.node) for view in views)


def _patterns(compare: Comparison, writers: Views, reader: SchemaView, path: str) -> list[Break]:
    """Compare what the reader says of properties by pattern with what was said of such names."""
    found: list[Break] = []
    for pattern, node in _pattern_properties(reader).items():
        wanted, step = reader.inside(node), f"{path}/{pattern}"
        same = [
            view.inside(_pattern_properties(view)[pattern])
            for view in writers
            if pattern in _pattern_properties(view)
        ]
        if same:
            found += compare.contained(same, wanted, step)
            continue
        if any(_is_closed(view) for view in writers):
            continue
        for view in writers:
            others = [*_pattern_properties(view).values()]
            if not _is_open(view.get("additionalProperties")):
                others.append(view.get("additionalProperties"))
            for other in others:
                found += compare.contained([view.inside(other)], wanted, step)
    return found


def _others(compare: Comparison, writers: Views, reader: SchemaView, path: str) -> list[Break]:
    """Compare what may stand beside the named properties."""
    wanted = reader.get("additionalProperties")
    if _is_open(wanted):
        return []
    attempts = [_others_of(compare, view, reader, f"{path}/*") for view in writers]
    if not attempts:
        return [Break(path, "additionalProperties: other properties were allowed")]
    return min(attempts, key=len)


def _others_of(compare: Comparison, view: SchemaView, reader: SchemaView, path: str) -> list[Break]:
    wanted = reader.inside(reader.get("additionalProperties"))
    beside = view.get("additionalProperties")
    found: list[Break] = []
    if _is_open(beside):
        return [Break(path, "additionalProperties: other properties were allowed")]
    if not takes_nothing(beside):
        found += compare.contained([view.inside(beside)], wanted, path)
    for pattern, node in _pattern_properties(view).items():
        if pattern not in _pattern_properties(reader):
            found += compare.contained([view.inside(node)], wanted, f"{path}/{pattern}")
    return found


def _names(compare: Comparison, writers: Views, reader: SchemaView, path: str) -> list[Break]:
    wanted = reader.get("propertyNames")
    if _is_open(wanted):
        return []
    closed = [view for view in writers if _is_closed(view)]
    if closed:
        views = [reader.inside({"enum": list(_properties(closed[0])), "type": "string"})]
    else:
        said = [view for view in writers if view.get("propertyNames") is not None]
        views = [view.inside(view.get("propertyNames")) for view in said]
        views.append(reader.inside({"type": "string"}))
    return compare.contained(views, reader.inside(wanted), f"{path}/(names)")


def _depends_same(
    compare: Comparison, writer: SchemaView, reader: SchemaView, keyword: str, name: str
) -> bool:
    said = writer.get(keyword) or {}
    theirs, ours = writer.inside(said), reader.inside(reader.get(keyword))
    return name in said and compare.says_same(theirs, ours, name)


def _dependencies(
    compare: Comparison, writers: Views, reader: SchemaView, path: str, required: set[str]
) -> list[Break]:
    found: list[Break] = []
    for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
        for name, wanted in (reader.get(keyword) or {}).items():
            if any(_depends_same(compare, view, reader, keyword, name) for view in writers):
                continue
            if isinstance(wanted, list):
                if not required.issuperset(wanted):
                    found.append(Break(f"{path}/{name}", f"{keyword}: it asks for {wanted} now"))
            else:
                found += compare.contained(writers, reader.inside(wanted), path)
    return found
