"""What waits and what is urgent, in numbers."""

from typing import Final

from goqueue.base.ids import Offset
from goqueue.base.limits import PRIORITIES
from goqueue.base.names import is_internal
from goqueue.base.units import US_PER_MS
from goqueue.runtime.broker import Broker
from goqueue.runtime.lane_counts import ledgers_of, pending_lanes
from goqueue.runtime.partition import Partition
from goqueue.runtime.progress import time_at
from goqueue.runtime.topic import Topic
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import Response, json_reply
from goqueue.wire.http.delayed import (
    DelayStats,
    PartitionPriorities,
    PriorityStats,
    TopicPriorities,
    WheelStats,
)
from goqueue.wire.times import format_time_us

TAG: Final = "stats"


class QueueStatsRoutes:
    """Counts delays and priorities."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be asked."""
        return (
            Operation(
                method="GET", path="/delay/stats", answer=self.delay_stats, tag=TAG,
                reply=DelayStats,
            ),
            Operation(
                method="GET", path="/priority/stats", answer=self.priority_stats, tag=TAG,
                reply=PriorityStats,
            ),
        )  # fmt: skip

    async def delay_stats(self, _call: Call) -> Response:
        """Return what was delayed since the broker started, and what waits now."""
        schedules = [part.queue.schedule for topic in self._topics() for part in topic.partitions]
        fired = sum(one.fired_total for one in schedules)
        cancelled = sum(one.cancelled_total for one in schedules)
        pending = sum(one.pending for one in schedules)
        scheduled = sum(one.recovered + one.scheduled_total for one in schedules)
        stats = DelayStats(
            total_scheduled=scheduled,
            total_delivered=fired,
            total_canceled=cancelled,
            total_pending=pending,
            by_topic={one.record.name: one.delayed for one in self._topics() if one.delayed},
            timer_wheel=WheelStats(
                total_scheduled=scheduled,
                total_expired=fired,
                total_canceled=cancelled,
                current_active=pending,
                current_tick=max((one.wheel_tick for one in schedules), default=0),
            ),
        )
        return json_reply(stats)

    async def priority_stats(self, _call: Call) -> Response:
        """Return how many messages the logs hold by priority, most urgent first.

        ``pending`` are those some group has not settled, all of them where no group reads the
        partition; ``consumed`` those that were acked since the broker started, by any group.
        """
        topics = {str(topic.record.name): await self._topic_of(topic) for topic in self._topics()}
        totals = _sum([topic.total_by_priority for topic in topics.values()])
        return json_reply(PriorityStats(total_by_priority=totals, topics=topics))

    def _topics(self) -> list[Topic]:
        return [topic for name, topic in self._broker.topics.items() if not is_internal(name)]

    async def _topic_of(self, topic: Topic) -> TopicPriorities:
        partitions = {
            str(part.name.partition): await self._partition_of(part) for part in topic.partitions
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
            total=queue.totals(partition.log.start_offset, partition.visible_offset),
            oldest_pending=[await _moment(partition, lane.oldest) for lane in lanes],
        )


async def _moment(partition: Partition, offset: Offset | None) -> str:
    moment_ms = None if offset is None else await time_at(partition, offset)
    return "" if moment_ms is None else format_time_us(moment_ms * US_PER_MS)


def _sum(rows: list[list[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * PRIORITIES
