"""A cluster as JSON: the names of the contract, from the image alone."""

import msgspec
import pytest

from goqueue.base.errors import PartitionNotFoundError, TopicNotFoundError
from goqueue.base.ids import NodeId
from goqueue.core.cluster import commands
from goqueue.core.cluster.membership import ClusterTimers, NodeHealth
from goqueue.wire.http import cluster, reassignment
from tests.core.cluster.world import World, founded


def sight(**health: NodeHealth) -> cluster.Sight:
    return cluster.Sight(
        own=NodeId("a"),
        controller=NodeId("a"),
        controller_epoch=7,
        updated_ms=2_000,
        health={NodeId(name): one for name, one in health.items()},
        heard_ms={NodeId("b"): 1_500},
        timers=ClusterTimers(),
    )


def json_of(value: object) -> dict[str, object]:
    found = msgspec.json.decode(msgspec.json.encode(value))
    assert isinstance(found, dict)
    return found


def three() -> World:
    world = founded("a", "b", "c")
    world.assign("orders", "a", "b", "c")
    return world


def test_the_state_has_nodes_and_metadata() -> None:
    """GET /cluster/state, whose two halves are state.json and metadata.json."""
    world = three()
    reply = json_of(cluster.state_reply(world.image, sight(b=NodeHealth.SUSPECT)))

    assert reply.keys() == {"cluster_state", "cluster_meta", "controller_id", "controller_epoch"}
    state = cluster.cluster_state(world.image, sight(b=NodeHealth.SUSPECT))
    assert {one.id: one.status for one in state.nodes.values()} == {
        "a": "alive",
        "b": "suspect",
        "c": "alive",
    }
    assert state.nodes["a"].role == "controller"
    assert state.nodes["b"].client_address == cluster.NodeAddress(host="b", port=7070)
    assert state.nodes["b"].last_heartbeat == "1970-01-01T00:00:01.500000000Z"
    metadata = json_of(cluster.cluster_metadata(world.image, sight()))
    assert metadata["topics"] == {
        "orders": {
            "name": "orders",
            "topic_id": 1,
            "partition_count": 1,
            "replication_factor": 3,
            "created_at": "1970-01-01T00:00:01.000000000Z",
            "updated_at": "1970-01-01T00:00:01.000000000Z",
            "config": {
                "retention_ms": 604_800_000,
                "retention_bytes": -1,
                "segment_bytes": 67_108_864,
                "cleanup_policy": "delete",
                "min_in_sync_replicas": 2,
                "unclean_leader_election": False,
                "delay_enabled": True,
                "schema_validation": False,
            },
        }
    }
    assert metadata["assignments"] == {
        "orders-0": {
            "topic": "orders",
            "partition": 0,
            "leader": "a",
            "replicas": ["a", "b", "c"],
            "isr": ["a", "b", "c"],
            "version": 1,
            "leader_epoch": 1,
        }
    }


def test_the_status_of_a_node_has_the_words_of_the_contract() -> None:
    """unknown, alive, suspect, dead and leaving."""
    world = three()
    world.fence("b")
    world.propose(commands.BeginLeave(node="c", epoch=world.epoch("c")))
    nodes = world.image.nodes

    dead = sight(b=NodeHealth.DEAD)
    assert cluster.node_status(nodes[NodeId("b")], dead) == "dead"
    assert cluster.node_status(nodes[NodeId("b")], sight()) == "dead"
    assert cluster.node_status(nodes[NodeId("b")], sight(b=NodeHealth.ALIVE)) == "unknown"
    assert cluster.node_status(nodes[NodeId("c")], dead) == "leaving"
    health = cluster.cluster_health(world.image, dead)
    assert (health.cluster_size, health.healthy_nodes) == (3, 1)
    assert health.failure_detector_stats.dead_timeout == 9_000_000_000
    assert health.failure_detector_stats.dead_count == 1


def test_one_partition_is_shown_with_the_local_replica() -> None:
    """GET /cluster/partition/{t}/{p}/info."""
    world = three()
    world.fence("c")
    local = cluster.LocalReplica(role="leader", log_end_offset=9, high_watermark=8, epoch=1)
    shown = json_of(cluster.partition_state(world.image, "orders", 0, local))

    assert shown["isr"] == ["a", "b"]
    assert shown["version"] == 2
    assert shown["local_replica"] == {
        "role": "leader",
        "log_end_offset": 9,
        "high_watermark": 8,
        "epoch": 1,
    }
    with pytest.raises(PartitionNotFoundError):
        cluster.partition_state(world.image, "orders", 1)
    with pytest.raises(TopicNotFoundError):
        cluster.partition_state(world.image, "other", 0)


def test_coordinators_are_shown() -> None:
    """They are answered from the image, on any node (C10)."""
    world = three()
    world.propose(commands.CreateTopic(name="__consumer_offsets", partitions=50, by_broker=True))

    found = cluster.coordinators(world.image, "__consumer_offsets")
    assert found.partition_count == len(found.coordinators) == 50
    assert {one.leader for one in found.coordinators} == {"a", "b", "c"}


def test_c10_progress_is_measured_against_the_leader() -> None:
    """A replica that has nothing is at 0 %, whatever it says of itself; done means in sync."""
    world = founded("a", "b", "c")
    world.assign("orders", "a", "b")
    name = world.move(commands.PartMove(topic="orders", partition=0, new=["a", "c"]))
    key = (world.image.topic("orders").id, 0)

    def percent(durable: int, high_watermark: int) -> float:
        report = reassignment.MoveProgress(100, high_watermark, {NodeId("c"): durable})
        status = reassignment.reassignment_status(world.image, name, {key: report})
        return status.progress["orders-0"].catchup_percent

    assert percent(0, 200) == 0.0
    assert percent(50, 100) == 50.0
    assert percent(100, 200) == 50.0
    assert percent(200, 200) == 100.0
    status = reassignment.reassignment_status(world.image, name, {})
    assert status.state == "catching_up", "all bytes are there, but it is not in sync"
    assert status.progress["orders-0"].catchup_percent == 0.0
    world.set_isr("orders", "a", "b", "c")
    listed = reassignment.reassignment_list(world.image, {})
    assert listed.count == 1
    assert listed.reassignments[0].state == "completed"
    assert listed.reassignments[0].progress["orders-0"].catchup_percent == 100.0
    assert listed.reassignments[0].request.timeout_per_partition_sec == 86_400
