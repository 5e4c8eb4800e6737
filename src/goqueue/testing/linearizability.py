"""Checks that a history of concurrent operations could have happened one after the other.

Shape: calculator. An operation takes effect at one moment between its call and its return. One
whose outcome is not known (its client got no answer) may take effect at any later moment, or
never. A history is linearizable if there is an order of all operations that respects these moments
and that a sequential model agrees with. The search is that of Wing and Gong with Lowe's memory of
configurations, as in Porcupine; keys that do not meet are checked apart (``by_key``).
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

I = TypeVar("I")  # noqa: E741 - the input of an operation
O = TypeVar("O")  # noqa: E741 - its output
S = TypeVar("S", bound=Hashable)

NEVER: Final = 2**62
"""The return of an operation that was not answered."""

STEPS_MAX: Final = 5_000_000
"""Configurations looked at before the search is given up: the history is too wide to be checked."""


class HistoryTooWideError(Exception):
    """Too many operations overlap for the search to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOperation(Generic[I, O]):
    """What a client asked for and was answered; ``output`` is None if it was not answered."""

    client: str
    input: I
    output: O | None
    called: int
    returned: int = NEVER

    @property
    def is_known(self) -> bool:
        """Whether the client got an answer."""
        return self.returned != NEVER


def find_violation(
    history: Sequence[TimedOperation[I, O]],
    *,
    initial: S,
    step: Callable[[S, I, O | None], S | None],
) -> Sequence[TimedOperation[I, O]] | None:
    """Return None if a history is linearizable, otherwise the longest order that was found.

    ``step`` is the model: the state behind an operation, or None if it cannot have had this output
    there. The output is None where it is not known; the model then takes any.
    """
    search = _Search(sorted(history, key=lambda one: (one.called, one.returned)), step)
    return search.run(initial)


def by_key(
    history: Iterable[TimedOperation[I, O]], key: Callable[[I], Hashable]
) -> dict[Hashable, list[TimedOperation[I, O]]]:
    """Return the operations of each key: a history is linearizable if each of these is."""
    found: dict[Hashable, list[TimedOperation[I, O]]] = {}
    for one in history:
        found.setdefault(key(one.input), []).append(one)
    return found


class _Search(Generic[S, I, O]):
    """Depth first over which operation comes next, with a memory of what was tried."""

    def __init__(
        self,
        history: Sequence[TimedOperation[I, O]],
        step: Callable[[S, I, O | None], S | None],
    ) -> None:
        self._history = history
        self._step = step
        self._known = sum(1 << row for row, one in enumerate(history) if one.is_known)
        self._seen: set[tuple[int, S]] = set()
        self._steps = 0

    def run(self, initial: S) -> Sequence[TimedOperation[I, O]] | None:
        start: tuple[int, ...] = ()
        longest = start
        # Each entry: operations done, state, the order so far, and the candidates left to try.
        stack = [(0, initial, start, iter(self._candidates(0)))]
        while stack:
            done, state, order, candidates = stack[-1]
            if done & self._known == self._known:
                return None
            row = next(candidates, None)
            if row is None:
                stack.pop()
                continue
            following = self._try(done, state, row)
            if following is None:
                continue
            path = (*order, row)
            longest = max(longest, path, key=len)
            stack.append(
                (done | 1 << row, following, path, iter(self._candidates(done | 1 << row)))
            )
        return [self._history[row] for row in longest]

    def _try(self, done: int, state: S, row: int) -> S | None:
        """Return the state behind one more operation, unless it cannot be or was tried before."""
        one = self._history[row]
        following = self._step(state, one.input, one.output if one.is_known else None)
        if following is None or (done | 1 << row, following) in self._seen:
            return None
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise HistoryTooWideError(f"{len(self._history)} operations")
        self._seen.add((done | 1 << row, following))
        return following

    def _candidates(self, done: int) -> list[int]:
        """Return the operations that may come next: none that another one returned before."""
        first_return = NEVER
        found: list[int] = []
        for row, one in enumerate(self._history):
            if done >> row & 1:
                continue
            if one.called > first_return:
                break
            found.append(row)
            first_return = min(first_return, one.returned)
        # Those that were answered first: what nobody heard of may as well never have happened.
        return sorted(found, key=lambda row: self._history[row].returned)
