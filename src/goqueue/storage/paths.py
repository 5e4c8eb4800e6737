"""Names inside the data directory, checked so that none can lead outside it."""

from collections.abc import Iterable, Mapping, Sequence

from goqueue.base.errors import InvalidNameError

ROOT = ""
"""The data directory itself, as a path."""

_NOT_NAMES = frozenset({"", ".", ".."})


def parts_of(path: str) -> list[str]:
    """Split a relative path into names; the root has none.

    An absolute path, an empty name, ``.``, ``..`` or a NUL raises InvalidNameError.
    """
    if path == ROOT:
        return []
    parts = path.split("/")
    if "\0" in path or not _NOT_NAMES.isdisjoint(parts):
        raise InvalidNameError(f"not a path inside the data directory: {path!r}")
    return parts


def entry_parts_of(path: str) -> list[str]:
    """Split the path of something inside the data directory, which the root itself is not."""
    parts = parts_of(path)
    if not parts:
        raise InvalidNameError("the data directory itself cannot be opened, renamed or removed")
    return parts


def by_parent(paths: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """Return every directory on the way to these, by its parent; a parent comes before its own."""
    found: dict[str, dict[str, None]] = {}
    for path in paths:
        parent = ROOT
        for name in parts_of(path):
            child = f"{parent}/{name}" if parent else name
            found.setdefault(parent, {})[child] = None
            parent = child
    return {parent: list(children) for parent, children in found.items()}
