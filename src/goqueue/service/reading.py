"""Reading: frames of several partitions, and pages of messages."""

import os

from goqueue.base.deeds import Deed
from goqueue.base.errors import GoQueueError
from goqueue.base.grant import Grant
from goqueue.base.ids import NO_EPOCH, Offset
from goqueue.base.units import MiB
from goqueue.runtime.broker import Broker
from goqueue.runtime.log import fetch
from goqueue.runtime.log.isolation import Isolation
from goqueue.runtime.log.page import PIECE_BYTES, Page, read_page
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.turns import Turns
from goqueue.service.verb import Reply, RequestContext, failure_of, granted_verb
from goqueue.wire import calls
from goqueue.wire.packet import Buffer

__all__ = ["PAGE_BYTES_MAX", "PIECE_BYTES", "Page", "Reading"]

PAGE_BYTES_MAX = 4 * MiB
"""A page ends when its messages are this large; a single larger message comes alone."""


class Reading:
    """What readers ask for."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @granted_verb(Deed.FETCH)
    async def fetch(self, grant: Grant, call: calls.Fetch, context: RequestContext) -> Reply:
        """Return frames as they lie in the log, waiting a while for some."""
        topic = self._broker.topic(call.topic)
        parts = [
            fetch.FetchPart(
                partition=part.partition,
                offset=part.offset,
                end_offset=part.end_offset,
                epoch=part.epoch,
            )
            for part in call.parts
        ]
        # What a client asks for is no proof of where it runs.
        in_place = call.in_place if context.is_local else 0
        # Reading in place takes more at a time than is worth sending.
        sent_max = call.bytes_max if in_place else call.in_place or call.bytes_max
        outcomes = await fetch.fetch(
            grant,
            topic,
            parts,
            bytes_max=min(call.bytes_max, sent_max),
            wait_ms=call.wait_ms,
            room=context.room,
            lens=Isolation(show_delayed=call.show_delayed, is_committed=call.is_committed),
            in_place=in_place,
        )
        answers: list[calls.FetchedPart] = []
        payload: list[Buffer] = []
        files: list[object] = []
        for part, outcome in zip(parts, outcomes, strict=True):
            if isinstance(outcome, GoQueueError):
                answers.append(_failed(topic, part, outcome))
                continue
            payload.append(outcome.frames)
            answers += _fetched(outcome)
            files += [found.extent.file for found in outcome.extents]
        return Reply(calls.Fetched(answers), payload, files=files)

    @granted_verb(Deed.FETCH)
    async def page(
        self,
        grant: Grant,
        call: calls.Fetch,
        *,
        count_max: int,
        from_us: int | None,
        turns: Turns,
    ) -> Page:
        """Return messages of one partition, from an offset or from a time on."""
        topic = self._broker.topic(call.topic)
        (part,) = call.parts
        offset = Offset(part.offset)
        if from_us is not None:
            partition = topic.partition(part.partition)
            found = partition.find_time(from_us)
            offset = partition.visible_offset if found is None else found
        return await read_page(
            grant,
            topic,
            part.partition,
            offset=offset,
            count_max=count_max,
            bytes_max=call.bytes_max,
            lens=Isolation(show_delayed=call.show_delayed, is_committed=call.is_committed),
            turns=turns,
        )


def _fetched(outcome: fetch.Fetched) -> list[calls.FetchedPart]:
    """Return what one partition had, in as many parts as are to be read one after the other."""
    ends = outcome.start_offset, outcome.end_offset
    if not outcome.extents:
        return [
            calls.FetchedPart(
                outcome.partition,
                len(outcome.frames),
                outcome.next_offset,
                *ends,
                [(gap.start_offset, gap.end_offset) for gap in outcome.gaps],
                hidden=[(gap.start_offset, gap.end_offset) for gap in outcome.hidden],
                epoch=outcome.epoch,
                taken_back=outcome.taken_back and (*outcome.taken_back,),
            )
        ]
    places = [(found, found.extent, found.extent.file.handle) for found in outcome.extents]
    return [
        calls.FetchedPart(
            outcome.partition,
            extent.size,
            extent.next_offset,
            *ends,
            place=calls.Place(os.getpid(), *handle, extent.position),
            aborted=[(gap.start_offset, gap.end_offset) for gap in found.aborted],
            epoch=outcome.epoch if extent.next_offset == outcome.next_offset else NO_EPOCH,
        )
        for found, extent, handle in places
        if handle is not None
    ]


def _failed(topic: Topic, part: fetch.FetchPart, error: GoQueueError) -> calls.FetchedPart:
    start = end = -1
    if part.partition < len(topic.partitions):
        partition = topic.partitions[part.partition]
        start, end = partition.log.start_offset, partition.visible_offset
    return calls.FetchedPart(part.partition, 0, part.offset, start, end, failure=failure_of(error))
