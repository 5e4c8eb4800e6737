"""The native operations on dead letters."""

from collections.abc import Callable, Sequence
from typing import Any

from goqueue.base.errors import InvalidRequestError
from goqueue.base.ids import Offset
from goqueue.core.dlq.redrive import Kind, Order
from goqueue.core.record.message import Draft, Message
from goqueue.core.record.row import encode_row
from goqueue.runtime.broker import Broker
from goqueue.runtime.letters import Letter
from goqueue.runtime.redrive import Progress
from goqueue.transport.native.reply import Beside, Reply
from goqueue.wire import calls, dlq_calls
from goqueue.wire.packet import Operation


class DlqOperations:
    """Translates requests into calls on the dead letters."""

    def __init__(self, broker: Broker) -> None:
        self._redrives = broker.redrives

    def register(self, add: Callable[[Operation, type[calls.Call], Any], None]) -> None:
        """Name every operation, its header and who serves it."""
        add(Operation.LIST_DLQ, calls.Nothing, self._list)
        add(Operation.PEEK_DLQ, dlq_calls.PeekLetters, self._peek)
        add(Operation.START_REDRIVE, dlq_calls.StartRedrive, self._start)
        add(Operation.DESCRIBE_REDRIVE, dlq_calls.RedriveCall, self._describe)
        add(Operation.LIST_REDRIVES, calls.TopicCall, self._history)
        add(Operation.CANCEL_REDRIVE, dlq_calls.RedriveCall, self._cancel)

    async def _list(self, _: calls.Nothing, __: Beside) -> Reply:
        return Reply(
            dlq_calls.DlqList(
                [
                    dlq_calls.DlqSummary(
                        one.dlq,
                        one.source,
                        one.depth,
                        -1 if one.oldest_us is None else one.oldest_us,
                        0 if one.active is None else one.active.id,
                    )
                    for one in await self._redrives.summaries()
                ]
            )
        )

    async def _peek(self, call: dlq_calls.PeekLetters, beside: Beside) -> Reply:
        room = await beside.room.take(call.bytes_max)
        page = await self._redrives.peek(
            call.topic,
            call.filter,
            limit=call.limit,
            skip=call.skip,
            partition=call.partition,
            from_offset=call.offset,
            bytes_max=min(call.bytes_max, room),
        )
        partitions, frames = _frames(page.letters)
        sizes = [len(frame) for frame in frames]
        beside.room.keep(sum(sizes))
        topic = self._redrives.find(call.topic).record.name
        header = dlq_calls.LettersPage(topic, page.depth, page.is_cut, partitions, sizes)
        return Reply(header, frames)

    async def _start(self, call: dlq_calls.StartRedrive, _: Beside) -> Reply:
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
        if not call.is_dry_run:
            progress = await self._redrives.start(call.topic, order)
            return Reply(dlq_calls.RedriveReply(job=state_of(progress)))
        trial = await self._redrives.try_out(call.topic, order)
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

    async def _describe(self, call: dlq_calls.RedriveCall, _: Beside) -> Reply:
        return Reply(state_of(self._redrives.progress(call.topic, call.id)))

    async def _history(self, call: calls.TopicCall, _: Beside) -> Reply:
        jobs = [state_of(progress) for progress in self._redrives.history(call.name)]
        return Reply(dlq_calls.RedriveHistory(jobs))

    async def _cancel(self, call: dlq_calls.RedriveCall, _: Beside) -> Reply:
        return Reply(state_of(await self._redrives.cancel(call.topic, call.id)))


def state_of(progress: Progress) -> dlq_calls.RedriveState:
    """Return a job as it travels."""
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


def _frames(letters: Sequence[Letter]) -> tuple[list[int], list[bytes]]:
    partitions = [int(letter.message.partition) for letter in letters]
    return partitions, [_frame(letter.message) for letter in letters]


def _frame(message: Message) -> bytes:
    draft = Draft(
        key=message.key,
        value=message.value,
        timestamp_us=message.timestamp_us,
        headers=message.headers,
        priority=message.priority,
    )
    return encode_row(draft, offset=Offset(message.offset))
