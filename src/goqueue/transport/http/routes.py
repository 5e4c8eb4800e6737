"""Which path leads where: a tree of the parts between slashes, some of them parameters.

Shape: calculator. A part that is written down goes before a parameter in the same place.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

KNOWN_MAX: Final = 512
KNOWN_CHARACTERS_MAX: Final = 512
"""So many paths of so many characters are remembered with what they lead to."""


class _Place(Generic[T]):
    """A place in the tree: what is here, and where the next part leads."""

    __slots__ = ("by_name", "names", "other", "target")

    def __init__(self) -> None:
        self.by_name: dict[str, _Place[T]] = {}
        self.other: _Place[T] | None = None
        """Where any part leads that is not empty: a parameter."""
        self.target: T | None = None
        self.names: tuple[str, ...] = ()
        """The parameters on the way to the target."""


class Match(NamedTuple, Generic[T]):
    """What a path leads to, and its parameters."""

    target: T
    parameters: Mapping[str, str]


class Routes(Generic[T]):
    """Finds what a path leads to."""

    def __init__(self) -> None:
        self._root: _Place[T] = _Place()
        self._known: dict[str, Match[T]] = {}
        """Where paths led that were asked for before; bounded, as anybody may ask for any path."""

    def add(self, path: str, target: T) -> None:
        """Let a path, whose parameters are written ``{name}``, lead somewhere."""
        place = self._root
        names: list[str] = []
        for part in path.split("/"):
            if part.startswith("{"):
                names.append(part[1:-1])
                place.other = place.other or _Place()
                place = place.other
            else:
                place = place.by_name.setdefault(part, _Place())
        assert place.target is None, "a path leads to one place"
        self._known.clear()
        place.target, place.names = target, tuple(names)

    def find(self, path: str) -> Match[T] | None:
        """Return what a path leads to, or None."""
        known = self._known.get(path)
        if known is not None:
            return known
        values: list[str] = []
        place = _walk(self._root, path.split("/"), 0, values)
        if place is None or place.target is None:
            return None
        found = Match(place.target, dict(zip(place.names, values, strict=True)))
        if len(path) <= KNOWN_CHARACTERS_MAX:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[path] = found
        return found


def _walk(
    place: _Place[T], parts: Sequence[str], depth: int, values: list[str]
) -> _Place[T] | None:
    """Return the place some parts lead to; ``values`` gathers those that are parameters."""
    if depth == len(parts):
        return place if place.target is not None else None
    part = parts[depth]
    following = place.by_name.get(part)
    found = _walk(following, parts, depth + 1, values) if following is not None else None
    if found is None and place.other is not None and part:
        values.append(part)
        found = _walk(place.other, parts, depth + 1, values)
        if found is None:
            values.pop()
    return found
