"""Messages in lines, each behind the one of its number: packed arrays, no object per message.

Shape: calculator. A line is linked by offsets, so leaving out entries moves no link. An entry that
is settled before its turn stays, as a step to the next, until the head of its line has passed it.
"""

from typing import Final

import numpy as np
from pyroaring import BitMap64

from goqueue.core.delivery.key_numbers import STEP
from goqueue.core.delivery.key_table import CAPACITY_MIN, NONE, SETTLED, KeyTable
from goqueue.core.delivery.runs import Numbers

LINES_SHARE: Final = 4
"""So many lines may be empty for one spare message: keys come again, and 16 bytes are less than
what it takes to put a line in."""


class KeyLines:
    """Knows for every message which one is next in its line."""

    def __init__(self, *, spare: int = CAPACITY_MIN) -> None:
        self._spare = spare
        self._table = KeyTable(spare=spare)
        self._tail_numbers: Numbers = np.empty(0, np.int64)
        """The numbers of lines, ascending, beside the last message of each."""
        self._tail_offsets: Numbers = np.empty(0, np.int64)
        self._has_steps = False
        """Whether anything may be settled before its turn."""

    def __len__(self) -> int:
        """Return how many messages are in lines."""
        return len(self._table)

    @property
    def size_bytes(self) -> int:
        """Return the memory taken."""
        return self._table.size_bytes + self._tail_numbers.nbytes + self._tail_offsets.nbytes

    def join(self, offsets: Numbers, numbers: Numbers) -> Numbers:
        """Put messages, ascending and behind all others, in their lines; return the heads.

        No more than ``STEP`` at once.
        """
        if not len(offsets):
            return offsets
        # One sort by number and place, which is several times as fast as one that tells the order.
        by_line = numbers | np.arange(len(numbers))
        by_line.sort()
        order = by_line & (STEP - 1)
        by_line -= order
        in_lines = offsets[order]
        # By places: with masks as mixed as these it takes several times as long.
        is_behind = by_line[1:] == by_line[:-1]
        behind = is_behind.nonzero()[0] + 1
        following = np.full(len(order), NONE, np.int64)
        following[order[behind - 1]] = in_lines[behind]
        self._table.append(offsets, following)
        (breaks,) = (~is_behind).nonzero()
        ends = in_lines[np.concatenate((breaks, (len(order) - 1,)))]
        starts = np.concatenate(((0,), breaks + 1))
        firsts: Numbers = in_lines[starts]
        heads: Numbers = firsts[self._extend_lines(by_line[starts], firsts, ends)]
        return heads

    def _extend_lines(self, lines: Numbers, firsts: Numbers, lasts: Numbers) -> Numbers:
        """Link new messages behind the tails of their lines; return which lines had none."""
        places = np.searchsorted(self._tail_numbers, lines)
        is_known = np.zeros(len(lines), bool)
        if len(self._tail_numbers):
            nearest = np.minimum(places, len(self._tail_numbers) - 1)
            np.equal(self._tail_numbers[nearest], lines, out=is_known)
        (known,) = is_known.nonzero()
        tails = places[known]
        at, is_there = self._table.find(self._tail_offsets[tails])
        self._table.following[at] = firsts[known[is_there]]
        self._tail_offsets[tails] = lasts[known]
        if len(known) == len(lines):
            return known[~is_there]
        (fresh,) = (~is_known).nonzero()
        self._tail_numbers = np.insert(self._tail_numbers, places[fresh], lines[fresh])
        self._tail_offsets = np.insert(self._tail_offsets, places[fresh], lasts[fresh])
        return np.concatenate((known[~is_there], fresh))

    def settle(self, offsets: BitMap64, heads: BitMap64) -> Numbers:
        """Take notice that messages are settled, some of them heads; return those that move up."""
        table = self._table
        at = table.places(heads)
        if len(heads) < len(offsets):
            table.states[table.places(offsets)] = SETTLED
            self._has_steps = True
        table.pass_by(at)
        following: Numbers = table.following[at]
        following = following[following != NONE]
        if self._has_steps:
            following = self._step_over(following)
        table.tidy()
        if len(self._tail_numbers) > LINES_SHARE * self._spare + 2 * len(table):
            self._forget_lines()
        return following

    def _step_over(self, following: Numbers) -> Numbers:
        """Return those next in their lines, behind what was settled before its turn."""
        is_settled = self._table.states[self._table.at(following)] == SETTLED
        if is_settled.any():
            following = np.concatenate((following[~is_settled], self._skip(following[is_settled])))
            self._has_steps = bool(len(self._table.settled()))
        return following

    def _skip(self, offsets: Numbers) -> Numbers:
        """Pass settled messages and those settled behind them; return what comes next."""
        places = self._table.settled()
        settled, beyond = self._table.offsets_at(places), self._table.following[places]
        # Behind the last of a line there is nothing, of which each line has its own.
        beyond = np.where(beyond == NONE, -2 - settled, beyond)
        while True:
            # Every round doubles the steps taken at once, so a long line takes a few.
            at = np.minimum(np.searchsorted(settled, beyond), len(settled) - 1)
            is_short = settled[at] == beyond
            if not is_short.any():
                break
            beyond = np.where(is_short, beyond[at], beyond)
        ends = beyond[np.searchsorted(settled, offsets)]
        # Whatever leads to a new head stood before it.
        self._table.pass_by(places[np.isin(beyond, ends)])
        heads: Numbers = ends[ends >= 0]
        return heads

    def _forget_lines(self) -> None:
        """Forget the lines in which nothing is left."""
        _, is_there = self._table.find(self._tail_offsets)
        self._tail_numbers = self._tail_numbers[is_there]
        self._tail_offsets = self._tail_offsets[is_there]
