"""The delivery ledger, told as stories. See tests/golden/delivery."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.core.delivery import events, settle
from goqueue.core.delivery.key_numbers import key_number
from goqueue.core.delivery.ledger import Ledger
from goqueue.core.delivery.notices import Due, Looked
from goqueue.core.delivery.picker import Picker
from goqueue.core.delivery.runs import runs_of
from goqueue.core.delivery.settle import Claim, Moment, Policy
from goqueue.core.delivery.states import TRANSITIONS, DeliveryState
from goqueue.core.delivery.terms import LeaseTerms
from goqueue.core.delivery.view import View
from goqueue.testing import golden

GOLDEN = Path(__file__).parents[2] / "golden" / "delivery"
LEASE_MS = 30_000


def show(offsets: BitMap64) -> str:
    runs = runs_of(offsets)
    pairs = zip(runs[::2], runs[1::2], strict=True)
    return " ".join(str(a) if b == a + 1 else f"{a}..{b - 1}" for a, b in pairs) or "nothing"


class Shell:
    """One partition in the hands of one group.

    ``publish KEYS`` one letter per message (``-`` without a key, upper case is critical, ``!``
    before a letter delays it), ``lease N``, ``ack|nack|reject|extend|release NONCE OFFSETS``,
    ``advance MS``, ``due OFFSETS``, ``cancel OFFSETS``, ``moved``, ``restart``, ``show``.
    """

    def __init__(self, *, by_key: bool) -> None:
        self.by_key = by_key
        self.keys: list[bytes | None] = []
        self.lanes = [BitMap64() for _ in range(5)]
        self.hidden = BitMap64()
        self.cancelled = BitMap64()
        self.now_ms = 0
        self.nonces = 0
        self.journal: list[events.Event] = []
        self.ledger = Ledger(origin=Offset(0), by_key=by_key)
        self.picker = Picker(now_ms=0)

    def execute(self, command: str) -> str:
        verb, *words = command.split()
        perform: Callable[..., str] = getattr(self, verb)
        return perform(*words)

    def commit(self, found: tuple[events.Event, ...]) -> None:
        for event in found:
            self.journal.append(event)
            self.ledger.apply(event)

    def view(self) -> View:
        end = Offset(len(self.keys))
        return View(Offset(0), end, self.lanes, self.hidden, self.cancelled)

    def moment(self) -> Moment:
        return Moment(self.now_ms, self.now_ms)

    def publish(self, letters: str) -> str:
        is_delayed = False
        for letter in letters:
            if letter == "!":
                is_delayed = True
                continue
            offset = len(self.keys)
            self.keys.append(None if letter == "-" else letter.lower().encode())
            if letter.isupper():
                self.lanes[0].add(offset)
            if is_delayed:
                self.hidden.add(offset)
            is_delayed = False
        return f"{len(self.keys)} messages"

    def lease(self, limit: str) -> str:
        ledger = self.ledger
        if ledger.keys is not None:
            start = ledger.keys.looked_offset
            numbers = np.array([key_number(key) for key in self.keys[start:]], np.int64)
            end = Offset(len(self.keys))
            ledger.apply(Looked(start, end, np.arange(start, end), numbers))
        pick = self.picker.pick(ledger, self.view(), int(limit), now_ms=self.now_ms)
        self.nonces += 1
        terms = LeaseTerms(self.nonces, "m", self.now_ms + LEASE_MS, LEASE_MS, self.now_ms)
        decision = ledger.lease(
            pick, pick.offsets, terms, self.view(), gone=BitMap64(), expired=BitMap64()
        )
        self.commit(decision.events)
        if not pick.offsets:
            return "nothing is ready"
        pairs = zip(pick.order[::2], pick.order[1::2], strict=True)
        line = [offset for start, end in pairs for offset in range(start, end)]
        counts = ledger.histories.counts_among(pick.offsets)
        shown = [f"{one}" if one not in counts else f"{one}(#{counts[one] + 1})" for one in line]
        return f"lease {self.nonces}: {' '.join(shown)}"

    def _claim(self, nonce: str, offsets: tuple[str, ...]) -> Claim:
        return Claim(int(nonce), BitMap64(map(int, offsets)))

    def _answer(self, settled: settle.Settled) -> str:
        lines = [f"{one.error.code}: {one.error}" for one in settled.refused]
        if settled.retried:
            due = settled.due_ms
            lines.append(f"retry at {due}: {settled.retried}")
        if settled.doomed:
            lines.append(f"doomed: {settled.doomed}")
        return "\n".join(lines)

    def ack(self, nonce: str, *offsets: str) -> str:
        decision = settle.ack(self.ledger, self._claim(nonce, offsets), now_ms=self.now_ms)
        self.commit(decision.events)
        return self._answer(decision.reply)

    def nack(self, nonce: str, *offsets: str) -> str:
        claim = self._claim(nonce, offsets)
        decision = settle.nack(self.ledger, claim, Policy(), self.moment(), error="no")
        self.commit(decision.events)
        return self._answer(decision.reply)

    def reject(self, nonce: str, *offsets: str) -> str:
        claim = self._claim(nonce, offsets)
        decision = settle.reject(self.ledger, claim, self.moment(), error="bad")
        self.commit(decision.events)
        return self._answer(decision.reply)

    def extend(self, nonce: str, *offsets: str) -> str:
        decision = settle.extend(
            self.ledger, self._claim(nonce, offsets), now_ms=self.now_ms, lease_ms=LEASE_MS
        )
        self.commit(decision.events)
        return self._answer(decision.reply)

    def release(self, nonce: str, *offsets: str) -> str:
        decision = settle.release(self.ledger, self._claim(nonce, offsets), self.moment())
        self.commit(decision.events)
        return self._answer(decision.reply)

    def advance(self, duration_ms: str) -> str:
        self.now_ms += int(duration_ms)
        decision = settle.expire(self.ledger, Policy(), self.moment())
        self.commit(decision.events)
        return f"{self.now_ms} ms, {decision.reply} expired"

    def due(self, *offsets: str) -> str:
        chosen = BitMap64(map(int, offsets))
        self.hidden -= chosen
        self.ledger.apply(Due(chosen))
        return ""

    def cancel(self, *offsets: str) -> str:
        chosen = BitMap64(map(int, offsets))
        self.hidden -= chosen
        self.cancelled |= chosen
        self.commit(self.ledger.cancel(chosen).events)
        return ""

    def moved(self) -> str:
        dooms = BitMap64(self.ledger.dooms)
        self.commit((events.Moved(offsets=runs_of(dooms)),))
        return show(dooms)

    def restart(self) -> str:
        self.ledger = Ledger(origin=Offset(0), by_key=self.by_key)
        self.picker = Picker(now_ms=self.now_ms)
        for event in self.journal:
            self.ledger.apply(event)
        decision = self.ledger.revive(self.view(), now_ms=self.now_ms)
        self.ledger.apply(decision.reply)
        self.commit(decision.events)
        return ""

    def show(self) -> str:
        ledger = self.ledger
        parts = [f"committed {ledger.committed}", f"done {show(ledger.done)}"]
        parts.append(f"leased {show(ledger.leases.offsets)}")
        parts.append(f"waiting {show(ledger.waiting.offsets)}")
        parts.append(f"doomed {show(BitMap64(ledger.dooms))}")
        return ", ".join(parts)


@pytest.mark.parametrize("script", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.stem)
def test_story(script: Path) -> None:
    """The ledger behaves as the script says."""
    text = script.read_text()
    actual = golden.run(text, Shell(by_key="key" in script.stem).execute)
    if os.environ.get("GOLDEN_REWRITE"):
        script.write_text(actual)

    assert actual == text


def test_every_state_is_in_the_table() -> None:
    """What is done stays done, and every other state has a way out."""
    assert set(TRANSITIONS) == set(DeliveryState)
    assert TRANSITIONS[DeliveryState.DONE] == {}
    assert all(ways for state, ways in TRANSITIONS.items() if state is not DeliveryState.DONE)
    reached = {after for ways in TRANSITIONS.values() for after in ways.values()}
    assert reached == set(DeliveryState) - {DeliveryState.READY}, "ready follows from time alone"
