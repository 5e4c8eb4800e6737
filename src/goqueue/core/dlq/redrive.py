"""The redrives and purges of one topic of dead letters: one at a time, and what became of them.

Shape: decider. What was moved is known to the ledgers of the partitions; this book knows how far a
job has looked, so that a restart goes on there, and keeps the jobs that are over.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from goqueue.base.errors import RedriveActiveError, RedriveNotFoundError
from goqueue.base.limits import REDRIVES_KEPT_MAX
from goqueue.core.decision import Decision
from goqueue.core.dlq.filter import Filter

Text = Annotated[str, msgspec.Meta(max_length=1_000)]

NO_ID: Final = 0
"""Jobs count from one; this is none of them."""


class Kind(StrEnum):
    """What happens to the dead letters that are meant."""

    REDRIVE = "redrive"
    PURGE = "purge"


class RedriveState(StrEnum):
    """Where a job is."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    kind: Kind
    target: str = ""
    filter: Filter = Filter()
    rate: int = 0
    max_redrives: int = 0
    by: Text = ""


class Started(msgspec.Struct, frozen=True, tag="s", array_like=True, kw_only=True):
    """A job began: up to these offsets; so many had left each partition before it."""

    id: int
    order: Order
    ends: list[int]
    left_before: list[int]
    total: int
    at_ms: int


class Advanced(msgspec.Struct, frozen=True, tag="a", array_like=True, kw_only=True):
    """A job looked at one partition up to an offset; some were not meant, some went too often."""

    id: int
    partition: int
    next_offset: int
    unmatched: int
    skipped: int


class Ended(msgspec.Struct, frozen=True, tag="e", array_like=True, kw_only=True):
    """A job is over, having moved so many."""

    id: int
    state: RedriveState
    moved: int
    at_ms: int
    error: Text = ""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One redrive or purge."""

    id: int
    order: Order
    ends: list[int]
    left_before: list[int]
    total: int
    started_ms: int
    positions: list[int]
    unmatched: int = 0
    skipped: int = 0
    state: RedriveState = RedriveState.RUNNING
    moved: int = 0
    ended_ms: int = 0
    error: str = ""

    @property
    def is_running(self) -> bool:
        """Return True if the job is not over."""
        return self.state is RedriveState.RUNNING


def nothing_to_do(order: Order, *, now_ms: int) -> Job:
    """Return the job of a topic that has no dead letters: over when it begins, kept nowhere."""
    return Job(
        id=NO_ID,
        order=order,
        ends=[],
        left_before=[],
        total=0,
        started_ms=now_ms,
        positions=[],
        state=RedriveState.DONE,
        ended_ms=now_ms,
    )


class RedriveRestored(msgspec.Struct, frozen=True, tag="o", array_like=True, kw_only=True):
    """The whole book, in the place of all that led to it."""

    next_id: int
    jobs: list[Job]


Event = Started | Advanced | Ended | RedriveRestored

OVER: Final[Mapping[RedriveState, frozenset[RedriveState]]] = {
    RedriveState.RUNNING: frozenset(
        {RedriveState.DONE, RedriveState.CANCELLED, RedriveState.FAILED}
    ),
    RedriveState.DONE: frozenset(),
    RedriveState.CANCELLED: frozenset(),
    RedriveState.FAILED: frozenset(),
}
"""How a job may end."""


class RedriveBook:
    """Decides about the jobs of one topic of dead letters and remembers them."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._next_id = 1

    def __repr__(self) -> str:
        return f"<RedriveBook of {len(self._jobs)} jobs>"

    @property
    def jobs(self) -> Sequence[Job]:
        """Every job, the latest first."""
        return list(reversed(self._jobs.values()))

    @property
    def active(self) -> Job | None:
        """The job that runs now."""
        latest = next(reversed(self._jobs.values()), None)
        return latest if latest is not None and latest.is_running else None

    def get(self, job_id: int) -> Job:
        """Return a job or raise."""
        job = self._jobs.get(job_id)
        if job is None:
            raise RedriveNotFoundError(f"there is no redrive {job_id}")
        return job

    def start(
        self,
        order: Order,
        *,
        ends: Sequence[int],
        left_before: Sequence[int],
        total: int,
        now_ms: int,
    ) -> Decision[Event, int]:
        """Begin a job on what is there now."""
        if self.active is not None:
            raise RedriveActiveError(
                f"{self.active.order.kind} {self.active.id} is still running; cancel it or wait"
            )
        started = Started(
            id=self._next_id,
            order=order,
            ends=list(ends),
            left_before=list(left_before),
            total=total,
            at_ms=now_ms,
        )
        return Decision((started,), self._next_id)

    def advance(
        self, job_id: int, partition: int, next_offset: int, *, unmatched: int, skipped: int
    ) -> Decision[Event, None]:
        """Note how far a job has looked. Looking at the same again counts nothing twice."""
        job = self.get(job_id)
        if not job.is_running or next_offset <= job.positions[partition]:
            return Decision((), None)
        advanced = Advanced(
            id=job_id,
            partition=partition,
            next_offset=next_offset,
            unmatched=unmatched,
            skipped=skipped,
        )
        return Decision((advanced,), None)

    def end(
        self, job_id: int, state: RedriveState, *, moved: int, now_ms: int, error: str = ""
    ) -> Decision[Event, None]:
        """End a job; one that is over stays as it ended."""
        if state not in OVER[self.get(job_id).state]:
            return Decision((), None)
        ended = Ended(id=job_id, state=state, moved=moved, at_ms=now_ms, error=error[:1_000])
        return Decision((ended,), None)

    def apply(self, event: Event) -> None:
        """Change state by one event."""
        match event:
            case Started():
                self._start(event)
            case Advanced(id=job_id):
                self._advance(self._jobs[job_id], event)
            case Ended(id=job_id):
                self._jobs[job_id] = msgspec.structs.replace(
                    self._jobs[job_id],
                    state=event.state,
                    moved=event.moved,
                    ended_ms=event.at_ms,
                    error=event.error,
                )
            case RedriveRestored(next_id=next_id, jobs=jobs):
                self._next_id = next_id
                self._jobs = {job.id: job for job in jobs}

    def _start(self, event: Started) -> None:
        self._jobs[event.id] = Job(
            id=event.id,
            order=event.order,
            ends=event.ends,
            left_before=event.left_before,
            total=event.total,
            started_ms=event.at_ms,
            positions=[0] * len(event.ends),
        )
        self._next_id = event.id + 1
        while len(self._jobs) > REDRIVES_KEPT_MAX:
            del self._jobs[next(iter(self._jobs))]

    def _advance(self, job: Job, event: Advanced) -> None:
        positions = list(job.positions)
        positions[event.partition] = event.next_offset
        self._jobs[job.id] = msgspec.structs.replace(
            job,
            positions=positions,
            unmatched=job.unmatched + event.unmatched,
            skipped=job.skipped + event.skipped,
        )

    def snapshot(self) -> Iterable[Event]:
        """Return the event that rebuilds this state."""
        yield RedriveRestored(next_id=self._next_id, jobs=list(self._jobs.values()))
