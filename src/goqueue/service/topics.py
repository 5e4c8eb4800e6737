"""Topics: made, shown, changed, compacted, removed; and where times lie in them."""

import asyncio

import msgspec

from goqueue.base.caller import Caller
from goqueue.base.deeds import Deed
from goqueue.base.names import is_internal
from goqueue.runtime.broker import Broker
from goqueue.runtime.log.isolation import Isolation
from goqueue.runtime.log.leadership import led
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.message_counts import count_in_topic, count_messages
from goqueue.service.gate import Gate
from goqueue.service.verb import caller_verb, verb
from goqueue.wire import calls


class Topics:
    """What can be asked about topics."""

    def __init__(self, broker: Broker, gate: Gate) -> None:
        self._broker = broker
        self._gate = gate

    @verb(Deed.CREATE_TOPIC)
    async def create(self, call: calls.CreateTopic) -> calls.TopicState:
        """Make a topic, durably."""
        topic = await self._broker.changes.make(
            call.name, partitions=call.partitions, settings=call.settings
        )
        return _state(topic)

    @verb(Deed.DELETE_TOPIC)
    async def delete(self, call: calls.TopicCall) -> calls.Nothing:
        """Remove a topic with all its messages, durably."""
        await self._broker.changes.remove(call.name)
        return calls.Nothing()

    @verb(Deed.CONFIGURE_TOPIC)
    async def configure(self, call: calls.ConfigureTopic) -> calls.TopicState:
        """Change settings of a topic, durably."""
        return _state(await self._broker.changes.change(call.name, call.settings))

    @verb(Deed.DESCRIBE_TOPIC)
    async def describe(self, call: calls.TopicCall) -> calls.TopicState:
        """Return a topic with its settings and partitions."""
        return _state(self._broker.topic(call.name))

    @caller_verb(Deed.LIST_TOPICS)
    async def list_all(self, caller: Caller, _: calls.Nothing) -> calls.TopicList:
        """Return every topic that is not internal, with what this node leads of it."""
        topics = [one for name, one in self._broker.topics.items() if not is_internal(name)]
        seen = self._gate.visible(
            caller, Deed.DESCRIBE_TOPIC, topics, lambda one: str(one.record.name)
        )
        return calls.TopicList(list(map(_summary, seen)))

    @verb(Deed.ADD_PARTITIONS)
    async def add_partitions(self, call: calls.AddPartitions) -> calls.PartitionsAdded:
        """Give a topic more partitions, durably; they are served when this returns."""
        before = len(self._broker.topic(call.name).partitions)
        topic = await self._broker.changes.add_partitions(
            call.name, call.count, assignments=call.assignments
        )
        return calls.PartitionsAdded(topic.record.name, before, len(topic.partitions))

    @verb(Deed.DESCRIBE_TOPIC)
    async def scaling(self, call: calls.TopicCall) -> calls.ScalingState:
        """Return whether partitions are being added to a topic."""
        topic = self._broker.topic(call.name)
        is_scaling = self._broker.changes.is_scaling(topic)
        return calls.ScalingState(topic.record.name, is_scaling)

    @verb(Deed.COMPACT_TOPIC)
    async def compact(self, call: calls.CompactTopic) -> calls.Compacted:
        """Keep only the last message of each key."""
        topic = self._broker.topic(call.name)
        results = await self._broker.compactor.compact(topic, call.partitions, dry_run=call.dry_run)
        return calls.Compacted(
            [calls.CompactedPart(**msgspec.structs.asdict(one)) for one in results]
        )

    @verb(Deed.FIND_OFFSETS)
    async def offsets(self, call: calls.Offsets) -> calls.OffsetsReply:
        """Return the range of each partition, and where a time lies in it.

        A node of a cluster answers for the partitions that it leads.
        """
        lens = Isolation(is_committed=call.is_committed)
        parts = []
        topic, asked = self._broker.topic(call.topic), call.partitions
        every = topic.partitions if asked is None else [topic.partition(one) for one in asked]
        for partition in (led(every) if asked is None else every) or every:
            partition.leadership.check_led()
            found = None
            if call.timestamp_us is not None:
                # Looking up a time reads the log: others get their turn in between.
                await asyncio.sleep(0)
                found = partition.find_time(call.timestamp_us)
            parts.append(
                calls.OffsetsPart(
                    partition.name.partition,
                    partition.log.start_offset,
                    lens.end_of(partition),
                    -1 if found is None else found,
                )
            )
        return calls.OffsetsReply(parts)


def _state(topic: Topic) -> calls.TopicState:
    return calls.TopicState(
        topic.record.name,
        topic.record.created_ms,
        msgspec.to_builtins(topic.settings),
        [
            calls.PartitionState(
                partition.name.partition,
                partition.log.start_offset,
                partition.visible_offset,
                partition.log.size_bytes,
                count_messages(partition),
            )
            for partition in topic.partitions
        ],
    )


def _summary(topic: Topic) -> calls.TopicSummary:
    return calls.TopicSummary(
        topic.record.name,
        len(topic.partitions),
        count_in_topic(topic),
        sum(one.log.size_bytes for one in led(topic.partitions)),
    )
