"""Client processes that start together: what they did, how long it took, and what it cost them."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import NamedTuple, Protocol

from benchmarks.peers.peer import Peer
from benchmarks.percentiles import latency_summary
from benchmarks.results import Better
from benchmarks.trial import P50, P99, RATE, Measured, Metric

READY_SECONDS_MAX = 60.0
DONE_SECONDS_MAX = 60.0
CLOSED_SECONDS_MAX = 60.0
END_SECONDS_MAX = 5.0
HEAD_START_SECONDS = 0.02
"""From the word to go until the clock starts, so that every process begins at the same time."""

CLIENT = Metric(name="client", unit="us/msg", better=Better.LOWER)
BROKER = Metric(name="broker", unit="us/msg", better=Better.LOWER)


class ShiftFailedError(Exception):
    """A client process raised; the message has what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """When a client process stops, whichever comes first."""

    count: int
    seconds: float


class Tally(NamedTuple):
    """What one process did."""

    latencies: list[float]
    """The seconds of each message."""
    ended: float
    processor_seconds: float


class Clock:
    """When a client process begins and ends, and the processor time it used in between."""

    def __init__(self, parent: Connection) -> None:
        self._parent = parent
        self.ended = 0.0
        self.processor_seconds = 0.0

    def begin(self) -> float:
        """Say that all is connected, wait for the others, return the time of the beginning."""
        self._parent.send(None)
        started: float = self._parent.recv()
        self.processor_seconds = -time.process_time()
        time.sleep(max(0.0, started - time.monotonic()))
        return started

    def end(self) -> None:
        """Stop, and wait until the broker's time is taken: closing connections is not counted."""
        self.ended = time.monotonic()
        self.processor_seconds += time.process_time()
        self._parent.send(None)
        self._parent.recv()


class Shift(Protocol):
    """The work of one client process, to be handed to it."""

    def run(self, clock: Clock) -> list[float]:
        """Connect, begin, work within bounds, end; return the seconds each message took."""
        ...


def measure(peer: Peer, shifts: Sequence[Shift]) -> tuple[int, Measured]:
    """Run each shift in its own process; return the messages done, and what that took."""
    context = get_context("spawn")
    with ExitStack() as stack:
        pipes: list[Connection] = []
        for shift in shifts:
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(shift, theirs), daemon=True)
            process.start()
            stack.callback(_end, process)
            theirs.close()
            pipes.append(ours)
        for pipe in pipes:
            _receive(pipe, READY_SECONDS_MAX)
        before = peer.processor_seconds()
        started = time.monotonic() + HEAD_START_SECONDS
        for pipe in pipes:
            pipe.send(started)
        for pipe in pipes:
            _receive(pipe, DONE_SECONDS_MAX)
        used = peer.processor_seconds() - before
        for pipe in pipes:
            pipe.send(None)
        tallies = [_receive(pipe, CLOSED_SECONDS_MAX) for pipe in pipes]
    return _summary([tally for tally in tallies if tally is not None], started, used)


def _summary(
    tallies: Sequence[Tally], started: float, broker_seconds: float
) -> tuple[int, Measured]:
    latencies = [seconds for tally in tallies for seconds in tally.latencies]
    done = len(latencies)
    assert done, "no message was done in time"
    latency = latency_summary(latencies)
    client_seconds = sum(tally.processor_seconds for tally in tallies)
    return done, {
        RATE: done / (max(tally.ended for tally in tallies) - started),
        P50: latency["p50"],
        P99: latency["p99"],
        CLIENT: client_seconds / done * 1e6,
        BROKER: broker_seconds / done * 1e6,
    }


def _work(shift: Shift, parent: Connection) -> None:
    """Run in the client's process."""
    clock = Clock(parent)
    try:
        latencies = shift.run(clock)
    except Exception as error:  # noqa: BLE001 - whatever it was, the harness reports it
        parent.send(_first_words(error))
    else:
        parent.send(Tally(latencies, clock.ended, clock.processor_seconds))


def _first_words(error: Exception) -> str:
    """Name what went wrong first: tasks fail in groups."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _receive(pipe: Connection, seconds: float) -> Tally | None:
    if not pipe.poll(seconds):
        raise TimeoutError("a client process said nothing")
    said: Tally | str | None = pipe.recv()
    if isinstance(said, str):
        raise ShiftFailedError(said)
    return said


def _end(process: BaseProcess) -> None:
    process.join(END_SECONDS_MAX)
    process.kill()
    process.join()
