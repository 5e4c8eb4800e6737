"""Everything that is wrong with a pipeline, gathered before anybody is told."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from goqueue.base.errors import InvalidConfigError

PROBLEMS_SHOWN_MAX: Final = 50
_NAMES_SHOWN_MAX: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong: where, what, and what to do about it."""

    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.path}: {self.message}{hint}" if self.path else f"{self.message}{hint}"


class PipelineError(InvalidConfigError):
    """A pipeline cannot be run as it is; every problem is listed."""

    def __init__(self, problems: Sequence[Problem], *, name: str = "the pipeline") -> None:
        self.problems = tuple(problems)
        lines = [f"  {problem}" for problem in self.problems[:PROBLEMS_SHOWN_MAX]]
        if len(self.problems) > PROBLEMS_SHOWN_MAX:
            lines.append(f"  and {len(self.problems) - PROBLEMS_SHOWN_MAX} more")
        count = "a problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__("\n".join([f"{name} has {count}:", *lines]))


class Problems:
    """A list that grows while a pipeline is read."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, path: str, message: str, hint: str = "") -> None:
        """Note a problem."""
        self.found.append(Problem(path=path, message=message, hint=hint))

    def unknown(self, path: str, noun: str, name: str, known: Iterable[str]) -> None:
        """Note a name that is not there, with the nearest that is."""
        self.add(path, f"there is no {noun} {name[:80]!a}", nearest(name, known))

    def check(self, *, name: str) -> None:
        """Raise what was found, if anything was."""
        if self.found:
            raise PipelineError(self.found, name=name)


def close_to(name: str, known: Iterable[str]) -> str:
    """Return the known name that is probably meant, or nothing."""
    close = get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return close[0] if close else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint: the known name that is meant, or those there are."""
    names = sorted(known)
    close = close_to(name, names)
    if close:
        return f"did you mean {close!r}?"
    if not names:
        return "there are none"
    more = ", …" if len(names) > _NAMES_SHOWN_MAX else ""
    return f"there are {', '.join(names[:_NAMES_SHOWN_MAX])}{more}"
