"""A ledger and a naive model of it go through the same random life and agree after every step.

The model keeps one word per message and finds everything by looking at all of them.
"""

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.core.delivery import events, runs, settle
from goqueue.core.delivery.key_numbers import NO_KEY, STEP, key_number
from goqueue.core.delivery.ledger import Ledger
from goqueue.core.delivery.notices import Due, Looked
from goqueue.core.delivery.picker import Picker
from goqueue.core.delivery.runs import count_of, runs_of, set_of
from goqueue.core.delivery.settle import Claim, Moment, Policy
from goqueue.core.delivery.terms import LeaseTerms
from goqueue.core.delivery.view import View

POLICY = Policy(max_retries=2, backoff_ms=100, backoff_max_ms=150)
LEASE_MS = 1_000
STEPS = 250


class Message:
    """What the model knows of one message."""

    def __init__(self, offset: int, lane: int, key: bytes | None) -> None:
        self.offset = offset
        self.lane = lane
        self.key = key
        self.state = "ready"
        self.failures = 0
        self.nonce = 0
        self.until_ms = 0
        self.is_hidden = False
        self.is_cancelled = False


class Life:
    """The ledger, its journal, the model, and time."""

    def __init__(
        self,
        seed: int,
        *,
        by_key: bool,
        lanes: bool,
        number: Callable[[bytes | None], int] = key_number,
    ) -> None:
        self.random = Random(seed)
        self.number = number
        self.by_key = by_key
        self.has_lanes = lanes
        self.now_ms = 0
        self.nonce = 0
        self.messages: list[Message] = []
        self.ledger = Ledger(origin=Offset(0), by_key=by_key)
        self.picker = Picker(now_ms=0)
        self.journal: list[events.Event] = []
        self.ended: dict[str, int] = dict.fromkeys(events.OUTCOMES, 0)

    # What the world does.

    def view(self) -> View:
        lanes = [BitMap64() for _ in range(5)]
        for message in self.messages:
            if message.lane != 2:
                lanes[message.lane].add(message.offset)
        return View(
            Offset(0),
            Offset(len(self.messages)),
            lanes,
            BitMap64(m.offset for m in self.messages if m.is_hidden),
            BitMap64(m.offset for m in self.messages if m.is_cancelled),
        )

    def commit(self, found: tuple[events.Event, ...]) -> None:
        # As they are stored: worked out before any of them has happened.
        self.journal += [settle.brief(self.ledger, event) for event in found]
        for event in found:
            self.ledger.apply(event)

    def moment(self) -> Moment:
        return Moment(self.now_ms, 1_000_000 + self.now_ms)

    def publish(self) -> None:
        for _ in range(self.random.randrange(1, 30)):
            lane = self.random.randrange(5) if self.has_lanes else 2
            key = self.random.choice([None, b"a", b"b", b"c", b"d"])
            message = Message(len(self.messages), lane, key)
            message.is_hidden = self.random.random() < 0.1
            self.messages.append(message)

    def due(self) -> None:
        hidden = [m for m in self.messages if m.is_hidden]
        chosen = self.random.sample(hidden, self.random.randrange(len(hidden) + 1))
        for message in chosen:
            message.is_hidden = False
        self.ledger.apply(Due(BitMap64(message.offset for message in chosen)))

    def cancel(self) -> None:
        hidden = [m for m in self.messages if m.is_hidden]
        if hidden:
            message = self.random.choice(hidden)
            message.is_hidden = False
            message.is_cancelled = True

    def poll(self) -> None:
        limit = self.random.randrange(1, 20)
        if self.ledger.keys is not None:
            start = self.ledger.keys.looked_offset
            keys = [message.key for message in self.messages[start:]]
            numbers = [NO_KEY if key is None else self.number(key) for key in keys]
            end = Offset(len(self.messages))
            self.ledger.apply(
                Looked(start, end, np.arange(start, end), np.array(numbers, np.int64))
            )
        pick = self.picker.pick(self.ledger, self.view(), limit, now_ms=self.now_ms)
        ready = self.ready()
        assert set(pick.offsets) <= ready
        assert len(pick.offsets) == min(limit, len(ready)), "work is conserved"
        assert count_of(pick.order) == len(pick.offsets)
        kept = pick.offsets.copy()
        if self.random.random() < 0.2 and kept:
            kept.remove_range(self.random.choice(list(kept)), kept.max() + 1)
        self.nonce += 1
        deadline_ms = self.now_ms + LEASE_MS
        terms = LeaseTerms(self.nonce, "m", deadline_ms, LEASE_MS, 0)
        decision = self.ledger.lease(
            pick, kept, terms, self.view(), gone=BitMap64(), expired=BitMap64()
        )
        self.commit(decision.events)
        for offset in pick.cancelled:
            self.end(self.messages[offset], events.CANCELLED)
        for offset in kept:
            message = self.messages[offset]
            message.state, message.nonce, message.until_ms = "leased", self.nonce, deadline_ms

    # What consumers do.

    def claim(self) -> Claim:
        """Return some messages under some lease, right or wrong."""
        nonce = self.random.randrange(max(self.nonce - 6, 0), self.nonce + 2)
        held = [m.offset for m in self.messages if m.state == "leased" and m.nonce == nonce]
        others = [m.offset for m in self.messages]
        chosen = self.random.sample(held, self.random.randrange(len(held) + 1))
        if self.random.random() < 0.2 and others:
            chosen.append(self.random.choice(others))
        offsets = BitMap64(chosen)
        return Claim(nonce, offsets, self.random.choice((None, runs.written_of(offsets))))

    def valid(self, claim: Claim) -> list[Message]:
        return [
            self.messages[offset]
            for offset in claim.offsets
            if self.messages[offset].state == "leased"
            and self.messages[offset].nonce == claim.nonce
            and self.now_ms < self.messages[offset].until_ms
        ]

    def check_refused(self, claim: Claim, refused: list[settle.Refused]) -> None:
        valid = {message.offset for message in self.valid(claim)}
        assert {one.offset for one in refused} == set(claim.offsets) - valid

    def ack(self) -> None:
        claim = self.claim()
        decision = settle.ack(self.ledger, claim, now_ms=self.now_ms)
        self.check_refused(claim, decision.reply.refused)
        valid = self.valid(claim)
        self.commit(decision.events)
        for message in valid:
            self.end(message, events.ACKED)

    def nack(self) -> None:
        claim = self.claim()
        delay_ms = self.random.choice([None, 0, 70])
        decision = settle.nack(
            self.ledger, claim, POLICY, self.moment(), error="no", delay_ms=delay_ms
        )
        self.check_refused(claim, decision.reply.refused)
        valid = self.valid(claim)
        self.commit(decision.events)
        for message in valid:
            self.fail(message, delay_ms)

    def fail(self, message: Message, delay_ms: int | None) -> None:
        if message.failures >= POLICY.max_retries:
            message.state = "doomed"
        else:
            pause = POLICY.backoff_after(message.failures + 1) if delay_ms is None else delay_ms
            message.state, message.until_ms = "waiting", self.now_ms + pause
        message.failures += 1

    def reject(self) -> None:
        claim = self.claim()
        decision = settle.reject(self.ledger, claim, self.moment(), error="bad")
        valid = self.valid(claim)
        self.commit(decision.events)
        for message in valid:
            message.state = "doomed"
            message.failures += 1

    def extend(self) -> None:
        claim = self.claim()
        decision = settle.extend(self.ledger, claim, now_ms=self.now_ms, lease_ms=2 * LEASE_MS)
        valid = self.valid(claim)
        self.commit(decision.events)
        for message in valid:
            message.until_ms = self.now_ms + 2 * LEASE_MS

    def release(self) -> None:
        claim = self.claim()
        decision = settle.release(self.ledger, claim, self.moment())
        valid = self.valid(claim)
        self.commit(decision.events)
        for message in valid:
            message.state = "ready"

    def hold(self) -> None:
        claim = self.claim()
        number = self.random.randrange(3)
        decision = settle.hold(self.ledger, claim, number, now_ms=self.now_ms)
        valid = self.valid(claim)
        self.commit(decision.events)
        for message in valid:
            message.state, message.nonce = "held", number

    def end_hold(self) -> None:
        number = self.random.randrange(3)
        is_commit = self.random.random() < 0.5
        self.commit((events.HoldEnded(transaction=number, is_commit=is_commit),))
        for message in self.messages:
            if message.state == "held" and message.nonce == number:
                if is_commit:
                    self.end(message, events.ACKED)
                else:
                    message.state = "ready"

    def move(self) -> None:
        doomed = BitMap64(m.offset for m in self.messages if m.state == "doomed")
        if not doomed:
            return
        runs = runs_of(doomed)
        begun = events.MoveBegun(offsets=runs, topic="dead", partition=0, from_offset=5)
        self.commit((begun,))
        if self.random.random() < 0.8:
            self.commit((events.Moved(offsets=runs),))
            for offset in doomed:
                self.end(self.messages[offset], events.DEAD)

    def time_passes(self) -> None:
        self.now_ms += self.random.choice([1, 50, 120, 900])
        decision = settle.expire(self.ledger, POLICY, self.moment())
        self.commit(decision.events)
        for message in self.messages:
            if message.state == "leased" and message.until_ms <= self.now_ms:
                self.fail(message, None)

    def commit_offset(self) -> None:
        if self.random.random() < 0.2:
            offset = min(self.prefix() + self.random.randrange(4), len(self.messages))
            if offset >= self.prefix():
                self.commit(settle.commit(self.ledger, Offset(offset)).events)
                for message in self.messages[:offset]:
                    if message.state != "done":
                        self.end(message, events.ACKED)

    def restart(self) -> None:
        """Rebuild the ledger from the journal, or from a snapshot and nothing else."""
        if self.random.random() < 0.5:
            self.journal = list(self.ledger.snapshot())
        self.ledger = Ledger(origin=Offset(0), by_key=self.by_key)
        self.picker = Picker(now_ms=self.now_ms)
        for event in self.journal:
            self.ledger.apply(event)
        decision = self.ledger.revive(self.view(), now_ms=self.now_ms)
        self.ledger.apply(decision.reply)
        self.commit(decision.events)
        for event in decision.events:
            assert isinstance(event, events.Dropped)
            for offset in set_of(event.offsets):
                self.end(self.messages[offset], events.CANCELLED)
        leases = {nonce: lease.deadline_ms for nonce, lease in self.ledger.leases}
        for message in self.messages:
            if message.state == "leased":
                message.until_ms = leases[message.nonce]
            if message.state in ("waiting", "ready"):
                # A restart cannot know who was woken before it, so they wait once more.
                due_ms = self.ledger.waiting.due_of(message.offset)
                message.state = "ready" if due_ms is None else "waiting"
                message.until_ms = due_ms or 0

    # What the model says.

    def end(self, message: Message, outcome: str) -> None:
        if message.state != "done":
            message.state = "done"
            self.ended[outcome] += 1

    def settled(self) -> BitMap64:
        return BitMap64(m.offset for m in self.messages if m.state == "done")

    def prefix(self) -> int:
        for message in self.messages:
            if message.state != "done":
                return message.offset
        return len(self.messages)

    def ready(self) -> set[int]:
        for message in self.messages:
            if message.state == "waiting" and message.until_ms <= self.now_ms:
                message.state = "ready"
        ready = set()
        blocked: set[int] = set()
        for message in self.messages:
            if message.state == "done":
                continue
            line = None if message.key is None else self.number(message.key)
            is_blocked = self.by_key and line is not None and line in blocked
            if line is not None:
                blocked.add(line)
            is_visible = not message.is_hidden and not message.is_cancelled
            if message.state == "ready" and is_visible and not is_blocked:
                ready.add(message.offset)
        return ready

    def check(self) -> None:
        ledger = self.ledger
        assert ledger.committed == self.prefix()
        done = {m.offset for m in self.messages if m.state == "done" and m.offset >= self.prefix()}
        assert set(ledger.done) == done
        assert set(ledger.leases.offsets) == self.offsets_in("leased")
        assert set(ledger.dooms) == self.offsets_in("doomed")
        assert {o for o in range(len(self.messages)) if ledger.is_held(o)} == self.offsets_in(
            "held"
        )
        waiting = {
            m.offset for m in self.messages if m.state == "waiting" and m.until_ms > self.now_ms
        }
        assert waiting <= set(ledger.waiting.offsets) <= self.offsets_in("waiting") | waiting
        for message in self.messages:
            if message.state != "done":
                assert ledger.histories.count(message.offset) == message.failures
        assert dict(zip(events.OUTCOMES, ledger.outcomes, strict=True)) == self.ended
        assert sum(ledger.outcomes) == ledger.committed + len(ledger.done), "nothing is lost"

    def offsets_in(self, state: str) -> set[int]:
        return {message.offset for message in self.messages if message.state == state}

    def step(self) -> None:
        actions: list[tuple[int, Callable[[], None]]] = [
            (10, self.poll),
            (8, self.ack),
            (4, self.nack),
            (1, self.reject),
            (2, self.extend),
            (2, self.release),
            (2, self.hold),
            (2, self.end_hold),
            (3, self.publish),
            (3, self.due),
            (1, self.cancel),
            (2, self.move),
            (4, self.time_passes),
            (1, self.commit_offset),
            (1, self.restart),
        ]
        weights = [weight for weight, _ in actions]
        (action,) = self.random.choices([action for _, action in actions], weights)
        action()
        self.check()


@pytest.mark.parametrize("by_key", [False, True])
@pytest.mark.parametrize("lanes", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_the_ledger_agrees_with_the_model(seed: int, *, by_key: bool, lanes: bool) -> None:
    """Every message is in exactly one state, the same as in the model, over any life (P2, P4)."""
    life = Life(seed, by_key=by_key, lanes=lanes)
    for _ in range(STEPS):
        life.step()


@pytest.mark.parametrize("seed", range(25))
def test_the_ledger_agrees_with_the_model_where_sets_are_packed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes no difference how a set is written, or that the ack of a whole lease has none."""
    monkeypatch.setattr(runs, "_RUNS_MAX", 1)
    life = Life(seed, by_key=True, lanes=bool(seed % 2))
    for _ in range(STEPS):
        life.step()


@pytest.mark.parametrize("seed", range(10))
def test_keys_of_one_number_are_one_line(seed: int) -> None:
    """A collision keeps two keys in order together; nothing is lost or out of order (P2, P7)."""

    def collide(key: bytes | None) -> int:
        return STEP if key in {b"a", b"b"} else 2 * STEP

    life = Life(seed, by_key=True, lanes=True, number=collide)
    for _ in range(STEPS):
        life.step()
