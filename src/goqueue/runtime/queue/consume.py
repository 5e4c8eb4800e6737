"""Consuming: what members of groups do with the messages they leased."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from goqueue.base.deeds import Deed
from goqueue.base.errors import (
    GoQueueError,
    GroupNotFoundError,
    InvalidRequestError,
    NotCoordinatorError,
    NotLeaderError,
    PartitionNotAssignedError,
    PartitionNotFoundError,
    TopicNotFoundError,
    UnknownReceiptError,
)
from goqueue.base.grant import Grant
from goqueue.base.ids import Offset, PartitionId, TopicName, TopicPartition
from goqueue.core.decision import Decision
from goqueue.core.delivery import events, settle
from goqueue.core.delivery.events import Event
from goqueue.core.delivery.settle import Refused, Settled
from goqueue.core.offset_sets import each
from goqueue.observability.consumer_metrics import ConsumerMetrics, Settlements
from goqueue.observability.metrics import Metrics
from goqueue.runtime.clock import Clock
from goqueue.runtime.groups.at_work import GroupAtWork, GroupSource
from goqueue.runtime.groups.group_news import GroupNews
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import AtPlace, Placed, StateJournal
from goqueue.runtime.queue.gauges import consumer_metrics
from goqueue.runtime.queue.hosted_ledger import HostedLedger
from goqueue.runtime.queue.in_flight_shares import InFlightShares
from goqueue.runtime.queue.leasing import Leased
from goqueue.runtime.queue.ledgers import Ledgers
from goqueue.runtime.queue.polling import Polling, PollLimits, pending
from goqueue.runtime.queue.progress import Progress, look_at_oldest, progress_of
from goqueue.runtime.queue.settlements import ACK, Next, Settlement, Settling, acked, decide
from goqueue.runtime.topology import Topology


class Consumption:
    """The queue side of a broker. Runs in its event loop."""

    def __init__(
        self,
        state: StateJournal,
        topics: Mapping[TopicName, Topic],
        groups: GroupSource,
        *,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._state = state
        self._topics = topics
        self.groups = groups
        """Where groups are found, also those that other nodes host."""
        self._clock = clock
        self.metrics = ConsumerMetrics(metrics)
        self.ledgers = Ledgers(state, topics, groups, clock=clock, metrics=self.metrics)
        self._polling = Polling(
            state, topics, groups, self.ledgers, clock=clock, metrics=self.metrics
        )
        self.poll, self.poll_ready = self._polling.poll, self._polling.poll_ready
        self.begin_poll, self.finish_poll = self._polling.begin, self._polling.finish
        self.before_reset: Callable[[str], Awaitable[None]] = _nothing
        """What must be over before a group is put elsewhere."""
        groups.watch(self._hear)
        metrics.collect_from(lambda: consumer_metrics(self.ledgers, clock))

    def __repr__(self) -> str:
        return f"<Consumption of {self.ledgers!r}>"

    def _hear(self, news: GroupNews) -> None:
        for member in news.gone:
            self._polling.forget_member(news.group, member)
        if news.is_deleted:
            self._polling.forget_group(news.group)

    def share_in_flight(self, topology: Topology | None) -> None:
        """Let members hold a share of what they may at each leader, in a cluster."""
        if topology is not None:
            self._polling.leasing.shares = InFlightShares(topology)

    def note_places(self) -> None:
        """Take note that other partitions are led here than before."""
        self._polling.note_places()

    def forget_topic(self, topic: Topic) -> None:
        """Let go of everything that belongs to a topic that is gone."""
        self.ledgers.forget_topic(topic.record.name)
        self._polling.forget_topic(topic)

    def give_back(self, group: str, parts: Sequence[Leased]) -> None:
        """Take back what was leased for somebody who will never hear of it."""
        self._polling.give_back(group, parts)

    # Settling.

    async def settle(
        self,
        grant: Grant,
        group: str,
        member: str | None,
        parts: Sequence[Settlement],
        *,
        is_alone: bool = False,
    ) -> list[Settled]:
        """Settle what a member holds; answer, part by part, when it is durable.

        Who is alone waits for the answer before asking for anything else.
        """
        assert grant.deed is Deed.SETTLE, "a grant to settle"
        started = time.perf_counter()
        self._hear_of(grant, group, member)
        outcomes, awaits_disk = self._settle(group, parts)
        if awaits_disk:
            await self._state.settle_at(group, parts, is_alone=is_alone)
        self._count(group, parts, outcomes, started)
        return outcomes

    def begin_settle(
        self, grant: Grant, group: str, member: str | None, parts: Sequence[Settlement]
    ) -> Settling:
        """Settle what a member holds; nobody may be told before it is durable."""
        assert grant.deed is Deed.SETTLE, "a grant to settle"
        started = time.perf_counter()
        self._hear_of(grant, group, member)
        outcomes, awaits_disk = self._settle(group, parts)
        durable = self._state.durable_at(group, parts) if awaits_disk else None
        return Settling(outcomes, durable, partial(self._count, group, parts, outcomes, started))

    async def begin_next(
        self,
        grant: Grant,
        group: str,
        member: str,
        parts: Sequence[Settlement],
        demand: PollLimits,
        generation: int | None = None,
        *,
        seen: int = 0,
    ) -> Next:
        """Settle what a member holds and lease what is ready then; one sync for both.

        It waits for messages only where nothing is settled: an ack is answered at once. Should the
        poll fail, settlements are answered all the same, and the next poll meets the same error.
        """
        assert grant.deed is Deed.NEXT, "a grant to settle and poll"
        if not self.groups.is_near:
            await self.groups.prepare(group, member, generation or seen)
        started = time.perf_counter()
        hosted = self._polling.enter(grant, group, member, generation)
        poll = pending(hosted, member, generation, demand)
        ack = self._only_ack(group, parts)
        if ack is not None and self._polling.lease_at_once(poll, [(ack[0], ack[1].events)]):
            outcomes, awaits_disk = [ack[1].reply], ack[0].awaits_disk
            self._polling.await_disk(poll)
        else:
            outcomes, awaits_disk = self._settle(group, parts)
            try:
                await self._polling.lease(poll, wait_ms=0 if parts else demand.wait_ms)
            except GoQueueError:
                if not parts:
                    raise
                poll = pending(hosted, member, None, demand)
        durable: asyncio.Future[None] | None = None
        try:
            if awaits_disk and poll.ready is None:
                durable = self._state.durable_at(group, parts)
            elif awaits_disk and self._state.is_beside:
                poll.ready = self._state.durable_at(group, [*poll.parts, *parts])
        except GoQueueError:
            self._polling.give_back(group, poll.parts)
            raise
        tell = partial(self._count, group, parts, outcomes, started)
        return Next(Settling(outcomes, durable, tell), poll)

    def _only_ack(
        self, group: str, parts: Sequence[Settlement]
    ) -> tuple[HostedLedger, Decision[Event, Settled]] | None:
        """Return the decision about a single ack; None where there is more to decide."""
        if len(parts) != 1 or parts[0].verb != ACK:
            return None
        hosted = self.ledgers.of(group).get(parts[0].partition)
        if hosted is None or hosted.ledger.keys is not None or not hosted.has_room():
            return None
        decision = acked(hosted.ledger, parts[0], now_ms=self._clock.monotonic_ms())
        return (hosted, decision) if decision.events else None

    def _hear_of(self, grant: Grant, group: str, member: str | None) -> None:
        """Take note that a member settles, if it is one."""
        if member is None or not (self.groups.is_near or self.groups.is_loaded(group)):
            # The ledger decides; without its coordinator a group goes on settling what it has.
            return
        hosted_group = self.groups.get(group)
        if member in hosted_group.members:
            hosted_group.touch(member, grant.caller.connection)

    def _settle(self, group: str, parts: Sequence[Settlement]) -> tuple[list[Settled], bool]:
        """Decide and write; return True if the answer waits for the disk."""
        policy = self.ledgers.policy(group)
        self.ledgers.check(group, parts)
        ledgers = self.ledgers.of(group)
        outcomes: list[Settled] = []
        awaits_disk = False
        for part in parts:
            hosted = ledgers.get(part.partition)
            if hosted is None:
                outcomes.append(Settled(self.refuse(part)))
                continue
            decision = decide(hosted.ledger, part, policy, hosted.moment())
            hosted.commit(decision.events)
            # A refusal, too, is a word about what may not be on the disk yet: an ack that is
            # repeated is refused because of the first one, which a failed sync may take back.
            says_something = bool(decision.events or decision.reply.refused)
            awaits_disk = awaits_disk or (says_something and hosted.awaits_disk)
            outcomes.append(decision.reply)
        return outcomes, awaits_disk

    def _count(
        self, group: str, parts: Sequence[Settlement], outcomes: Sequence[Settled], started: float
    ) -> None:
        seconds = time.perf_counter() - started
        # Counted when the answer has left, and before anybody else is listened to.
        call_soon = asyncio.get_running_loop().call_soon
        for part, outcome in zip(parts, outcomes, strict=True):
            count = len(part.offsets) - len(outcome.refused)
            settled = Settlements(group, part.partition.topic, part.verb, count)
            call_soon(self._count_one, part.partition, settled, seconds)

    def _count_one(self, name: TopicPartition, settled: Settlements, seconds: float) -> None:
        """Count messages of a partition; one the group does not read gets no series.

        It was named by a client, or deleted or unloaded meanwhile.
        """
        with contextlib.suppress(NotCoordinatorError, NotLeaderError):
            if name in self.ledgers.of(settled.group):
                self.metrics.settled(settled, seconds)

    @staticmethod
    def refuse(part: Settlement) -> list[Refused]:
        """Return why messages of a partition the group never read cannot be settled."""
        unknown = UnknownReceiptError("nothing of this partition was leased by the group")
        return [Refused(Offset(offset), unknown) for offset in each(part.offsets)]

    def durable(self, group: str, parts: Iterable[Placed]) -> asyncio.Future[None]:
        """Return a future that is done when all that a group did in partitions is durable."""
        return self._state.durable_at(group, parts)

    def check_offsets(self, group: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Raise unless a group could commit these offsets."""
        self.groups.get(group)
        for name, offset in offsets.items():
            self._check_offset(name, offset)

    def settle_offsets(self, group: str, offsets: Sequence[tuple[str, int, int]]) -> set[str]:
        """Commit offsets for a transaction; those that are behind already change nothing."""
        for topic, partition, offset in offsets:
            name = TopicPartition(TopicName(topic), PartitionId(partition))
            try:
                hosted = self.ledgers.open(group, self.groups.get(group).options, name)
            except (GroupNotFoundError, TopicNotFoundError, PartitionNotFoundError):
                # The group or the topic is gone since, and its offsets with it.
                continue
            if offset > hosted.ledger.committed:
                hosted.commit(settle.commit(hosted.ledger, Offset(offset)).events)
        return {group} if offsets else set()

    async def commit_offsets(
        self,
        group: str,
        member: str,
        generation: int | None,
        offsets: Mapping[TopicPartition, Offset],
        *,
        connection: int = 0,
    ) -> None:
        """Settle everything before the offsets, for the owner of their partitions."""
        started = time.perf_counter()
        if not self.groups.is_near:
            await self.groups.prepare(group, member, generation or 0)
        hosted_group = self.groups.get(group)
        places = list(map(AtPlace, offsets))
        try:
            hosted_group.check_member(member, generation)
            hosted_group.touch(member, connection)
            self.ledgers.check(group, places)
            for name, offset in offsets.items():
                if not hosted_group.owns(member, name):
                    raise PartitionNotAssignedError("partition not assigned to this member")
                self._check_offset(name, offset)
        except GoQueueError as error:
            # Only topics the group reads: a stranger's words make no new series.
            topics = {name.topic for name in offsets} & set(hosted_group.topics)
            self.metrics.commit_failed(group, topics, error.code)
            raise
        for name, offset in offsets.items():
            hosted = self.ledgers.open(group, hosted_group.options, name)
            hosted.commit(settle.commit(hosted.ledger, offset).events)
        if offsets:
            await self._state.durable_at(group, places)
            seconds = time.perf_counter() - started
            self.metrics.committed(
                group, [name for name in offsets if name in self.ledgers.of(group)], seconds=seconds
            )

    async def reset_offsets(self, group: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Let a group begin anew at other offsets; what is leased is taken back unsettled."""
        await self.before_reset(group)
        await self.groups.prepare(group)
        hosted_group = self.groups.get(group)
        places = list(map(AtPlace, offsets))
        self.ledgers.check(group, places)
        for name, offset in offsets.items():
            self._check_offset(name, offset)
        for name, offset in offsets.items():
            hosted = self.ledgers.open(group, hosted_group.options, name)
            hosted.commit([events.Reset(offset=offset)])
            hosted.wake()
        if offsets:
            await self._state.durable_at(group, places)

    def resolve(
        self,
        topic: str,
        *,
        to: str,
        timestamp_us: int | None = None,
        offset: int | None = None,
        partitions: Sequence[int] | None = None,
    ) -> dict[TopicPartition, Offset]:
        """Return where partitions are to begin anew: at an end, a time or an offset."""
        known = self._topics.get(TopicName(topic))
        if known is None:
            raise TopicNotFoundError(f"topic not found: {ascii(topic)[1:-1][:249]}")
        if to not in ("earliest", "latest") and timestamp_us is None and offset is None:
            raise InvalidRequestError(
                'to: must be "earliest" or "latest", or give a time or offset'
            )
        chosen = known.partitions if partitions is None else map(known.partition, partitions)
        found: dict[TopicPartition, Offset] = {}
        for partition in chosen:
            if self._state.is_beside:
                self._state.check_place(partition.name)
            start, end = partition.log.start_offset, partition.visible_offset
            place = start if to == "earliest" else end
            if timestamp_us is not None:
                at_time = partition.find_time(timestamp_us)
                place = end if at_time is None else at_time
            if offset is not None:
                place = Offset(min(max(offset, start), end))
            found[partition.name] = place
        return found

    def topics_of(self, hosted: GroupAtWork) -> list[TopicName]:
        """Return the topics the members of a group read, then those it only has offsets of."""
        read = sorted({name.topic for name in self.ledgers.of(hosted.name)})
        return list(dict.fromkeys([*hosted.topics, *read]))

    async def progress(self, group: str) -> list[Progress]:
        """Return how far a group is in every partition it reads."""
        await self.groups.prepare(group)
        self.groups.get(group)
        return [
            await progress_of(hosted, self._clock)
            for hosted in list(self.ledgers.of(group).values())
        ]

    async def look_at_ages(self) -> None:
        """Find out how old the oldest message of every ledger is, for those who read gauges."""
        for hosted in self.ledgers:
            with contextlib.suppress(GoQueueError):
                await look_at_oldest(hosted)

    def _check_offset(self, name: TopicPartition, offset: Offset) -> None:
        topic = self._topics.get(name.topic)
        if topic is None:
            raise TopicNotFoundError(f"topic not found: {name.topic}")
        partition = topic.partition(name.partition)
        if not 0 <= offset <= partition.visible_offset:
            raise InvalidRequestError(
                f"{name}: offset {offset} is not between 0 and {partition.visible_offset}"
            )


async def _nothing(_: str) -> None:
    """Wait for nothing."""
