"""The broker in numbers: sizes, delays, priorities, settlements."""

import msgspec

from goqueue.base.caller import Caller
from goqueue.base.deeds import Deed
from goqueue.base.ids import Offset
from goqueue.base.limits import PRIORITIES
from goqueue.base.names import is_internal
from goqueue.base.units import US_PER_MS
from goqueue.runtime.broker import Broker
from goqueue.runtime.log.delayed_room import count_delayed
from goqueue.runtime.log.leadership import led
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.message_counts import count_in_topic
from goqueue.runtime.overview import look_over
from goqueue.runtime.queue.lane_counts import ledgers_of, pending_lanes, total_lanes
from goqueue.runtime.queue.progress import time_at
from goqueue.service.gate import Gate
from goqueue.service.health import uptime_of
from goqueue.service.verb import caller_verb, verb
from goqueue.wire import calls
from goqueue.wire.http.delayed import (
    DelayStats,
    PartitionPriorities,
    PriorityStats,
    TopicPriorities,
    WheelStats,
)
from goqueue.wire.http.health import Stats, TopicStats
from goqueue.wire.http.reliability import AckStats, DeadLetterStats, LeaseStats, ReliabilityStats
from goqueue.wire.overview_calls import Overview
from goqueue.wire.times import format_time_us


class Statistics:
    """What can be counted over all topics."""

    def __init__(self, broker: Broker, gate: Gate) -> None:
        self._broker = broker
        self._gate = gate

    @caller_verb(Deed.SUM_UP_TOPICS)
    async def overview(self, caller: Caller, _: calls.Nothing) -> Overview:
        """Return how topics and groups stand."""
        found = await look_over(self._broker)
        visible = self._gate.visible
        return msgspec.structs.replace(
            found,
            topics=visible(caller, Deed.DESCRIBE_TOPIC, found.topics, lambda one: one.name),
            groups=visible(caller, Deed.DESCRIBE_GROUP, found.groups, lambda one: one.name),
        )

    @caller_verb(Deed.SUM_UP_TOPICS)
    async def sizes(self, caller: Caller) -> Stats:
        """Return how much is stored."""
        topics = {
            str(name): TopicStats(
                name=name,
                partitions=len(topic.partitions),
                total_messages=count_in_topic(topic),
                total_size=sum(part.log.size_bytes for part in led(topic.partitions)),
            )
            for name, topic in self._gate.visible(
                caller,
                Deed.DESCRIBE_TOPIC,
                self._broker.topics.items(),
                lambda one: str(one[0]),
            )
        }
        return Stats(
            node_id=self._broker.config.node_id,
            uptime=uptime_of(self._broker),
            topics=len(topics),
            total_size_bytes=sum(topic.total_size for topic in topics.values()),
            topic_stats=topics,
        )

    @caller_verb(Deed.SUM_UP_TOPICS)
    async def delays(self, caller: Caller) -> DelayStats:
        """Return what was delayed since the broker started, and what waits now."""
        topics = self._topics(caller)
        partitions = [part for topic in topics for part in led(topic.partitions)]
        schedules = [part.queue.schedule for part in partitions]
        fired = sum(one.fired_total for one in schedules)
        cancelled = sum(one.cancelled_total for one in schedules)
        pending = sum(one.pending for one in schedules)
        scheduled = sum(one.recovered + one.scheduled_total for one in schedules)
        return DelayStats(
            total_scheduled=scheduled,
            total_delivered=fired,
            total_canceled=cancelled,
            total_pending=pending,
            by_topic={
                str(one.record.name): count_delayed(led(one.partitions))
                for one in topics
                if count_delayed(led(one.partitions))
            },
            timer_wheel=WheelStats(
                total_scheduled=scheduled,
                total_expired=fired,
                total_canceled=cancelled,
                current_active=pending,
                current_tick=max((one.wheel_tick for one in schedules), default=0),
            ),
        )

    @caller_verb(Deed.SUM_UP_TOPICS)
    async def priorities(self, caller: Caller) -> PriorityStats:
        """Return how many messages the logs hold by priority, most urgent first."""
        topics = {
            str(topic.record.name): await self._topic_of(topic) for topic in self._topics(caller)
        }
        totals = _sum([topic.total_by_priority for topic in topics.values()])
        return PriorityStats(total_by_priority=totals, topics=topics)

    @verb(Deed.SUM_UP_TOPICS)
    async def reliability(self) -> ReliabilityStats:
        """Return what became of leased messages since the broker started, over all groups."""
        consume = self._broker.consume
        total = consume.metrics.totals
        ledgers = [hosted.ledger for hosted in consume.ledgers]
        dead = self._broker.dead_letters.meter.stats
        return ReliabilityStats(
            ack_manager=AckStats(
                total_acks=total["ack"],
                total_nacks=total["nack"],
                total_rejects=total["reject"],
                total_expired=total["expired"],
                total_retries=total["retried"],
                total_dlq=total["doomed"],
                current_queued=sum(len(ledger.waiting.offsets) for ledger in ledgers),
            ),
            visibility_tracker=LeaseStats(
                total_tracked=total["tracked"],
                current_in_flight=sum(len(ledger.leases.offsets) for ledger in ledgers),
                total_expired=total["expired"],
                total_acked=total["ack"],
                total_extended=total["extend"],
            ),
            dlq=DeadLetterStats(**msgspec.structs.asdict(dead)),
        )

    def _topics(self, caller: Caller) -> list[Topic]:
        topics = [one for name, one in self._broker.topics.items() if not is_internal(name)]
        return self._gate.visible(
            caller, Deed.DESCRIBE_TOPIC, topics, lambda one: str(one.record.name)
        )

    async def _topic_of(self, topic: Topic) -> TopicPriorities:
        partitions = {
            str(part.name.partition): await self._partition_of(part)
            for part in led(topic.partitions)
        }
        totals = _sum([part.total for part in partitions.values()])
        return TopicPriorities(total_by_priority=totals, partitions=partitions)

    async def _partition_of(self, partition: Partition) -> PartitionPriorities:
        queue = partition.queue
        groups = ledgers_of(self._broker.consume.ledgers, partition)
        lanes = pending_lanes(partition, groups)
        return PartitionPriorities(
            pending=[lane.messages for lane in lanes],
            consumed=list(queue.consumed),
            total=total_lanes(partition),
            oldest_pending=[await _moment(partition, lane.oldest) for lane in lanes],
        )


async def _moment(partition: Partition, offset: Offset | None) -> str:
    moment_ms = None if offset is None else await time_at(partition, offset)
    return "" if moment_ms is None else format_time_us(moment_ms * US_PER_MS)


def _sum(rows: list[list[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * PRIORITIES
