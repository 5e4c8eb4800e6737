"""The headers of requests and replies about dead letters.

A peek's letters travel as row frames in the payload, in the order of ``sizes``.
"""

from typing import Annotated

import msgspec

from goqueue.base.limits import (
    FETCH_BYTES_MAX,
    HTTP_READ_MESSAGES_MAX,
    REDRIVE_RATE_MAX,
    REDRIVES_DEFAULT,
    REDRIVES_MAX,
)
from goqueue.core.dlq.filter import EVERYTHING, Filter
from goqueue.wire.calls import Call, Name, Natural, Number, Text

LETTERS_MAX = HTTP_READ_MESSAGES_MAX

Rate = Annotated[int, msgspec.Meta(ge=0, le=REDRIVE_RATE_MAX)]
Redrives = Annotated[int, msgspec.Meta(ge=0, le=REDRIVES_MAX)]


class DlqSummary(Call, frozen=True):
    """The dead letters of a topic; ``oldest_us`` is when the first died, -1 if there is none."""

    topic: str
    source: str
    depth: int
    oldest_us: int = -1
    redrive: int = 0
    """The job that runs, 0 if none does."""


class DlqList(Call, frozen=True):
    """Every topic of dead letters."""

    topics: list[DlqSummary]


class PeekLetters(Call, frozen=True):
    """Look at dead letters."""

    topic: Name
    filter: Filter = EVERYTHING
    limit: Annotated[int, msgspec.Meta(ge=1, le=LETTERS_MAX)] = 100
    skip: Natural = 0
    partition: Number | None = None
    offset: Natural = 0
    bytes_max: Annotated[int, msgspec.Meta(ge=1, le=FETCH_BYTES_MAX)] = FETCH_BYTES_MAX // 2


class LettersPage(Call, frozen=True):
    """Dead letters: the partition and the size in the payload of each."""

    topic: str
    depth: int
    is_cut: bool
    """Whether more may follow."""
    partitions: list[int]
    sizes: list[int]


class StartRedrive(Call, frozen=True):
    """Send dead letters back, or (``kind`` purge) throw them away."""

    topic: Name
    kind: Text = "redrive"
    target: Name = ""
    filter: Filter = EVERYTHING
    rate: Rate = 0
    max_redrives: Redrives = REDRIVES_DEFAULT
    is_dry_run: bool = False
    by: Text = ""


class RedriveState(Call, frozen=True):
    """A job: what was asked for, by whom, and how far it is."""

    id: int
    kind: str
    state: str
    target: str
    by: str
    started_ms: int
    ended_ms: int
    total: int
    moved: int
    unmatched: int
    skipped: int
    error: str
    rate: int
    max_redrives: int
    filter: Filter

    @property
    def is_running(self) -> bool:
        """Return True if the job is not over."""
        return self.state == "running"

    @property
    def looked_at(self) -> int:
        """Return how many dead letters were dealt with, of ``total``."""
        return self.moved + self.unmatched + self.skipped


class RedriveTrial(Call, frozen=True):
    """What a job would do. The sample's letters are in the payload."""

    matched: int
    unmatched: int
    skipped: int
    is_cut: bool
    partitions: list[int]
    sizes: list[int]


class RedriveReply(Call, frozen=True):
    """A job that began, or what it would do."""

    job: RedriveState | None = None
    trial: RedriveTrial | None = None


class RedriveCall(Call, frozen=True):
    """Name a job."""

    topic: Name
    id: Natural


class RedriveHistory(Call, frozen=True):
    """The jobs of a topic, the latest first."""

    jobs: list[RedriveState]
