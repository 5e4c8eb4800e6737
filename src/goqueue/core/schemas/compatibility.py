"""Compatibility modes: which older schemas a new one is compared with, and in which direction.

Shape: calculator.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from goqueue.base.errors import InvalidCompatibilityError
from goqueue.base.ids import SchemaVersion
from goqueue.core.schemas.definition import Break, Definition


class Compatibility(StrEnum):
    """What a new version of a schema owes to the older ones.

    BACKWARD: it reads their data. FORWARD: they read its data. FULL: both. Transitive modes look at
    every older version, the others at the latest.
    """

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


_MODES: Final = {mode.value: mode for mode in Compatibility}
_BACKWARD: Final = {Compatibility.BACKWARD, Compatibility.BACKWARD_TRANSITIVE}
_FORWARD: Final = {Compatibility.FORWARD, Compatibility.FORWARD_TRANSITIVE}
_FULL: Final = {Compatibility.FULL, Compatibility.FULL_TRANSITIVE}


def read_compatibility(text: object) -> Compatibility:
    """Return a mode by its name, or raise; nothing is guessed."""
    mode = _MODES.get(text.upper()) if isinstance(text, str) else None
    if mode is None:
        raise InvalidCompatibilityError(
            f"invalid compatibility {str(text)[:40]!a}: must be one of {', '.join(_MODES)}"
        )
    return mode


def conflicts(
    mode: Compatibility,
    new: Definition,
    older: Sequence[tuple[SchemaVersion, Definition]],
) -> list[str]:
    """Return why a new schema may not follow the older ones, latest last; empty if it may."""
    if mode is Compatibility.NONE or not older:
        return []
    compared = older[::-1] if mode.value.endswith("_TRANSITIVE") else older[-1:]
    found: list[str] = []
    for version, old in compared:
        if old.type is not new.type:
            found.append(f"/: version {version} is {old.type}, this one is {new.type}")
            continue
        if mode in _BACKWARD | _FULL:
            found += _tell(new.breaks_reading(old), f"data of version {version} does not fit it")
        if mode in _FORWARD | _FULL:
            found += _tell(old.breaks_reading(new), f"its data does not fit version {version}")
        if found:
            return found
    return found


def _tell(breaks: Sequence[Break], what: str) -> list[str]:
    return [f"{one} ({what})" for one in breaks]
