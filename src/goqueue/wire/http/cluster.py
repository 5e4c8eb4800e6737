"""A cluster as JSON: ``state.json``, ``metadata.json``, and what the cluster port answers.

Shape: codec. Everything is made from the image that every node has; only who is heard of, and who
the controller is, is said by the node that answers. Nothing here is ever read back.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from goqueue.base.ids import NodeId
from goqueue.base.units import NS_PER_US, US_PER_MS
from goqueue.core.cluster.image import ClusterImage, ClusterTopic
from goqueue.core.cluster.membership import ClusterTimers, NodeHealth
from goqueue.core.cluster.records import NodeRecord, PartitionRecord
from goqueue.core.cluster.states import NodeStatus
from goqueue.core.topics.settings import OFF
from goqueue.wire.times import format_time_us

NS_PER_MS = NS_PER_US * US_PER_MS


class Sight(NamedTuple):
    """What the node that answers knows beside the image."""

    own: NodeId
    controller: NodeId | None
    controller_epoch: int
    updated_ms: int
    """When its image last changed."""
    health: Mapping[NodeId, NodeHealth]
    heard_ms: Mapping[NodeId, int]
    timers: ClusterTimers
    voters: Collection[NodeId] = ()
    learners: Collection[NodeId] = ()
    """Nodes that get the metadata and have no vote on it."""


class NodeAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a listener is reached."""

    host: str
    port: int


class NodeState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node."""

    id: str
    client_address: NodeAddress
    cluster_address: NodeAddress
    status: str
    role: str
    joined_at: str
    last_heartbeat: str
    version: str
    epoch: int
    rack: str = ""
    quorum: str = ""
    """voter, learner, or nothing."""


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a cluster: ``state.json``."""

    cluster_id: str
    version: int
    feature_level: int
    nodes: dict[str, NodeState]
    controller_id: str
    controller_epoch: int
    updated_at: str


