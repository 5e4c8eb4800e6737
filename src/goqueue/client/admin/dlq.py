"""Dead letters in the SDK: look at them, send them back, throw them away."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypedDict, Unpack

import msgspec

from goqueue.base.ids import PartitionId, TopicName
from goqueue.base.limits import REDRIVES_DEFAULT
from goqueue.base.units import SECOND_MS
from goqueue.client.admin.calls import AsyncCalls
from goqueue.client.protocol.exchange import decode
from goqueue.core.delivery.runs import runs_in
from goqueue.core.dlq.filter import Filter
from goqueue.core.dlq.record import STORY, Story, read_story, redrives_of
from goqueue.core.record.frame import read_header
from goqueue.core.record.message import Message
from goqueue.core.record.row import Row
from goqueue.wire import calls, dlq_calls
from goqueue.wire.dlq_calls import DlqSummary, RedriveState
from goqueue.wire.packet import Operation

POLL_MS = 200

Watch = Callable[[RedriveState], None]


class Chosen(TypedDict, total=False):
    """Which dead letters are meant; all that is given must hold."""

    reason: str
    group: str
    key: bytes | str
    key_prefix: bytes | str
    header: str
    """``name`` or ``name=value``."""
    since: datetime
    until: datetime
    text: str
    places: Mapping[int, Sequence[int]]
    """Just these: offsets by partition, at most REDRIVE_RUNS_MAX runs of them."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that failed for good, as it was, and the story of its failures."""

    message: Message
    story: Story

    @property
    def redrives(self) -> int:
        """Return how often it was sent back before."""
        return redrives_of(self.message.headers)


class LetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some dead letters, how many there are, and whether more may follow."""

    letters: list[DeadLetter]
    depth: int
    is_cut: bool


class RedriveTrial(msgspec.Struct, frozen=True, kw_only=True):
    """What a redrive would do: how many would go, how many are not meant or went too often."""

    matched: int
    unmatched: int
    skipped: int
    is_cut: bool
    sample: list[DeadLetter]


def filter_of(chosen: Chosen) -> Filter:
    """Return what is chosen as it travels."""
    name, has_value, value = chosen.get("header", "").partition("=")
    since, until = chosen.get("since"), chosen.get("until")
    return Filter(
        reason=chosen.get("reason"),
        group=chosen.get("group"),
        key=_bytes(chosen.get("key")),
        key_prefix=_bytes(chosen.get("key_prefix")),
        header=name or None,
        header_value=value.encode() if has_value else None,
        since_ms=None if since is None else int(since.timestamp() * SECOND_MS),
        until_ms=None if until is None else int(until.timestamp() * SECOND_MS),
        text=chosen.get("text"),
        places=_runs(chosen.get("places")),
    )


def _runs(places: Mapping[int, Sequence[int]] | None) -> dict[int, list[int]] | None:
    if places is None:
        return None
    return {partition: runs_in(sorted(set(offsets))) for partition, offsets in places.items()}


def _bytes(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def letters_in(
    topic: str, partitions: list[int], sizes: list[int], payload: memoryview
) -> list[DeadLetter]:
    """Return the letters of a reply."""
    letters: list[DeadLetter] = []
    position = 0
    for partition, size in zip(partitions, sizes, strict=True):
        frame = payload[position : position + size]
        position += size
        stored = Row(read_header(frame), frame).message(TopicName(topic), PartitionId(partition))
        own = {name: value for name, value in (stored.headers or {}).items() if name != STORY}
        message = Message(
            stored.topic,
            stored.partition,
            stored.offset,
            stored.timestamp_us,
            stored.key,
            stored.value,
            own or None,
            stored.priority,
        )
        letters.append(DeadLetter(message=message, story=read_story(stored.headers)))
    return letters


class AsyncDlq(AsyncCalls):
    """The calls on dead letters. ``topic`` is the source, or the topic of its dead letters."""

    async def dlq_list(self) -> list[DlqSummary]:
        """Return every topic of dead letters."""
        return (await self._call(Operation.LIST_DLQ, calls.Nothing(), dlq_calls.DlqList)).topics

    async def dlq_peek(
        self,
        topic: str,
        *,
        limit: int = 100,
        skip: int = 0,
        partition: int | None = None,
        offset: int = 0,
        **chosen: Unpack[Chosen],
    ) -> LetterPage:
        """Return dead letters without taking them."""
        header = dlq_calls.PeekLetters(topic, filter_of(chosen), limit, skip, partition, offset)
        answer = await self._request(Operation.PEEK_DLQ, header)
        page = decode(answer.header, dlq_calls.LettersPage)
        letters = letters_in(page.topic, page.partitions, page.sizes, memoryview(answer.payload))
        return LetterPage(letters=letters, depth=page.depth, is_cut=page.is_cut)

    async def dlq_preview(
        self,
        topic: str,
        *,
        target: str | None = None,
        max_redrives: int = REDRIVES_DEFAULT,
        kind: str = "redrive",
        **chosen: Unpack[Chosen],
    ) -> RedriveTrial:
        """Return what a redrive (or purge) would do, and do nothing."""
        header = dlq_calls.StartRedrive(
            topic,
            kind,
            target or "",
            filter_of(chosen),
            max_redrives=max_redrives,
            is_dry_run=True,
        )
        answer = await self._request(Operation.START_REDRIVE, header)
        trial = decode(answer.header, dlq_calls.RedriveReply).trial
        assert trial is not None, "a dry run is answered with one"
        return RedriveTrial(
            matched=trial.matched,
            unmatched=trial.unmatched,
            skipped=trial.skipped,
            is_cut=trial.is_cut,
            sample=letters_in(topic, trial.partitions, trial.sizes, memoryview(answer.payload)),
        )

    async def dlq_redrive(
        self,
        topic: str,
        *,
        target: str | None = None,
        rate: int = 0,
        max_redrives: int = REDRIVES_DEFAULT,
        by: str = "",
        wait: bool = True,
        on_progress: Watch | None = None,
        **chosen: Unpack[Chosen],
    ) -> RedriveState:
        """Send dead letters back to their source, or to another topic.

        With ``wait`` it returns when the job is over, otherwise when it has begun. A client that
        goes away meanwhile does not end it.
        """
        header = dlq_calls.StartRedrive(
            topic, "redrive", target or "", filter_of(chosen), rate, max_redrives, by=by
        )
        return await self._start_redrive(header, wait=wait, on_progress=on_progress)

    async def dlq_purge(
        self,
        topic: str,
        *,
        by: str = "",
        wait: bool = True,
        on_progress: Watch | None = None,
        **chosen: Unpack[Chosen],
    ) -> RedriveState:
        """Throw dead letters away."""
        header = dlq_calls.StartRedrive(topic, "purge", "", filter_of(chosen), by=by)
        return await self._start_redrive(header, wait=wait, on_progress=on_progress)

    async def dlq_progress(self, topic: str, job_id: int) -> RedriveState:
        """Return how far a job is."""
        return await self._redrive_state(Operation.DESCRIBE_REDRIVE, topic, job_id)

    async def dlq_cancel(self, topic: str, job_id: int) -> RedriveState:
        """End a job after the batch under way."""
        return await self._redrive_state(Operation.CANCEL_REDRIVE, topic, job_id)

    async def dlq_history(self, topic: str) -> list[RedriveState]:
        """Return the jobs of a topic, the latest first."""
        header = calls.TopicCall(topic)
        return (await self._call(Operation.LIST_REDRIVES, header, dlq_calls.RedriveHistory)).jobs

    async def _start_redrive(
        self, header: dlq_calls.StartRedrive, *, wait: bool, on_progress: Watch | None
    ) -> RedriveState:
        reply = await self._once(Operation.START_REDRIVE, header, dlq_calls.RedriveReply)
        state = reply.job
        assert state is not None, "a start is answered with a job"
        while True:
            if on_progress is not None:
                on_progress(state)
            if not wait or not state.is_running:
                return state
            await asyncio.sleep(POLL_MS / SECOND_MS)
            state = await self.dlq_progress(header.topic, state.id)

    async def _redrive_state(self, operation: Operation, topic: str, job_id: int) -> RedriveState:
        header = dlq_calls.RedriveCall(topic, job_id)
        return await self._call(operation, header, RedriveState)
