"""How topics of a cluster are made, placed, configured, scaled and deleted.

Shape: decider. What a topic may be called and set to is decided by ``core/topics``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from goqueue.base.cluster_limits import CLUSTER_PARTITIONS_MAX
from goqueue.base.errors import InvalidRequestError, OperationActiveError, OverloadedError
from goqueue.base.ids import NodeId
from goqueue.core.cluster import commands, events
from goqueue.core.cluster.columns import ReplicaSets
from goqueue.core.cluster.elections import Changes, Electorate, Rules, stand
from goqueue.core.cluster.events import Event
from goqueue.core.cluster.image import ClusterImage, ClusterTopic
from goqueue.core.cluster.placement import (
    candidates,
    check_assignment,
    default_factor,
    new_partition,
    place,
)
from goqueue.core.cluster.reassignment import drop_moves, open_moves
from goqueue.core.cluster.records import CountChange, Replicas, ReplicationSettings
from goqueue.core.cluster.replication_settings import (
    REPLICATION_FACTOR,
    changed_replication,
    new_replication,
    split_settings,
)
from goqueue.core.cluster.replies import TopicReply
from goqueue.core.decision import Decision

Verdict = Decision[Event, TopicReply]


def loads_of(image: ClusterImage) -> dict[NodeId, int]:
    """Return how many replicas each node holds."""
    loads: Counter[NodeId] = Counter()
    for replicas, count in image.replica_sets.items():
        for node in replicas:
            loads[node] += count
    return loads


def create(image: ClusterImage, command: commands.CreateTopic, now_ms: int) -> Verdict:
    """Make a topic whose partitions have replicas and leaders from the first moment on."""
    plain, values = split_settings(command.settings)
    decision = image.catalog.create(
        command.name,
        partitions=command.partitions,
        settings=plain,
        now_ms=now_ms,
        by_broker=command.by_broker,
    )
    _check_room(image, command.partitions)
    factor = values.get(REPLICATION_FACTOR) or _factor(image, command.assignments)
    replication = new_replication(values, factor=factor)
    placed = _placed(
        image, range(command.partitions), factor=factor, assignments=command.assignments
    )
    sets = ReplicaSets()
    columns = sets.pack([new_partition(replicas, image.nodes) for replicas in placed])
    event = events.TopicPlaced(
        topic_id=image.next_topic_id,
        topic=decision.reply,
        replication=replication,
        sets=sets.table,
        columns=columns,
    )
    reply = TopicReply(
        topic_id=event.topic_id, partitions=command.partitions, added=command.partitions
    )
    return Decision((event,), reply)


def _factor(image: ClusterImage, assignments: Mapping[int, Sequence[str]]) -> int:
    """Return how many replicas a topic gets that does not say."""
    chosen = next(iter(assignments.values()), None)
    staying = sum(not one.is_retiring for one in image.nodes.values())
    return len(chosen) if chosen else default_factor(staying)


def _check_room(image: ClusterImage, partitions: int) -> None:
    if image.partition_count + partitions > CLUSTER_PARTITIONS_MAX:
        raise OverloadedError(
            f"the cluster has {image.partition_count} partitions;"
            f" the limit is {CLUSTER_PARTITIONS_MAX}"
        )


def _placed(
    image: ClusterImage,
    numbers: range,
    *,
    factor: int,
    assignments: Mapping[int, Sequence[str]],
) -> list[Replicas]:
    """Return the replicas of new partitions, chosen here or by an operator."""
    if not assignments:
        return place(
            candidates(image.nodes.values(), loads_of(image)),
            partitions=len(numbers),
            replication_factor=factor,
            first=image.next_topic_id + numbers.start,
        )
    if assignments.keys() != set(numbers):
        raise InvalidRequestError(
            "replica_assignments: name each new partition,"
            f" {numbers.start} to {numbers.stop - 1}, and no other"
        )
    placed = [check_assignment(assignments[number], image.nodes) for number in numbers]
    if {len(replicas) for replicas in placed} != {factor}:
        raise InvalidRequestError(f"replica_assignments: each partition has {factor} replicas")
    return placed


def configure(image: ClusterImage, command: commands.ConfigureTopic, now_ms: int) -> Verdict:
    """Change settings, and what follows from them for partitions at once."""
    plain, values = split_settings(command.settings)
    settings = image.catalog.configure(command.name, plain).reply.settings
    topic = image.topic(command.name)
    replication = changed_replication(topic.replication, values)
    least = min(
        (len(move.new) for move in open_moves(image) if move.topic_id == topic.id), default=None
    )
    if least is not None and replication.min_insync_replicas > least:
        raise OperationActiveError(f"partitions of {topic.name} are moving to {least} replicas")
    reply = TopicReply(topic_id=topic.id, partitions=len(topic.partitions))
    if settings == image.catalog.get(command.name).settings and replication == topic.replication:
        return Decision((), reply)
    cleared, elected = _follow_settings(image, topic, replication, is_fsync=settings.is_fsync)
    event = events.TopicSet(
        topic_id=topic.id, settings=settings, replication=replication, at_ms=now_ms
    )
    return Decision((*cleared.events(), event, *elected.events()), reply)


def _follow_settings(
    image: ClusterImage,
    topic: ClusterTopic,
    replication: ReplicationSettings,
    *,
    is_fsync: bool,
) -> tuple[Changes, Changes]:
    """Return what has to change before new settings hold, and what they allow.

    Before fewer replicas may commit, those that would lack what they commit lose their claim to
    lead. Leaders are elected where there were none once the settings allow it.
    """
    cleared, elected = Changes(), Changes()
    electorate = Electorate(image.nodes)
    rules = Rules(replication.min_insync_replicas, is_fsync, replication.unclean_leader_election)
    for number, record in enumerate(topic.partitions):
        standing = stand(record, record.isr, record.elr, electorate=electorate, rules=rules)
        if (standing.isr, standing.leader, standing.elr) != (record.isr, record.leader, record.elr):
            changes = cleared if record.isr else elected
            changes.add(topic.id, number, record, standing)
    return cleared, elected


def delete(image: ClusterImage, command: commands.DeleteTopic, now_ms: int) -> Verdict:
    """Remove a topic: its partitions, and the moves they were in."""
    image.catalog.delete(command.name)
    topic = image.topic(command.name)
    dropped = drop_moves(image, topic, now_ms)
    reply = TopicReply(topic_id=topic.id, partitions=len(topic.partitions))
    return Decision((*dropped, events.TopicRemoved(topic_id=topic.id)), reply)


def add_partitions(image: ClusterImage, command: commands.AddPartitions, now_ms: int) -> Verdict:
    """Give a topic more partitions, with replicas and leaders, in one event."""
    topic = image.topic(command.name)
    image.catalog.scale(command.name, partitions=command.count, now_ms=now_ms)
    if topic.is_scaling:
        raise OperationActiveError(f"partitions are being added to {topic.name} already")
    old = len(topic.partitions)
    _check_room(image, command.count - old)
    placed = _placed(
        image,
        range(old, command.count),
        factor=topic.replication.replication_factor,
        assignments=command.assignments,
    )
    sets = ReplicaSets()
    columns = sets.pack([new_partition(replicas, image.nodes) for replicas in placed])
    event = events.PartitionsPlaced(
        topic_id=topic.id,
        change=CountChange(count=command.count, at_ms=now_ms),
        sets=sets.table,
        columns=columns,
    )
    reply = TopicReply(topic_id=topic.id, partitions=command.count, added=command.count - old)
    return Decision((event,), reply)


def finish_scaling(image: ClusterImage, command: commands.FinishScaling, _now_ms: int) -> Verdict:
    """End the operation that added partitions: it is known where the old ones ended."""
    topic = image.topic(command.name)
    reply = TopicReply(topic_id=topic.id, partitions=len(topic.partitions))
    if not topic.is_scaling or topic.id != command.topic_id:
        return Decision((), reply)
    old = topic.history[-2].count
    if len(command.ends) != old:
        raise InvalidRequestError(f"ends: name the ends of all {old} partitions")
    return Decision((events.ScalingFinished(topic_id=topic.id, ends=tuple(command.ends)),), reply)
