"""What waits and what is urgent, in numbers."""

from typing import Final

from starlette.responses import Response

from goqueue.base.limits import PRIORITIES
from goqueue.base.names import is_internal
from goqueue.runtime.broker import Broker
from goqueue.runtime.partition import Partition
from goqueue.runtime.topic import Topic
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import json_reply
from goqueue.wire.http.delayed import (
    DelayStats,
    PartitionPriorities,
    PriorityStats,
    TopicPriorities,
    WheelStats,
)

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
        """Return how many messages the logs hold by priority, most urgent first."""
        topics = {str(topic.record.name): _topic_of(topic) for topic in self._topics()}
        totals = _sum([topic.total_by_priority for topic in topics.values()])
        return json_reply(PriorityStats(total_by_priority=totals, topics=topics))

    def _topics(self) -> list[Topic]:
        return [topic for name, topic in self._broker.topics.items() if not is_internal(name)]


def _topic_of(topic: Topic) -> TopicPriorities:
    partitions = {str(part.name.partition): _partition_of(part) for part in topic.partitions}
    totals = _sum([part.total for part in partitions.values()])
    return TopicPriorities(total_by_priority=totals, partitions=partitions)


def _partition_of(partition: Partition) -> PartitionPriorities:
    queue = partition.queue
    total = queue.totals(partition.log.start_offset, partition.visible_offset)
    return PartitionPriorities(
        pending=[max(here - done, 0) for here, done in zip(total, queue.consumed, strict=True)],
        consumed=list(queue.consumed),
        total=total,
        oldest_pending=[""] * PRIORITIES,
    )


def _sum(rows: list[list[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * PRIORITIES
