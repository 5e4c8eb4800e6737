"""Dead letters: listed, looked at, sent back, thrown away."""

from collections.abc import Sequence
from typing import NamedTuple

from goqueue.base.caller import Caller
from goqueue.base.deeds import Deed
from goqueue.base.errors import InvalidRequestError
from goqueue.core.dlq.names import dlq_name, source_of
from goqueue.core.dlq.redrive import Kind, Order
from goqueue.runtime.broker import Broker
from goqueue.runtime.dlq.letters import DeadLetterRow
from goqueue.runtime.dlq.reports import DeadLetterPage, RedriveProgress, Trial
from goqueue.runtime.dlq.shelving import frame_of
from goqueue.service.gate import Gate
from goqueue.service.verb import Reply, RequestContext, caller_verb, verb
from goqueue.wire import calls, dlq_calls


class Letters(NamedTuple):
    """Dead letters of a source, and the topic they are in."""

    topic: str
    source: str
    page: DeadLetterPage


class Redrive(NamedTuple):
    """A job that began, or what it would do to dead letters of a source."""

    topic: str
    source: str
    job: dlq_calls.RedriveState | None
    trial: Trial | None


class DeadLetters:
    """What can be asked about dead letters; a topic is named by itself or by that of its letters.

    A topic that has no dead letters yet has an empty page of them, and nothing to send back.
    """

    def __init__(self, broker: Broker, gate: Gate) -> None:
        self._gate = gate
        self._topics = broker.topics
        self._redrives = broker.redrives

    @caller_verb(Deed.LIST_DLQ)
    async def list_all(self, caller: Caller, _: calls.Nothing) -> dlq_calls.DlqList:
        """Return every topic of dead letters."""
        return dlq_calls.DlqList(
            [
                dlq_calls.DlqSummary(
                    one.dlq,
                    one.source,
                    one.depth,
                    -1 if one.oldest_us is None else one.oldest_us,
                    0 if one.active is None else one.active.id,
                )
                for one in self._gate.visible(
                    caller,
                    Deed.PEEK_DLQ,
                    await self._redrives.summaries(),
                    lambda one: str(one.dlq),
                )
            ]
        )

    @verb(Deed.PEEK_DLQ)
    async def peek(self, call: dlq_calls.PeekLetters, context: RequestContext) -> Reply:
        """Return dead letters as frames, without taking them."""
        room = await context.room.take(call.bytes_max)
        page = await self._peek(call, bytes_max=min(call.bytes_max, room))
        partitions, frames = _frames(page.letters)
        sizes = [len(frame) for frame in frames]
        context.room.keep(sum(sizes))
        topic = dlq_name(call.topic)
        header = dlq_calls.LettersPage(topic, page.depth, page.is_cut, partitions, sizes)
        return Reply(header, frames)

    @verb(Deed.PEEK_DLQ)
    async def read(self, call: dlq_calls.PeekLetters) -> Letters:
        """Return dead letters as messages, without taking them."""
        page = await self._peek(call, bytes_max=call.bytes_max)
        return Letters(*self._names(call.topic), page)

    async def _peek(self, call: dlq_calls.PeekLetters, *, bytes_max: int) -> DeadLetterPage:
        return await self._redrives.peek(
            call.topic,
            call.filter,
            limit=call.limit,
            skip=call.skip,
            partition=call.partition,
            from_offset=call.offset,
            bytes_max=bytes_max,
        )

    def _names(self, name: str) -> tuple[str, str]:
        topic = dlq_name(name)
        return topic, source_of(topic, self._topics)

    @caller_verb(Deed.START_REDRIVE)
    async def start(self, caller: Caller, call: dlq_calls.StartRedrive) -> Reply:
        """Begin a redrive or a purge, or try it out; the sample of a trial comes as frames."""
        _, _, job, trial = await self._start(caller, call)
        if trial is None:
            return Reply(dlq_calls.RedriveReply(job=job))
        partitions, frames = _frames(trial.sample)
        told = dlq_calls.RedriveTrial(
            trial.matched,
            trial.unmatched,
            trial.skipped,
            trial.is_cut,
            partitions,
            [len(frame) for frame in frames],
        )
        return Reply(dlq_calls.RedriveReply(trial=told), frames)

    @caller_verb(Deed.START_REDRIVE, Deed.PURGE_DLQ)
    async def begin(self, caller: Caller, call: dlq_calls.StartRedrive) -> Redrive:
        """Begin a redrive or a purge, or try it out."""
        return await self._start(caller, call)

    async def _start(self, caller: Caller, call: dlq_calls.StartRedrive) -> Redrive:
        if call.kind not in tuple(Kind):
            raise InvalidRequestError(f"kind: must be one of {', '.join(Kind)}")
        order = Order(
            kind=Kind(call.kind),
            target=call.target,
            filter=call.filter,
            rate=call.rate,
            max_redrives=call.max_redrives,
            by=call.by,
        )
        names = self._names(call.topic)
        if order.kind is Kind.REDRIVE:
            self._gate.admit(caller, Deed.PUBLISH, (call.target or names[1],))
        if call.is_dry_run:
            return Redrive(*names, None, await self._redrives.try_out(call.topic, order))
        progress = await self._redrives.start(call.topic, order)
        return Redrive(*names, _state(progress), None)

    @verb(Deed.DESCRIBE_REDRIVE)
    async def describe(self, call: dlq_calls.RedriveCall) -> dlq_calls.RedriveState:
        """Return how far a job is."""
        await self._redrives.refresh(call.topic)
        return _state(self._redrives.progress(call.topic, call.id))

    @verb(Deed.LIST_REDRIVES)
    async def history(self, call: calls.TopicCall) -> dlq_calls.RedriveHistory:
        """Return the jobs of a topic, the latest first."""
        await self._redrives.refresh(call.name)
        jobs = [_state(progress) for progress in self._redrives.history(call.name)]
        return dlq_calls.RedriveHistory(jobs)

    @verb(Deed.CANCEL_REDRIVE)
    async def cancel(self, call: dlq_calls.RedriveCall) -> dlq_calls.RedriveState:
        """End a job after the batch under way."""
        return _state(await self._redrives.cancel(call.topic, call.id))


def _state(progress: RedriveProgress) -> dlq_calls.RedriveState:
    job, order = progress.job, progress.job.order
    return dlq_calls.RedriveState(
        job.id,
        order.kind.value,
        job.state.value,
        order.target,
        order.by,
        job.started_ms,
        job.ended_ms,
        job.total,
        progress.moved,
        job.unmatched,
        job.skipped,
        progress.error,
        order.rate,
        order.max_redrives,
        order.filter,
    )


def _frames(letters: Sequence[DeadLetterRow]) -> tuple[list[int], list[bytes]]:
    partitions = [int(letter.message.partition) for letter in letters]
    return partitions, [frame_of(letter.message) for letter in letters]
