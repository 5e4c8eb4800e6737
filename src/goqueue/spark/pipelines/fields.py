"""The fields of one part of a pipeline file: looked up, checked and bounded one by one.

What is wrong is noted and replaced by something harmless, so that reading goes on.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar

from goqueue.base.limits import (
    PIPELINE_LIST_MAX,
    PIPELINE_NAME_CHARACTERS_MAX,
    PIPELINE_SQL_CHARACTERS_MAX,
    PIPELINE_TEXT_CHARACTERS_MAX,
)
from goqueue.spark.pipelines.problems import Problems, close_to, nearest

IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
INTERVAL: Final = re.compile(
    r"\d{1,9} (?:millisecond|second|minute|hour|day|week)s?", re.ASCII | re.IGNORECASE
)
_SHORT_INTERVAL: Final = re.compile(r"(\d{1,9})\s*(ms|s|m|h|d|w)", re.ASCII)
_UNITS: Final = {
    "ms": "milliseconds",
    "s": "seconds",
    "m": "minutes",
    "h": "hours",
    "d": "days",
    "w": "weeks",
}

Choice = TypeVar("Choice", bound=StrEnum)


def kind_of(value: object) -> str:
    """Return what a value is called in a pipeline file."""
    names = {dict: "a mapping", list: "a list", bool: "true or false", str: "text", int: "a number"}
    return names.get(type(value), "nothing" if value is None else type(value).__name__)


class Fields:
    """A mapping that remembers what it was asked for."""

    def __init__(self, raw: object, path: str, problems: Problems) -> None:
        self.path = path
        self.problems = problems
        self._asked: set[str] = set()
        if not isinstance(raw, Mapping):
            problems.add(path, f"must be a mapping, not {kind_of(raw)}")
            raw = {}
            self.is_usable = False
        else:
            self.is_usable = True
        self._raw: Mapping[object, object] = raw
        self._missing: list[str] = []

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        """Return True if a field is given."""
        return name in self._raw

    def take_for(self, *meant: str) -> None:
        """Read mistyped fields as what they were probably meant to be, and note each."""
        for key in list(self._raw):
            if isinstance(key, str) and key not in meant:
                close = close_to(key, meant)
                if close and close not in self._raw:
                    self.problems.unknown(self.at(key[:80]), "field", key, meant)
                    self._raw = {close if one == key else one: it for one, it in self._raw.items()}

    def raw(self, name: str) -> object:
        """Return a field as it is written."""
        self._asked.add(name)
        return self._raw.get(name)

    def text(self, name: str, *, required: bool = False, most: int | None = None) -> str:
        """Return a text, empty if it is not given."""
        value = self.raw(name)
        if value is None:
            if required:
                self._missing.append(name)
            return ""
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            self.problems.add(self.at(name), f"must be text, not {kind_of(value)}")
            return ""
        limit = PIPELINE_TEXT_CHARACTERS_MAX if most is None else most
        if len(value) > limit:
            self.problems.add(self.at(name), f"has {len(value)} characters; the limit is {limit}")
            return ""
        if "\x00" in value:
            self.problems.add(self.at(name), "contains a zero character")
            return ""
        if required and not value.strip():
            self.problems.add(self.at(name), "is empty")
        return value.strip()

    def sql(self, name: str, *, required: bool = False) -> str:
        """Return a query or an expression."""
        return self.text(name, required=required, most=PIPELINE_SQL_CHARACTERS_MAX)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a boolean."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.problems.add(self.at(name), f"must be true or false, not {kind_of(value)}")
            return default
        return value

    def number(self, name: str, *, least: int, most: int, default: int = 0) -> int:
        """Return a whole number within bounds."""
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.problems.add(self.at(name), f"must be a whole number, not {kind_of(value)}")
            return default
        if not least <= value <= most:
            self.problems.add(self.at(name), f"must be between {least} and {most}, not {value}")
            return default
        return value

    def choice(self, name: str, kind: type[Choice], default: Choice) -> Choice:
        """Return one of a few words."""
        value = self.raw(name)
        if value is None:
            return default
        words = [one.value for one in kind]
        if isinstance(value, str) and value in words:
            return kind(value)
        hint = nearest(value, words) if isinstance(value, str) else f"one of {', '.join(words)}"
        self.problems.add(self.at(name), f"must be one of {', '.join(words)}", hint)
        return default

    def interval(self, name: str, *, required: bool = False, default: str = "") -> str:
        """Return a duration as Spark writes it: "10 minutes", or short, "10m"."""
        value = self.text(name, required=required)
        if not value:
            return default
        short = _SHORT_INTERVAL.fullmatch(value)
        if short:
            return f"{short[1]} {_UNITS[short[2]]}"
        if INTERVAL.fullmatch(value) is None:
            self.problems.add(
                self.at(name), f"{value[:40]!a} is no duration", 'for example "10 minutes" or "10m"'
            )
        return value

    def texts(self, name: str, *, required: bool = False) -> tuple[str, ...]:
        """Return a list of texts; a single text is a list of one."""
        value = self.raw(name)
        if value is None:
            if required:
                self._missing.append(name)
            return ()
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            self.problems.add(self.at(name), f"must be a list of texts, not {kind_of(value)}")
            return ()
        if len(items) > PIPELINE_LIST_MAX:
            self.problems.add(
                self.at(name), f"has {len(items)} entries; the limit is {PIPELINE_LIST_MAX}"
            )
            return ()
        return self._checked(name, items, required=required)

    def _checked(self, name: str, items: list[str], *, required: bool) -> tuple[str, ...]:
        if required and not items:
            self.problems.add(self.at(name), "is empty")
        for place, item in enumerate(items):
            if not item.strip() or len(item) > PIPELINE_TEXT_CHARACTERS_MAX or "\x00" in item:
                self.problems.add(
                    f"{self.at(name)}[{place}]",
                    f"must have 1 to {PIPELINE_TEXT_CHARACTERS_MAX} characters",
                )
        if len(set(items)) != len(items):
            self.problems.add(self.at(name), "names something twice")
        return tuple(item.strip() for item in items)

    def mapping(self, name: str) -> dict[str, str]:
        """Return names with texts; numbers and booleans are written as Spark does."""
        value = self.raw(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping) or len(value) > PIPELINE_LIST_MAX:
            self.problems.add(
                self.at(name), f"must be a mapping of at most {PIPELINE_LIST_MAX} entries"
            )
            return {}
        found: dict[str, str] = {}
        for key, item in value.items():
            if not isinstance(key, str) or not isinstance(item, str | int | float | bool):
                self.problems.add(self.at(name), f"{str(key)[:40]!a}: must be a name with a text")
                continue
            found[key] = str(item).lower() if isinstance(item, bool) else str(item)
        return found

    def finish(self, known: tuple[str, ...] = ()) -> None:
        """Note the fields nobody asked for, and those that are required and not there."""
        names = {*self._asked, *known}
        unknown = [str(key) for key in self._raw if key not in names]
        for key in unknown:
            self.problems.unknown(self.at(key[:80]), "field", key, names)
        mistyped = {close_to(key, names) for key in unknown}
        for name in self._missing:
            if name not in mistyped:
                self.problems.add(self.at(name), "is required")


def check_identifier(name: object, path: str, problems: Problems) -> bool:
    """Return True if a name can be that of a part, and note why not."""
    if not isinstance(name, str) or IDENTIFIER.fullmatch(name) is None:
        problems.add(
            path, "must be called by letters, digits and _", "SQL refers to it, so no dashes"
        )
        return False
    if len(name) > PIPELINE_NAME_CHARACTERS_MAX:
        problems.add(
            path,
            f"has {len(name)} characters; the limit is {PIPELINE_NAME_CHARACTERS_MAX}",
        )
        return False
    return True
