"""What a JSON schema says of arrays, compared.

Shape: calculator.
"""

from math import inf
from typing import Final, Protocol

from goqueue.core.schemas.definition import Break
from goqueue.core.schemas.json_document import Node
from goqueue.core.schemas.json_scalars import sizes
from goqueue.core.schemas.json_view import SchemaView, Views, smallest, takes_nothing

_CONTAINS: Final = ("contains", "minContains", "maxContains")


class Comparison(Protocol):
    """Who compares what lies deeper."""

    def contained(self, writers: Views, reader: SchemaView, path: str) -> list[Break]:
        """Return why values that fit all of the writers may not fit the reader."""
        ...

    def matches(self, pattern: str, name: str) -> bool:
        """Return True if a pattern finds something in a name."""
        ...

    def says_same(self, writer: SchemaView, reader: SchemaView, *keywords: str) -> bool:
        """Return True if keywords stand in both with the same meaning, or in neither."""
        ...


def breaks(compare: Comparison, writers: Views, reader: SchemaView, path: str) -> list[Break]:
    """Return what of the writers' arrays a reader does not take."""
    prefix, rest = _items(reader)
    theirs = [_items(view) for view in writers]
    closed = [len(first) for first, last in theirs if takes_nothing(last)]
    length = smallest(writers, "maxItems", min(closed, default=inf))
    found = sizes(writers, reader, path, least="minItems", most="maxItems", known=(0, length))
    places = max([len(prefix), *(len(first) for first, _ in theirs)])
    for place in range(places + 1):
        if place >= length:
            break
        wanted = prefix[place] if place < len(prefix) else rest
        views = [
            view.inside(_item(items, place)) for view, items in zip(writers, theirs, strict=True)
        ]
        step = f"{path}/{place}" if place < places else f"{path}/*"
        found += compare.contained(views, reader.inside(wanted), step)
    is_unique = any(view.get("uniqueItems") is True for view in writers) or length <= 1
    if reader.get("uniqueItems") is True and not is_unique:
        found.append(Break(path, "uniqueItems was not asked for"))
    if reader.get("contains") is not None and not any(
        compare.says_same(view, reader, *_CONTAINS) for view in writers
    ):
        found.append(Break(path, "contains was not asked for in this way"))
    return found


def _items(view: SchemaView) -> tuple[list[Node], Node]:
    """Return the schemas of the first items, and that of all others."""
    items = view.get("items")
    if not view.is_draft_7:
        return view.get("prefixItems") or [], True if items is None else items
    if isinstance(items, list):
        others = view.get("additionalItems")
        return items, True if others is None else others
    return [], True if items is None else items


def _item(items: tuple[list[Node], Node], place: int) -> Node:
    prefix, rest = items
    return prefix[place] if place < len(prefix) else rest
