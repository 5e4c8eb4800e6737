"""The metadata of a cluster, as every node has it.

Shape: decider. The verbs in the modules beside this one only decide, ``apply`` only changes. The
controller decides, the quorum makes the events durable, and every node applies them in one order;
so all images of a version are equal. A decision may be cut between its entries (the controller
died): what the image promises holds there, too, and the same command decides the rest.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from goqueue.base.cluster_limits import (
    MOVES_MAX,
    NODES_REMOVED_MAX,
    REASSIGNMENTS_MAX,
    SNAPSHOT_PARTITIONS_MAX,
)
from goqueue.base.errors import (
    LeaderNotAvailableError,
    NodeNotFoundError,
    PartitionNotFoundError,
    ReassignmentNotFoundError,
    TopicNotFoundError,
)
from goqueue.base.ids import (
    DirectoryId,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    PartitionEpoch,
    TopicId,
    TopicName,
)
from goqueue.core.cluster import events
from goqueue.core.cluster.answers import Answers
from goqueue.core.cluster.columns import PartitionColumns, ReplicaSets, unpack
from goqueue.core.cluster.events import Event
from goqueue.core.cluster.growths import growths
from goqueue.core.cluster.records import (
    CountChange,
    NodeRecord,
    PartitionRecord,
    Reassignment,
    ReplicaMove,
    Replicas,
    ReplicationSettings,
    reassignment_number,
)
from goqueue.core.cluster.states import NodeStep, move_after, node_after, reassignment_after
from goqueue.core.security.directory import Directory
from goqueue.core.topics import catalog
from goqueue.core.topics.settings import TopicSettings

replace = msgspec.structs.replace


class ClusterTopic(msgspec.Struct, kw_only=True):
    """What a cluster knows of a topic beside the catalogue."""

    id: TopicId
    name: TopicName
    replication: ReplicationSettings
    partitions: list[PartitionRecord]
    history: list[CountChange]
    updated_ms: int
    is_scaling: bool = False


class ClusterImage:
    """Decides, with its verbs, about a cluster, and remembers it."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.feature_level = 0
        self.founded_ms = 0
        self.version = 0
        self.next_topic_id = TopicId(1)
        self.next_node_epoch = NodeEpoch(1)
        self.next_reassignment = 1
        self.unclean_elections = 0
        self.security = Directory()
        self._catalog = catalog.Catalog()
        self._nodes: dict[NodeId, NodeRecord] = {}
        self._removed: dict[DirectoryId, NodeId] = {}
        self._topics: dict[TopicId, ClusterTopic] = {}
        self._ids_by_name: dict[TopicName, TopicId] = {}
        self._sets: Counter[Replicas] = Counter()
        self._ids: dict[tuple[str, int], int] = {}
        self._answers = Answers()
        self._reassignments: dict[int, Reassignment] = {}
        self._moves: dict[int, dict[tuple[TopicId, int], ReplicaMove]] = {}
        self._moving: dict[tuple[TopicId, int], int] = {}

    def __repr__(self) -> str:
        return (
            f"<ClusterImage {self.cluster_id or 'not founded'} version {self.version}: "
            f"{len(self._nodes)} nodes, {len(self._topics)} topics,"
            f" {self.partition_count} partitions>"
        )

    @property
    def catalog(self) -> catalog.Catalog:
        """The topics and their settings, by the rules that one node has, too."""
        return self._catalog

    @property
    def nodes(self) -> Mapping[NodeId, NodeRecord]:
        """Every registered node."""
        return self._nodes

    @property
    def removed(self) -> Mapping[DirectoryId, NodeId]:
        """Directories of nodes that were removed for good, with the names they had."""
        return self._removed

    @property
    def topics(self) -> Mapping[TopicId, ClusterTopic]:
        """Every topic by its id."""
        return self._topics

    @property
    def partition_count(self) -> int:
        """How many partitions there are, over all topics."""
        return self._sets.total()

    @property
    def replica_sets(self) -> Mapping[Replicas, int]:
        """How many partitions have such replicas, for each distinct set of them."""
        return self._sets

    @property
    def answers(self) -> Mapping[str, events.ProposalAnswered]:
        """Answers given lately, by the ids of their requests."""
        return self._answers.by_request

    @property
    def reassignments(self) -> Mapping[int, Reassignment]:
        """Reassignments by number, the latest of those that are over among them."""
        return self._reassignments

    @property
    def moving(self) -> Mapping[tuple[TopicId, int], int]:
        """The number of the reassignment that a partition is in, while it is."""
        return self._moving

    @property
    def ids(self) -> Mapping[tuple[str, int], int]:
        """The ordinal of the next block, for each kind of ids and owner."""
        return self._ids

    def check_founded(self) -> None:
        """Raise until the cluster exists: a node that starts waits and asks again (trap C1)."""
        if not self.cluster_id:
            raise LeaderNotAvailableError("the cluster is not founded yet")

    def node(self, node: str) -> NodeRecord:
        """Return a node or raise."""
        found = self._nodes.get(NodeId(node))
        if found is None:
            raise NodeNotFoundError(f"the cluster has no node {ascii(node)[1:-1][:249]}")
        return found

    def topic(self, name: str) -> ClusterTopic:
        """Return a topic by name or raise."""
        return self._topics[self._ids_by_name[self._catalog.get(name).name]]

    def topic_of(self, topic_id: TopicId) -> ClusterTopic:
        """Return a topic by id or raise."""
        found = self._topics.get(topic_id)
        if found is None:
            raise TopicNotFoundError(f"there is no topic with the id {topic_id}")
        return found

    def partition(self, topic: ClusterTopic, number: int) -> PartitionRecord:
        """Return a partition or raise."""
        if not 0 <= number < len(topic.partitions):
            raise PartitionNotFoundError(f"topic {topic.name} has no partition {number}")
        return topic.partitions[number]

    def reassignment(self, name: str) -> Reassignment:
        """Return a reassignment by its id or raise."""
        number = reassignment_number(name)
        found = self._reassignments.get(number)
        if found is None:
            raise ReassignmentNotFoundError(f"reassign-{number} is not remembered")
        return found

    def moves_of(self, number: int) -> Sequence[ReplicaMove]:
        """Return the moves of a reassignment."""
        return list(self._moves[number].values())

    def move_of(self, topic_id: TopicId, partition: int) -> ReplicaMove | None:
        """Return the move that a partition is in, if it is not over."""
        number = self._moving.get((topic_id, partition))
        return None if number is None else self._moves[number][topic_id, partition]

    # Changing.

    def apply(self, event: Event) -> None:  # noqa: C901, PLR0912, PLR0915 - a case for each event
        """Change state by one event."""
        self.version += 1
        match event:
            case events.ClusterFounded():
                self.cluster_id, self.founded_ms = event.cluster_id, event.at_ms
                self.feature_level = event.feature_level
            case events.FeatureLevelRaised(feature_level=level):
                assert level > self.feature_level
                self.feature_level = level
            case events.NodeRegistered(node=node):
                self._register(node)
            case events.NodeUnfenced(node=name):
                self._step(name, NodeStep.UNFENCED)
            case events.NodeFenced(node=name):
                self._step(name, NodeStep.FENCED)
            case events.LeaveBegun(node=name):
                self._step(name, NodeStep.LEAVE_BEGUN)
            case events.NodeRetired(node=name, is_retiring=is_retiring):
                self._nodes[name] = replace(self._nodes[name], is_retiring=is_retiring)
            case events.NodeForgotten(node=name):
                self._forget(name)
            case events.TopicPlaced():
                self._place(event)
            case events.TopicSet():
                self._set(event)
            case events.TopicRemoved(topic_id=topic_id):
                self._remove(topic_id)
            case events.PartitionsPlaced():
                self._grow(event)
            case events.ScalingFinished():
                self._end_growth(event)
            case events.PartitionsChanged(changes=changes, unclean=unclean):
                self._change(changes)
                self.unclean_elections += len(unclean)
            case events.IdsAllocated(kind=kind, owner=owner, next_ordinal=ordinal):
                assert ordinal > self._ids.get((kind, owner), 0)
                self._ids[kind, owner] = ordinal
            case events.ReassignmentBegun() | events.ReassignmentKept():
                self._begin_moves(event.reassignment, event.moves)
            case events.MoveStepped():
                self._step_move(event)
            case events.ReassignmentTurned():
                self._turn(event)
            case events.ProposalAnswered():
                self._answers.remember(event)
            case events.SecurityChanged():
                self.security.apply(event.event)
            case events.TopicsRestored():
                self._restore_topics(event)
            case events.CountersRestored():
                self._restore_counters(event)

    def _register(self, node: NodeRecord) -> None:
        known = self._nodes.get(node.id)
        status = node.status if known is None else node_after(known.status, NodeStep.REGISTERED)
        self._nodes[node.id] = replace(node, status=status)
        assert node.epoch >= self.next_node_epoch, "an epoch is given once"
        self.next_node_epoch = NodeEpoch(node.epoch + 1)

    def _step(self, name: NodeId, step: NodeStep) -> None:
        node = self._nodes[name]
        self._nodes[name] = replace(node, status=node_after(node.status, step))

    def _forget(self, name: NodeId) -> None:
        self._removed[self._nodes.pop(name).directory] = name
        while len(self._removed) > NODES_REMOVED_MAX:
            del self._removed[next(iter(self._removed))]

    def _place(self, event: events.TopicPlaced) -> None:
        topic = event.topic
        self._catalog.apply(catalog.TopicCreated(topic=topic))
        self._keep(
            ClusterTopic(
                id=event.topic_id,
                name=topic.name,
                replication=event.replication,
                partitions=self._unpack(event.sets, event.columns),
                history=[CountChange(count=topic.partitions, at_ms=topic.created_ms)],
                updated_ms=topic.created_ms,
            )
        )
        assert event.topic_id >= self.next_topic_id, "an id is given once"
        self.next_topic_id = TopicId(event.topic_id + 1)

    def _keep(self, topic: ClusterTopic) -> None:
        self._topics[topic.id] = topic
        self._ids_by_name[topic.name] = topic.id
        sets = self._sets
        for record in topic.partitions:
            sets[record.replicas] += 1

    def _unpack(self, sets: list[list[NodeId]], columns: PartitionColumns) -> list[PartitionRecord]:
        """Return the records, their nodes' names shared with the nodes."""
        names = {name: name for name in self._nodes}
        return unpack([tuple(names.get(one, one) for one in row) for row in sets], columns)

    def _set(self, event: events.TopicSet) -> None:
        topic = self._topics[event.topic_id]
        self._catalog.apply(catalog.TopicConfigured(name=topic.name, settings=event.settings))
        topic.replication = event.replication
        topic.updated_ms = event.at_ms

    def _remove(self, topic_id: TopicId) -> None:
        topic = self._topics.pop(topic_id)
        del self._ids_by_name[topic.name]
        self._count_out(record.replicas for record in topic.partitions)
        self._catalog.apply(catalog.TopicDeleted(name=topic.name))
        # Which files are in use is found by topic ids here, not by names.
        self._catalog.apply(catalog.FilesRemoved(name=topic.name))

    def _grow(self, event: events.PartitionsPlaced) -> None:
        topic = self._topics[event.topic_id]
        assert event.change.count == len(topic.partitions) + event.columns.count
        fresh = self._unpack(event.sets, event.columns)
        self._sets.update(record.replicas for record in fresh)
        topic.partitions.extend(fresh)
        topic.history.append(event.change)
        topic.updated_ms = event.change.at_ms
        topic.is_scaling = True
        change = event.change
        self._catalog.apply(
            catalog.TopicScaled(
                name=topic.name, partitions=change.count, at_ms=change.at_ms, ends=change.ends
            )
        )

    def _end_growth(self, event: events.ScalingFinished) -> None:
        topic = self._topics[event.topic_id]
        topic.is_scaling = False
        if event.ends:
            topic.history[-1] = replace(topic.history[-1], ends=event.ends)
            self._catalog.apply(catalog.EndsNoted(name=topic.name, ends=event.ends))

    def _change(self, changes: list[events.PartChange]) -> None:
        topics = self._topics
        for topic_id, number, isr, leader, leader_epoch, partition_epoch, elr, last in changes:
            partitions = topics[TopicId(topic_id)].partitions
            old = partitions[number]
            assert partition_epoch > old.partition_epoch
            assert leader_epoch >= old.leader_epoch
            partitions[number] = PartitionRecord(
                old.replicas,
                isr,
                leader,
                LeaderEpoch(leader_epoch),
                PartitionEpoch(partition_epoch),
                elr,
                last,
                old.adding,
                old.removing,
            )

    def _begin_moves(self, reassignment: Reassignment, moves: list[ReplicaMove]) -> None:
        number = reassignment.number
        self._reassignments[number] = reassignment
        self._moves[number] = {(one.topic_id, one.partition): one for one in moves}
        self._moving.update({(one.topic_id, one.partition): number for one in moves if one.is_open})
        self.next_reassignment = max(self.next_reassignment, number + 1)
        self._forget_moves()

    def _step_move(self, event: events.MoveStepped) -> None:
        key = (event.topic_id, event.partition)
        move = self._moves[event.number][key]
        stepped = replace(move, state=move_after(move.state, event.state), error=event.error)
        stepped = replace(
            stepped,
            started_ms=move.started_ms or event.at_ms,
            ended_ms=0 if stepped.is_open else event.at_ms,
        )
        self._moves[event.number][key] = stepped
        if not stepped.is_open:
            del self._moving[key]
        if event.record is not None:
            partitions = self._topics[event.topic_id].partitions
            assert event.record.partition_epoch > partitions[event.partition].partition_epoch
            self._count_out([partitions[event.partition].replicas])
            self._sets[event.record.replicas] += 1
            partitions[event.partition] = event.record

    def _count_out(self, sets: Iterable[Replicas]) -> None:
        for replicas in sets:
            self._sets[replicas] -= 1
            if not self._sets[replicas]:
                del self._sets[replicas]

    def _turn(self, event: events.ReassignmentTurned) -> None:
        old = self._reassignments[event.number]
        turned = replace(old, state=reassignment_after(old.state, event.state), error=event.error)
        ended_ms = 0 if turned.is_open else event.at_ms
        self._reassignments[event.number] = replace(turned, ended_ms=ended_ms)
        self._forget_moves()

    def _forget_moves(self) -> None:
        """Make room: the oldest reassignments that are over go first."""
        over = [one.number for one in self._reassignments.values() if not one.is_open]
        kept = sum(len(self._moves[number]) for number in over)
        for number in sorted(over):
            if kept <= MOVES_MAX and len(self._reassignments) <= REASSIGNMENTS_MAX:
                return
            kept -= len(self._moves.pop(number))
            del self._reassignments[number]

    # Snapshots.

    def snapshot(self) -> Iterator[Event]:
        """Yield the events that rebuild this state."""
        yield events.ClusterFounded(
            cluster_id=self.cluster_id, feature_level=self.feature_level, at_ms=self.founded_ms
        )
        waiting: list[ClusterTopic] = []
        partitions = 0
        for topic in self._topics.values():
            if waiting and partitions + len(topic.partitions) > SNAPSHOT_PARTITIONS_MAX:
                yield self._topics_event(waiting)
                waiting, partitions = [], 0
            waiting.append(topic)
            partitions += len(topic.partitions)
        if waiting:
            yield self._topics_event(waiting)
        for number, reassignment in self._reassignments.items():
            moves = list(self._moves[number].values())
            yield events.ReassignmentKept(reassignment=reassignment, moves=moves)
        yield from (events.SecurityChanged(event=one) for one in self.security.snapshot())
        yield from self._answers.by_request.values()
        yield events.CountersRestored(
            version=self.version,
            next_topic_id=self.next_topic_id,
            next_node_epoch=self.next_node_epoch,
            next_reassignment=self.next_reassignment,
            unclean_elections=self.unclean_elections,
            nodes=list(self._nodes.values()),
            ids=[(kind, owner, ordinal) for (kind, owner), ordinal in self._ids.items()],
            removed=list(self._removed.items()),
        )

    def _topics_event(self, topics: Sequence[ClusterTopic]) -> events.TopicsRestored:
        sets = ReplicaSets()
        settings: dict[TopicSettings, int] = {}
        replication: dict[ReplicationSettings, int] = {}
        kept = []
        for topic in topics:
            known = self._catalog.topics[topic.name]
            kept.append(
                events.TopicKept(
                    topic_id=topic.id,
                    name=topic.name,
                    created_ms=known.created_ms,
                    updated_ms=topic.updated_ms,
                    partitions=known.partitions,
                    settings=settings.setdefault(known.settings, len(settings)),
                    replication=replication.setdefault(topic.replication, len(replication)),
                    is_scaling=topic.is_scaling,
                    history=list(topic.history) if len(topic.history) > 1 else [],
                )
            )
        columns = sets.pack([record for topic in topics for record in topic.partitions])
        return events.TopicsRestored(
            settings=list(settings),
            replication=list(replication),
            topics=kept,
            sets=sets.table,
            columns=columns,
        )

    def _restore_topics(self, event: events.TopicsRestored) -> None:
        records = iter(unpack([tuple(row) for row in event.sets], event.columns))
        for one in event.topics:
            record = catalog.Topic(
                name=one.name,
                partitions=one.partitions,
                settings=event.settings[one.settings],
                created_ms=one.created_ms,
                growths=growths(one.history),
            )
            first = CountChange(count=one.partitions, at_ms=one.created_ms)
            self._catalog.apply(catalog.TopicCreated(topic=record))
            self._keep(
                ClusterTopic(
                    id=one.topic_id,
                    name=one.name,
                    replication=event.replication[one.replication],
                    partitions=list(islice(records, one.partitions)),
                    history=list(one.history) or [first],
                    updated_ms=one.updated_ms,
                    is_scaling=one.is_scaling,
                )
            )

    def _restore_counters(self, event: events.CountersRestored) -> None:
        self.version = event.version
        self.next_topic_id = TopicId(event.next_topic_id)
        self.next_node_epoch = NodeEpoch(event.next_node_epoch)
        self.next_reassignment = event.next_reassignment
        self.unclean_elections = event.unclean_elections
        self._nodes = {one.id: one for one in event.nodes}
        self._removed = dict(event.removed)
        self._ids = {(kind, owner): ordinal for kind, owner, ordinal in event.ids}
