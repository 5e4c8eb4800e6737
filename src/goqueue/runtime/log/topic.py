"""One topic at work: its partitions, its dedup window, and the road of a message into the log."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from goqueue.base.deeds import Deed
from goqueue.base.errors import (
    DiskFullError,
    GoQueueError,
    InvalidNameError,
    InvalidRequestError,
    PartitionNotFoundError,
    SchemaViolationError,
)
from goqueue.base.grant import Grant
from goqueue.base.ids import Offset, PartitionId
from goqueue.base.limits import DELAYED_MAX
from goqueue.base.names import is_internal
from goqueue.core.producers.dedup import DedupWindow, Remembered
from goqueue.core.producers.partitioner import RoundRobin, choose_partitions, partition_of_key
from goqueue.core.record.check import CheckedFrame, check_frames
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import ProducerStamp, Repeat
from goqueue.core.topics.catalog import Topic as TopicRecord
from goqueue.core.topics.settings import OS, TopicSettings
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.observability.metrics import Metrics
from goqueue.runtime.ballast import Ballast
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.acks import Acks, replicate_all, sync_all
from goqueue.runtime.log.append_guard import AppendGuard
from goqueue.runtime.log.delay_names import DelayNames, conflicts_of, judge_names, replace
from goqueue.runtime.log.delayed_room import check_delayed, count_delayed
from goqueue.runtime.log.draft_shares import publish_drafts
from goqueue.runtime.log.forwarded_topic import ForwardedTopic
from goqueue.runtime.log.left_out import LeftOut, new_rows, repeated_rows
from goqueue.runtime.log.own_rows import append_rowless
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.places import known_rows
from goqueue.runtime.log.producer_ids import ProducerIds
from goqueue.runtime.log.published import Published, Reach, trace_published
from goqueue.runtime.log.small_requests import SmallRequests
from goqueue.runtime.log.ticket import NO_TICKET, Appended, Ticket
from goqueue.runtime.log.topic_opening import TopicOpening

log = get_logger("goqueue.topic")


class Topic:
    """Publishes into partitions."""

    def __init__(
        self,
        record: TopicRecord,
        *,
        opening: TopicOpening,
        clock: Clock,
        producer_ids: ProducerIds,
        metrics: Metrics,
        ballast: Ballast | None = None,
        gate: AppendGuard | None = None,
    ) -> None:
        self.record, self.clock = record, clock
        self._producer_ids, self._is_clustered = producer_ids, opening.is_replicated
        self._metrics, self._ballast, self._gate = metrics, ballast, gate
        self.meter, self.small = metrics.meter(record.name), SmallRequests(self)
        self.partitions, self.states = opening.finish(), opening.states
        self.state_of, self.make_state = self.states.of, self.states.make
        self.delayed_max, self._is_disk_full = DELAYED_MAX, False
        # Guards the order of requests: first come, first appended.
        self.turn = asyncio.Lock()
        self.names: DelayNames[Topic] | None = None
        """Knows which messages wait under a name."""
        self.door: ForwardedTopic | None = None
        """The way for messages that came one by one, on a node of a cluster."""
        self._round_robin = RoundRobin(record.partitions)
        self._dedup = DedupWindow(record.settings.dedup_window_ms)
        self.remember(sorted(opening.remembered, key=lambda event: event.at_ms))

    def __repr__(self) -> str:
        return f"<Topic {self.record.name} of {len(self.partitions)} partitions>"

    @property
    def settings(self) -> TopicSettings:
        """How the topic is kept."""
        return self.record.settings

    def partition(self, number: int) -> Partition:
        """Return a partition or raise."""
        if not 0 <= number < len(self.partitions):
            raise PartitionNotFoundError(
                f"invalid partition {number} (topic has {len(self.partitions)} partitions)"
            )
        return self.partitions[number]

    def configure(self, record: TopicRecord) -> None:
        """Take new settings."""
        self.record = record
        self._dedup.resize(record.settings.dedup_window_ms)
        for partition in self.partitions:
            partition.configure(record.settings)

    def grow(self, opening: TopicOpening) -> None:
        """Take partitions that were added behind those there are."""
        self.partitions += opening.partitions[len(self.partitions) :]
        self._round_robin = RoundRobin(opening.record.partitions)
        self.remember(sorted(opening.remembered, key=lambda event: event.at_ms))
        self.configure(opening.record)

    def remember(self, events: Iterable[Remembered]) -> None:
        """Take dedup ids of messages that are in the log."""
        for event in events:
            self._dedup.apply(event)

    def forget_from(self, partition: PartitionId, offset: Offset) -> None:
        """Drop the dedup ids of messages that were cut off a partition."""
        self._dedup.forget_from(partition, offset)

    def forget_dedup_ids(self) -> None:
        """Drop ids that are past their window."""
        self._dedup.forget(self.clock.steady_ms())

    # Publishing.

    async def publish(
        self, grant: Grant, partition: int, frames: memoryview, *, wait: bool = True
    ) -> Published:
        """Check and append a producer's frames; return when the ack may go out."""
        (outcome,) = await self.publish_all(grant, [(partition, frames)], wait=wait)
        if isinstance(outcome, GoQueueError):
            raise outcome
        return outcome

    async def publish_all(
        self, grant: Grant, parts: Sequence[tuple[int, memoryview]], *, wait: bool = True
    ) -> list[Published | GoQueueError]:
        """Append the frames of one request; return what became of each part when acks may go."""
        acks = Acks.ALL if wait else Acks.NONE
        return await self.acknowledge(await self.append_all(grant, parts), acks=acks)

    async def append_all(
        self, grant: Grant, parts: Sequence[tuple[int, memoryview]], *, ticket: Ticket = NO_TICKET
    ) -> Appended:
        """Append the frames of one request; ``acknowledge`` waits for the disk.

        Requests take turns: one that waits for a new segment is not overtaken by the next.
        """
        assert grant.deed is Deed.PUBLISH, "a grant to publish"
        if is_internal(self.record.name):
            raise InvalidNameError("topics whose names begin with '__' are written by the broker")
        started, received_us = time.perf_counter(), self.clock.now_us()
        outcomes: list[Published | GoQueueError] = []
        try:
            async with self.turn:
                for part in parts:
                    outcomes.append(await self._accept(*part, ticket=ticket))  # noqa: PERF401
        except BaseException:
            # Cancelled in the middle: what is appended already is synced all the same.
            self.sync_soon(parts)
            raise
        finally:
            # Here: who cancels the request does not take back what is in the log.
            self.count(outcomes)
        return Appended(outcomes, started, received_us)

    def sync_soon(self, parts: Sequence[tuple[int, memoryview]]) -> None:
        """Have synced what was appended of a request whose caller is gone."""
        for partition, _ in parts:
            if 0 <= partition < len(self.partitions):
                self.partitions[partition].sync_soon()

    async def acknowledge(
        self, appended: Appended, *, acks: Acks = Acks.ALL
    ) -> list[Published | GoQueueError]:
        """Return what became of each part of a request when its acks may go out."""
        outcomes = appended.outcomes
        if self.settings.is_fsync:
            outcomes = await sync_all(self.partitions, outcomes, acks)
        elif acks is Acks.ALL and self._is_clustered:
            outcomes = await replicate_all(self.partitions, outcomes)
        durability = OS if acks is Acks.NONE else self.settings.ack_durability
        seconds = time.perf_counter() - appended.started
        self.note_all(outcomes, appended.received_us, durability, seconds)
        return outcomes

    def note_all(
        self,
        outcomes: Sequence[Published | GoQueueError],
        received_us: int,
        durability: str,
        seconds: float,
    ) -> None:
        """Trace what became of a request, and count what failed."""
        for outcome in outcomes:
            if isinstance(outcome, GoQueueError):
                self.note_failed(outcome)
            elif outcome.traced is not None:
                where = self.partitions[outcome.partition]
                trace_published(where.trace, outcome, received_us, durability)
        self.meter.publish_seconds.observe(seconds)

    def note_failed(self, error: GoQueueError) -> None:
        """Count a request that was refused."""
        self._metrics.publish_failed(self.record.name, error.code)

    def count(self, outcomes: Sequence[Published | GoQueueError]) -> None:
        """Count the messages that are in the log."""
        for one in outcomes:
            if isinstance(one, Published) and one.written:
                self.count_frames(one.written)

    def count_frames(self, frames: Sequence[CheckedFrame]) -> None:
        """Count the messages of frames that were appended."""
        meter, rows = self.meter, sum([frame.rows for frame in frames])
        meter.published.inc(rows)
        meter.published_bytes.inc(sum([len(frame.frame) for frame in frames]))
        lanes = [frame for frame in frames if frame.lanes is not None]
        if lanes:
            meter.count_lanes([frame.lanes for frame in lanes if frame.lanes is not None])
            rows -= sum([frame.rows for frame in lanes])
        if rows:
            meter.count_normal(rows)

    async def check_fit(self, frames: Sequence[CheckedFrame]) -> None:
        """Refuse frames of the broker's own if one message does not fit the schema."""
        if self._gate is None or not self.settings.is_validated:
            return
        for reason in (await self._gate.misfits(self.record.name, self.settings, frames)).values():
            raise SchemaViolationError(reason)

    async def _accept(
        self, partition: int, frames: memoryview, *, ticket: Ticket
    ) -> Published | GoQueueError:
        try:
            target = self.partition(partition)
            self.check_room()
            now_ms = self.clock.latest_ms()
            checked = check_frames(frames, now_ms=now_ms, transaction=ticket.number)
            misfits: Mapping[int, str] = {}
            if self._gate is not None and self.settings.is_validated:
                misfits = await self._gate.refuse(target.name, self.settings, checked)
            self.check_stamp(checked[0].stamp, ticket)
            target.check_writable()
            if conflicts_of(checked):
                published = await self._append_named(target, checked, misfits, ticket)
            else:
                await target.make_room(sum(len(frame.frame) for frame in checked))
                published = self.append_judged(target, checked, misfits, ticket)
        except GoQueueError as error:
            self.note_room(is_full=isinstance(error, DiskFullError))
            return error
        self.note_room(is_full=False)
        return published

    async def _append_named(
        self,
        target: Partition,
        frames: list[CheckedFrame],
        misfits: Mapping[int, str],
        ticket: Ticket,
    ) -> Published:
        """Append messages some of which do not want to wait beside others of their name."""
        if ticket.number:
            raise InvalidRequestError("on_conflict: not in a transaction, which may be undone")
        assert self.names is not None, "delays are wired in"
        known = sum(frame.rows for frame in frames[: len(target.ledger.judge_all(frames))])
        repeats = repeated_rows(frames, self._dedup, target, now_ms=self.clock.steady_ms())
        unwritten = {*range(known), *misfits, *repeats}
        verdict = await judge_names(self.names, self, target, frames, unwritten)

        async def append() -> Published:
            await target.make_room(sum(len(frame.frame) for frame in frames))
            reasons = {**misfits, **verdict.refused}
            published = self.append_judged(target, frames, reasons, ticket, verdict.superseded)
            return published.with_conflicts(verdict.refused)

        return await replace(self.names, verdict.held, target, append)

    def is_replicated(self, number: int) -> bool:
        """Return True if other nodes hold replicas of a partition."""
        found = self.partitions[number : number + 1]
        return bool(found) and found[0].leadership.replication is not None

    @property
    def has_turn_taken(self) -> bool:
        """Return True while a request of the general way is being appended."""
        return self.turn.locked()

    @property
    def is_checked_by_schema(self) -> bool:
        """Return True if messages must fit a schema."""
        return self._gate is not None and self.settings.is_validated

    def check_room(self) -> None:
        """Refuse what would take the room kept for consumers."""
        if self._ballast is not None:
            self._ballast.check()

    def note_room(self, *, is_full: bool) -> None:
        """Log that the disk is full, or has room again, once each."""
        if is_full and not self._is_disk_full:
            log.error(LogEvent.DISK_FULL_FOR_TOPIC, topic=self.record.name)
        elif self._is_disk_full and not is_full:
            log.info(LogEvent.DISK_HAS_SPACE, topic=self.record.name)
        self._is_disk_full = is_full

    def check_stamp(self, stamp: ProducerStamp, ticket: Ticket) -> None:
        """Refuse messages of a producer that is not who it says, or not free to send them."""
        if not stamp.is_idempotent:
            return
        self._producer_ids.check_life(producer_id=stamp.producer_id, epoch=stamp.epoch)
        if not ticket.number:
            self._producer_ids.check_free(stamp.producer_id)
        elif not stamp.is_life_of(ticket.stamp):
            raise InvalidRequestError(
                "a frame carries the stamp of another producer than its transaction"
            )

    def append_judged(
        self,
        target: Partition,
        frames: list[CheckedFrame],
        misfits: Mapping[int, str],
        ticket: Ticket,
        superseded: Mapping[int, int] = MappingProxyType({}),
    ) -> Published:
        """Judge and append; nothing awaits in between, so what is judged is what is written."""
        target.check_writable()
        number = target.name.partition
        originals = target.ledger.judge_all(frames)
        if len(originals) < len(frames):
            # A repeat changes nothing, so it may come when its transaction is over.
            ticket.check(target)
        known = known_rows(originals, frames, number) if originals else ()
        if len(originals) == len(frames):
            return Published(
                partition=number,
                base_offset=originals[0].base_offset,
                is_duplicate=True,
                repeats=originals[0].repeats if len(originals) == 1 else known,
            )
        later = {row - len(known): by - len(known) for row, by in superseded.items()}
        unfit = {row - len(known) for row in misfits if row >= len(known)}
        frames, fresh = new_rows(
            self.clock, target, frames[len(originals) :], LeftOut(unfit, later), self._dedup
        )
        check_delayed(self.record.name, self.partitions, frames, self.delayed_max)
        # Repeats alone are written only to remember the sequence of their producer.
        is_rowless = not any(frame.rows for frame in frames)
        is_written = not is_rowless or frames[0].stamp.is_idempotent
        append = append_rowless if is_rowless and self._is_clustered else Partition.append
        base = append(target, frames) if is_written else target.log.end_offset
        self.remember(fresh)
        left_out = (
            Repeat(repeat.row + len(known), repeat.partition, repeat.offset)
            for repeat in frames[0].repeats
        )
        return Published(
            partition=number,
            base_offset=base,
            repeats=(*known, *left_out),
            misfits=misfits,
            written=frames,
            traced=target.trace_of(frames, base) if is_written else None,
        )

    @property
    def delayed(self) -> int:
        """Return how many messages wait for their time."""
        return count_delayed(self.partitions)

    async def publish_drafts(
        self,
        grant: Grant,
        drafts: Sequence[tuple[Draft, int | None]],
        reach: Reach | None = None,
    ) -> list[tuple[PartitionId, Offset] | GoQueueError]:
        """Publish messages that came one by one; those for one partition are appended together."""
        return await publish_drafts(self.door or self, grant, drafts, reach)

    async def send(self, grant: Grant, partition: int, drafts: Sequence[Draft]) -> Published:
        """Append messages to one partition; return when the ack may go out."""
        return await self.publish(grant, partition, memoryview(frame_drafts(drafts)))

    def choose(self, draft: Draft, partition: int | None = None) -> PartitionId:
        """Return the partition of a message: the one that was asked for, its key's, or in turn."""
        if partition is not None:
            return self.partition(partition).name.partition
        if draft.key is not None:
            return partition_of_key(draft.key, len(self.partitions))
        return self._round_robin.take()

    def choose_all(self, keys: Sequence[bytes | None]) -> list[PartitionId]:
        """Return the partition of each message by its key, or in turn where it has none."""
        return choose_partitions(keys, len(self.partitions), self._round_robin)
