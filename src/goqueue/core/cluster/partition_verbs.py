"""How the replicas in sync and the leaders of partitions change on request.

Shape: decider. A leader asks for its set of replicas in sync with the epochs it knows: of itself,
of the partition and of each member. What is out of date changes nothing.
"""

import msgspec

from goqueue.base.errors import (
    GoQueueError,
    InvalidRequestError,
    LeaderNotAvailableError,
    NodeFencedError,
    NotLeaderError,
    StaleEpochError,
)
from goqueue.base.ids import LeaderEpoch, NodeId, PartitionEpoch, TopicId
from goqueue.core.cluster import commands, events
from goqueue.core.cluster.elections import (
    SHARE_PERCENT,
    Changes,
    Electorate,
    Standing,
    elect_missing,
    off_preferred,
    prefer,
    rules_of,
    stand,
    still_eligible,
)
from goqueue.core.cluster.events import Event
from goqueue.core.cluster.image import ClusterImage, ClusterTopic
from goqueue.core.cluster.reassignment import arrive, endings, has_arrived
from goqueue.core.cluster.records import NONE, NodeRecord, PartitionRecord, bits_of
from goqueue.core.cluster.replies import OK, Done, PartOutcome, PartsReply
from goqueue.core.cluster.states import MoveState
from goqueue.core.decision import Decision

Verdict = Decision[Event, PartsReply]


def alter(image: ClusterImage, command: commands.AlterPartitions, now_ms: int) -> Verdict:
    """Change sets of replicas in sync, each by itself: one that is refused stops no other."""
    node = image.node(command.node)
    if node.epoch != command.epoch:
        raise StaleEpochError(f"the node {node.id} has the epoch {node.epoch}")
    if node.is_fenced:
        raise NodeFencedError(f"the node {node.id} is fenced")
    keys = [(part.topic_id, part.partition) for part in command.parts]
    if len(set(keys)) != len(keys):
        raise InvalidRequestError("parts: each partition once")
    changes = Changes()
    arrived: list[events.MoveStepped] = []
    outcomes = []
    for part in command.parts:
        try:
            record = _alter(image, node, part, changes, arrived, now_ms)
        except GoQueueError as error:
            outcomes.append(_outcome(image, part, error.code))
        else:
            outcomes.append(_shown(part.topic_id, part.partition, record))
    made = (*changes.events(), *arrived, *endings(image, arrived, now_ms))
    return Decision(made, PartsReply(parts=outcomes))


def _alter(
    image: ClusterImage,
    node: NodeRecord,
    part: commands.PartIsr,
    changes: Changes,
    arrived: list[events.MoveStepped],
    now_ms: int,
) -> PartitionRecord:
    """Note the change of one partition, and return its record after it."""
    topic = image.topic_of(TopicId(part.topic_id))
    record = image.partition(topic, part.partition)
    _check_leader(node, part, record)
    if {one.node for one in part.isr} == set(record.isr_ids):
        return _confirm(topic, part, record, changes)
    if part.partition_epoch != record.partition_epoch:
        raise StaleEpochError(f"the partition has the epoch {record.partition_epoch}")
    isr = _wanted(image, part, record)
    if not isr >> record.leader & 1:
        return _resign(image, topic, part.partition, record, isr, changes)
    min_insync = topic.replication.min_insync_replicas
    elr = still_eligible(isr, record.elr | (record.isr & ~isr), min_insync)
    after = PartitionRecord(
        record.replicas,
        isr,
        record.leader,
        record.leader_epoch,
        PartitionEpoch(record.partition_epoch + 1),
        elr,
        NONE,
        record.adding,
        record.removing,
    )
    move = image.move_of(topic.id, part.partition)
    if move is not None and move.state is MoveState.CATCHING_UP and has_arrived(after, move):
        step = arrive(image, move, after, now_ms)
        arrived.append(step)
        assert step.record is not None, "it has shrunk"
        return step.record
    changes.add(topic.id, part.partition, record, Standing(isr, record.leader, elr))
    return after


def _confirm(
    topic: ClusterTopic, part: commands.PartIsr, record: PartitionRecord, changes: Changes
) -> PartitionRecord:
    """Keep the replicas in sync, in a new epoch unless it is a repeated request.

    A leader asks for that after a refusal: what it proposed before counts for it until the epoch
    has changed, because a copy of it might still be accepted.
    """
    if part.partition_epoch != record.partition_epoch:
        return record
    changes.add(topic.id, part.partition, record, Standing(record.isr, record.leader, record.elr))
    epoch = PartitionEpoch(record.partition_epoch + 1)
    return msgspec.structs.replace(record, partition_epoch=epoch)


def _resign(
    image: ClusterImage,
    topic: ClusterTopic,
    number: int,
    record: PartitionRecord,
    isr: int,
    changes: Changes,
) -> PartitionRecord:
    """Let another replica in sync lead, because the leader's disk failed and it leaves the set."""
    electorate = Electorate(image.nodes, without=record.leader_id)
    alive, _ = electorate.of(record.replicas)
    if not isr & alive:
        raise LeaderNotAvailableError("no other replica in sync can lead the partition")
    standing = stand(record, isr, record.elr, electorate=electorate, rules=rules_of(image, topic))
    changes.add(topic.id, number, record, standing)
    return PartitionRecord(
        record.replicas,
        standing.isr,
        standing.leader,
        LeaderEpoch(record.leader_epoch + 1),
        PartitionEpoch(record.partition_epoch + 1),
        standing.elr,
        NONE,
        record.adding,
        record.removing,
    )


