"""The book of redrives told as stories, and the story of a dead letter byte for byte."""

import os
from pathlib import Path

import msgspec

from goqueue.base.limits import HEADERS_BYTES_MAX
from goqueue.core.dlq import redrive
from goqueue.core.dlq.record import Attempt, Story, write_story
from goqueue.core.dlq.redrive import Event, Job, Kind, Order, RedriveBook, RedriveState
from goqueue.testing import golden
from goqueue.testing.clock import FakeClock
from tests.core.test_stories import Shell

GOLDEN = Path(__file__).parents[2] / "golden" / "dlq"
_decode = msgspec.msgpack.Decoder(list[Event]).decode


def told(job: Job) -> str:
    counts = f"moved {job.moved}, unmatched {job.unmatched}, skipped {job.skipped} of {job.total}"
    return f"{job.id} {job.order.kind} {job.state} at {job.positions}: {counts}"


class RedriveShell(Shell):
    """``start kind target ends…``, ``advance id partition next unmatched skipped``, ``end``."""

    def __init__(self) -> None:
        self.book = RedriveBook()
        self.clock = FakeClock()

    def _do(self, events: tuple[Event, ...]) -> str:
        for event in _decode(msgspec.msgpack.encode(events)):
            self.book.apply(event)
        return ", ".join(type(event).__name__.lower() for event in events) or "nothing"

    def start(self, kind: str, target: str, *ends: str) -> str:
        decision = self.book.start(
            Order(kind=Kind(kind), target=target.strip("-")),
            ends=[int(end) for end in ends],
            left_before=[0] * len(ends),
            total=sum(map(int, ends)),
            now_ms=self.clock.now_ms(),
        )
        return f"{self._do(decision.events)} {decision.reply}"

    def advance(self, job: str, number: str, position: str, unmatched: str, skipped: str) -> str:
        decision = self.book.advance(
            int(job), int(number), int(position), unmatched=int(unmatched), skipped=int(skipped)
        )
        return self._do(decision.events)

    def end(self, job: str, state: str, moved: str) -> str:
        decision = self.book.end(
            int(job), RedriveState(state), moved=int(moved), now_ms=self.clock.now_ms()
        )
        return self._do(decision.events)

    def get(self, job: str) -> str:
        return told(self.book.get(int(job)))

    def many(self, count: str) -> str:
        for _ in range(int(count)):
            job = self.start("redrive", "orders", "1").split()[-1]
            self.end(job, "done", "1")
        return f"{len(self.book.jobs)} jobs, {self.book.jobs[-1].id} to {self.book.jobs[0].id}"

    def restart(self) -> str:
        kept, self.book = self.book, RedriveBook()
        return self._do(tuple(kept.snapshot()))

    def show(self) -> str:
        return "\n".join(map(told, self.book.jobs))


def test_the_book_of_redrives() -> None:
    """One job at a time, counted once, remembered over restarts."""
    path = GOLDEN / "redrive.txt"
    text = path.read_text()
    output = golden.run(text, RedriveShell().execute)
    if os.environ.get("GOLDEN_REWRITE"):
        path.write_text(output)

    assert output == text


def test_every_state_has_its_ends() -> None:
    """The table of transitions knows every state, and only a running job ends."""
    assert set(redrive.OVER) == set(RedriveState)
    assert [state for state in RedriveState if redrive.OVER[state]] == [RedriveState.RUNNING]


STORY = Story(
    original_topic="orders",
    original_partition=2,
    original_offset=41,
    original_timestamp_us=1_700_000_000_123_456,
    delivery_attempts=40,
    first_delivery_ms=1_700_000_001_000,
    last_delivery_ms=1_700_000_040_000,
    last_consumer="worker-1",
    last_group="billing",
    reason="MAX_RETRIES_EXCEEDED",
    last_error="timeout 39",
    dlq_time_ms=1_700_000_041_000,
    trace="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    receipt_log=[
        Attempt(at_ms=1_700_000_001_000 + number, consumer="worker-1", error=f"timeout {number}")
        for number in (38, 39)
    ],
)


def test_a_story_is_written_as_ever() -> None:
    """Its bytes are read by strangers and do not change; less room cuts the least important."""
    lines = [
        f"{room}: {write_story(STORY, bytes_max=room).decode()}"
        for room in (HEADERS_BYTES_MAX, 620, 560, 520, 440, 400, 380, 340, 100)
    ]
    path = GOLDEN / "story.txt"
    text = "\n".join(lines) + "\n"
    if os.environ.get("GOLDEN_REWRITE"):
        path.write_text(text)

    assert path.read_text() == text
    for line in lines:
        room, _, written = line.partition(": ")
        assert len(written) <= int(room)
