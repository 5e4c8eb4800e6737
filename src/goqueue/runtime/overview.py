"""The whole broker at a glance, for people who watch it."""

from goqueue.base.limits import PRIORITIES
from goqueue.base.names import is_internal
from goqueue.core.delivery import events
from goqueue.core.delivery.ledger import OUTCOME_INDEX
from goqueue.core.dlq.names import dlq_of
from goqueue.runtime.broker import Broker
from goqueue.runtime.groups.hosted_group import HostedGroup
from goqueue.runtime.log.delayed_room import count_delayed
from goqueue.runtime.log.leadership import led
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.queue.hosted_ledger import HostedLedger
from goqueue.runtime.queue.lane_counts import pending_lanes
from goqueue.wire.overview_calls import GroupView, Overview, TopicView

_ACKED = OUTCOME_INDEX[events.ACKED]
_DEAD = OUTCOME_INDEX[events.DEAD]


async def look_over(broker: Broker) -> Overview:
    """Return how the topics and groups of a broker stand."""
    await broker.consume.look_at_ages()
    by_partition: dict[Partition, list[HostedLedger]] = {}
    for hosted in broker.consume.ledgers:
        if not is_internal(hosted.group):
            by_partition.setdefault(hosted.partition, []).append(hosted)
    topics = [topic for name, topic in sorted(broker.topics.items()) if not is_internal(name)]
    now_ms = broker.clock.monotonic_ms()
    return Overview(
        broker.config.node_id,
        now_ms,
        now_ms - broker.started_ms,
        [_topic(broker, topic, by_partition) for topic in topics],
        [_group(broker, group) for group in broker.groups if not is_internal(group.name)],
    )


def _topic(
    broker: Broker, topic: Topic, by_partition: dict[Partition, list[HostedLedger]]
) -> TopicView:
    own = led(topic.partitions)
    lanes = [pending_lanes(one, by_partition.get(one, [])) for one in own]
    counts = [sum(lane.messages for lane in column) for column in zip(*lanes, strict=True)]
    acked = sum(sum(one.queue.consumed) for one in own)
    dlq = broker.topics.get(dlq_of(topic.record.name))
    return TopicView(
        topic.record.name,
        len(topic.partitions),
        sum(one.log.size_bytes for one in own),
        topic.meter.published_total,
        acked + topic.meter.read_total,
        counts or [0] * PRIORITIES,
        count_delayed(own),
        0 if dlq is None else broker.redrives.shelves.depth(dlq),
    )


def _group(broker: Broker, group: HostedGroup) -> GroupView:
    ledgers = list(broker.consume.ledgers.of(group.name).values())
    now_ms = broker.clock.now_ms()
    return GroupView(
        group.name,
        group.state.value,
        len(group.members),
        sorted(broker.consume.topics_of(group)),
        sum(one.ledger.outcomes[_ACKED] for one in ledgers),
        sum(one.lag() for one in ledgers),
        max((one.age_ms(now_ms) for one in ledgers), default=0),
        sum(len(one.ledger.leases.offsets) for one in ledgers),
        sum(len(one.ledger.waiting.offsets) for one in ledgers),
        sum(one.ledger.outcomes[_DEAD] + len(one.ledger.dooms) for one in ledgers),
    )