class TopicConfigState(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a topic, as the contract names them."""

    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    cleanup_policy: str
    min_in_sync_replicas: int
    unclean_leader_election: bool
    delay_enabled: bool
    schema_validation: bool


class TopicState(msgspec.Struct, frozen=True, kw_only=True):
    """One topic."""

    name: str
    topic_id: int
    partition_count: int
    replication_factor: int
    created_at: str
    updated_at: str
    config: TopicConfigState


class Assignment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One partition; ``version`` is its epoch in the metadata."""

    topic: str
    partition: int
    leader: str
    replicas: tuple[str, ...]
    isr: tuple[str, ...]
    version: int
    leader_epoch: int
    eligible: tuple[str, ...] = ()
    adding: tuple[str, ...] = ()
    removing: tuple[str, ...] = ()


class ClusterMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """Topics and their partitions: ``metadata.json``."""

    version: int
    topics: dict[str, TopicState]
    assignments: dict[str, Assignment]
    updated_at: str


class StateReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``GET /cluster/state``."""

    cluster_state: ClusterState
    cluster_meta: ClusterMetadata
    controller_id: str
    controller_epoch: int


class DetectorStats(msgspec.Struct, frozen=True, kw_only=True):
    """How the nodes look; times are nanoseconds."""

    alive_count: int
    suspect_count: int
    dead_count: int
    total_nodes: int
    heartbeat_interval: int
    suspect_timeout: int
    dead_timeout: int


class ClusterHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``GET /cluster/health``."""

    node_id: str
    status: str
    role: str
    controller_id: str
    controller_epoch: int
    cluster_size: int
    healthy_nodes: int
    failure_detector_stats: DetectorStats


class LocalReplica(msgspec.Struct, frozen=True, kw_only=True):
    """The replica on the node that answers."""

    role: str
    log_end_offset: int
    high_watermark: int
    epoch: int


class PartitionState(Assignment, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of ``GET /cluster/partition/{t}/{p}/info``."""

    local_replica: LocalReplica | None = None


class Coordinator(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of an internal topic; its leader is the coordinator."""

    partition: int
    leader: str
    replicas: tuple[str, ...]
    isr: tuple[str, ...]


class Coordinators(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``GET /admin/coordinators``."""

    internal_topic: str
    partition_count: int
    coordinators: list[Coordinator]


def shown_time(at_ms: int) -> str:
    """Return a time as text, or nothing."""
    return format_time_us(at_ms * US_PER_MS) if at_ms else ""


def _address(text: str) -> NodeAddress:
    host, _, port = text.rpartition(":")
    is_port = port.isascii() and port.isdigit()
    return NodeAddress(host=host if is_port else text, port=int(port) if is_port else 0)


def node_status(node: NodeRecord, sight: Sight) -> str:
    """Return unknown, alive, suspect, dead, leaving or removing."""
    health = NodeHealth.ALIVE if node.id == sight.own else sight.health.get(node.id)
    if node.is_retiring:
        return "removing"
    match node.status:
        case NodeStatus.LEAVING:
            return "leaving"
        case NodeStatus.ALIVE:
            return str(health or NodeHealth.ALIVE)
        case NodeStatus.FENCED:
            # It is heard of and may not serve yet.
            return "unknown" if health is NodeHealth.ALIVE else "dead"


def _vote(node: NodeId, sight: Sight) -> str:
    if node in sight.voters:
        return "voter"
    return "learner" if node in sight.learners else ""


def _role(node: NodeId, sight: Sight) -> str:
    return "controller" if node == sight.controller else "follower"


def cluster_state(image: ClusterImage, sight: Sight) -> ClusterState:
    """Return the nodes of a cluster."""
    return ClusterState(
        cluster_id=image.cluster_id,
        version=image.version,
        feature_level=image.feature_level,
        nodes={
            one.id: NodeState(
                id=one.id,
                client_address=_address(one.addresses.native),
                cluster_address=_address(one.addresses.cluster),
                status=node_status(one, sight),
                role=_role(one.id, sight),
                joined_at=shown_time(one.joined_ms),
                last_heartbeat=shown_time(sight.heard_ms.get(one.id, one.registered_ms)),
                version=one.version,
                epoch=one.epoch,
                rack=one.rack,
                quorum=_vote(one.id, sight),
            )
            for one in image.nodes.values()
        },
        controller_id=sight.controller or "",
        controller_epoch=sight.controller_epoch,
        updated_at=shown_time(sight.updated_ms),
    )


def cluster_metadata(image: ClusterImage, sight: Sight) -> ClusterMetadata:
    """Return topics and partitions."""
    return ClusterMetadata(
        version=image.version,
        topics={one.name: _topic(image, one) for one in image.topics.values()},
        assignments={
            f"{topic.name}-{number}": assignment(topic, number, record)
            for topic in image.topics.values()
            for number, record in enumerate(topic.partitions)
        },
        updated_at=shown_time(sight.updated_ms),
    )


def _topic(image: ClusterImage, topic: ClusterTopic) -> TopicState:
    known = image.catalog.topics[topic.name]
    settings = known.settings
    return TopicState(
        name=topic.name,
        topic_id=topic.id,
        partition_count=len(topic.partitions),
        replication_factor=topic.replication.replication_factor,
        created_at=shown_time(known.created_ms),
        updated_at=shown_time(topic.updated_ms),
        config=TopicConfigState(
            retention_ms=settings.retention_ms,
            retention_bytes=settings.retention_bytes or -1,
            segment_bytes=settings.segment_bytes,
            cleanup_policy=settings.cleanup_policy,
            min_in_sync_replicas=topic.replication.min_insync_replicas,
            unclean_leader_election=topic.replication.unclean_leader_election,
            delay_enabled=True,
            schema_validation=settings.schema_validation != OFF,
        ),
    )


def _members(record: PartitionRecord, bits: int) -> tuple[str, ...]:
    return tuple(node for place, node in enumerate(record.replicas) if bits >> place & 1)


def assignment(topic: ClusterTopic, number: int, record: PartitionRecord) -> Assignment:
    """Return one partition."""
    return Assignment(
        topic=topic.name,
        partition=number,
        leader=record.leader_id or "",
        replicas=record.replicas,
        isr=record.isr_ids,
        version=record.partition_epoch,
        leader_epoch=record.leader_epoch,
        eligible=record.elr_ids,
        adding=_members(record, record.adding),
        removing=_members(record, record.removing),
    )


def state_reply(image: ClusterImage, sight: Sight) -> StateReply:
    """Return the answer of ``GET /cluster/state``."""
    return StateReply(
        cluster_state=cluster_state(image, sight),
        cluster_meta=cluster_metadata(image, sight),
        controller_id=sight.controller or "",
        controller_epoch=sight.controller_epoch,
    )


def cluster_health(image: ClusterImage, sight: Sight) -> ClusterHealth:
    """Return how the cluster looks from this node; ``cluster_size`` counts registered nodes."""
    found = [node_status(one, sight) for one in image.nodes.values()]
    own = image.nodes.get(sight.own)
    return ClusterHealth(
        node_id=sight.own,
        status="unknown" if own is None else node_status(own, sight),
        role=_role(sight.own, sight),
        controller_id=sight.controller or "",
        controller_epoch=sight.controller_epoch,
        cluster_size=len(found),
        healthy_nodes=found.count(NodeHealth.ALIVE),
        failure_detector_stats=DetectorStats(
            alive_count=found.count(NodeHealth.ALIVE),
            suspect_count=found.count(NodeHealth.SUSPECT),
            dead_count=found.count(NodeHealth.DEAD),
            total_nodes=len(found),
            heartbeat_interval=sight.timers.heartbeat_ms * NS_PER_MS,
            suspect_timeout=sight.timers.suspect_ms * NS_PER_MS,
            dead_timeout=sight.timers.dead_ms * NS_PER_MS,
        ),
    )


def partition_state(
    image: ClusterImage, name: str, number: int, local: LocalReplica | None = None
) -> PartitionState:
    """Return one partition, with the replica of this node, if it has one."""
    topic = image.topic(name)
    found = assignment(topic, number, image.partition(topic, number))
    return PartitionState(**msgspec.structs.asdict(found), local_replica=local)


def coordinators(image: ClusterImage, name: str) -> Coordinators:
    """Return the coordinators of an internal topic."""
    topic = image.topic(name)
    return Coordinators(
        internal_topic=topic.name,
        partition_count=len(topic.partitions),
        coordinators=[
            Coordinator(
                partition=number,
                leader=record.leader_id or "",
                replicas=record.replicas,
                isr=record.isr_ids,
            )
            for number, record in enumerate(topic.partitions)
        ],
    )
