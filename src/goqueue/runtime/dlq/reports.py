"""What people are told of dead letters and of the jobs that work on them."""

from typing import NamedTuple

from goqueue.base.ids import Offset, TopicName
from goqueue.core.dlq.redrive import Job
from goqueue.runtime.dlq.dead_letter_index import DeadLetterIndex
from goqueue.runtime.dlq.letters import DeadLetterRow, first_of
from goqueue.runtime.queue.read_offsets import read_offsets


class Summary(NamedTuple):
    """The dead letters of one topic; ``oldest_us`` is when the first of them died."""

    dlq: TopicName
    source: TopicName
    depth: int
    oldest_us: int | None
    active: Job | None


class RedriveProgress(NamedTuple):
    """A job, how many it has moved so far, and why it does not get on."""

    job: Job
    moved: int
    error: str


class DeadLetterPage(NamedTuple):
    """Some dead letters; more may follow."""

    letters: list[DeadLetterRow]
    depth: int
    is_cut: bool
    skipped: int = 0
    """How many were left out before the first of these."""


class Trial(NamedTuple):
    """What a job would do: how many are meant, how many went back too often, and the first few."""

    matched: int
    unmatched: int
    skipped: int
    sample: list[DeadLetterRow]
    is_cut: bool


async def oldest_us(shelf: DeadLetterIndex) -> int | None:
    """Return when the first of the dead letters of a partition died."""
    left = first_of(shelf.left(), 1)
    if not left:
        return None
    plucked = await read_offsets(shelf.partition, left, end_offset=Offset(left.max() + 1))
    return plucked.messages[0].timestamp_us if plucked.messages else None