def _check_leader(node: NodeRecord, part: commands.PartIsr, record: PartitionRecord) -> None:
    """Only the present leader may ask, in its present epoch."""
    if record.leader_id != node.id:
        raise NotLeaderError(f"{node.id} does not lead the partition")
    if part.leader_epoch != record.leader_epoch:
        raise StaleEpochError(f"the leader has the epoch {record.leader_epoch}")


def _wanted(image: ClusterImage, part: commands.PartIsr, record: PartitionRecord) -> int:
    """Return the set that is asked for; new members must be alive, in the life that was seen.

    A node that is leaving may stay a member, and does not become one. A leader that leaves itself
    out gives the partition up.
    """
    isr = bits_of(record.replicas, (NodeId(one.node) for one in part.isr))
    if isr.bit_count() != len(part.isr):
        raise InvalidRequestError("isr: replicas of the partition, each once")
    if not isr:
        raise InvalidRequestError("isr: one replica at least")
    for member in part.isr:
        node = image.nodes[NodeId(member.node)]
        if node.epoch != member.epoch:
            raise StaleEpochError(f"{node.id} has started again since")
        if not node.may_lead and node.id not in record.isr_ids:
            raise NodeFencedError(f"{node.id} is {node.status}")
    return isr


def _outcome(image: ClusterImage, part: commands.PartIsr, code: str) -> PartOutcome:
    topic = image.topics.get(TopicId(part.topic_id))
    if topic is None or not 0 <= part.partition < len(topic.partitions):
        return PartOutcome(topic_id=TopicId(part.topic_id), partition=part.partition, outcome=code)
    return _shown(part.topic_id, part.partition, topic.partitions[part.partition], code)


def _shown(
    topic_id: int, partition: int, record: PartitionRecord, outcome: str = OK
) -> PartOutcome:
    return PartOutcome(
        topic_id=TopicId(topic_id),
        partition=partition,
        outcome=outcome,
        leader=record.leader_id,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        isr=record.isr_ids,
    )


def elect(image: ClusterImage, command: commands.ElectLeaders, _now_ms: int) -> Verdict:
    """Elect leaders of some partitions, as an operator asks."""
    electorate = Electorate(image.nodes)
    changes = Changes()
    outcomes: dict[tuple[TopicId, int], PartOutcome] = {}
    for part in command.parts:
        topic = image.topic(part.topic)
        record = image.partition(topic, part.partition)
        key = (topic.id, part.partition)
        if key in outcomes:
            continue
        if command.allow_unclean and not topic.replication.unclean_leader_election:
            raise InvalidRequestError(
                f"allow_unclean: {topic.name} does not; set unclean_leader_election first"
            )
        standing = _elected(image, topic, record, electorate, is_preferred=command.kind != "any")
        if standing is None:
            outcomes[key] = _shown(*key, record, LeaderNotAvailableError.code)
            continue
        if standing.leader != record.leader:
            changes.add(topic.id, part.partition, record, standing)
        outcomes[key] = PartOutcome(
            topic_id=topic.id,
            partition=part.partition,
            outcome=OK,
            leader=record.replicas[standing.leader],
            leader_epoch=LeaderEpoch(record.leader_epoch + (standing.leader != record.leader)),
            partition_epoch=PartitionEpoch(
                record.partition_epoch + (standing.leader != record.leader)
            ),
        )
    return Decision(tuple(changes.events()), PartsReply(parts=list(outcomes.values())))


def _elected(
    image: ClusterImage,
    topic: ClusterTopic,
    record: PartitionRecord,
    electorate: Electorate,
    *,
    is_preferred: bool,
) -> Standing | None:
    """Return how a partition stands after an election, or None if none can lead."""
    if is_preferred:
        alive, _ = electorate.of(record.replicas)
        return prefer(record) if record.isr & alive & 1 else None
    standing = stand(
        record, record.isr, record.elr, electorate=electorate, rules=rules_of(image, topic)
    )
    return None if standing.leader == NONE else standing


def balance(
    image: ClusterImage, command: commands.BalanceLeaders, _now_ms: int
) -> Decision[Event, Done]:
    """Elect the preferred leaders if too many of them do not lead."""
    off = list(off_preferred(image))
    changes = Changes()
    if len(off) * SHARE_PERCENT > command.off_percent_max * image.partition_count:
        for topic, number, record in off:
            changes.add(topic.id, number, record, prefer(record))
    return Decision(tuple(changes.events()), Done(changed=len(changes.rows)))


def mend(
    image: ClusterImage, _command: commands.MendLeaders, _now_ms: int
) -> Decision[Event, Done]:
    """Elect where a node may lead and none does."""
    changes = elect_missing(image)
    return Decision(tuple(changes.events()), Done(changed=len(changes.rows)))
