"""The settings of a cluster: read, checked together, and refused with the words of the contract."""

from pathlib import Path

import pytest

from goqueue.base.errors import InvalidConfigError
from goqueue.config.cluster_check import read_key
from goqueue.config.cluster_settings import parse_peer
from goqueue.config.load import Loaded, load_config

PEERS = "node-1@127.0.0.1:7000,node-2@127.0.0.1:7001,node-3@127.0.0.1:7002"


def load(tmp_path: Path, **settings: str) -> Loaded:
    given = {"cluster.enabled": "true", "cluster.peers": PEERS}
    given |= {name.replace("__", "."): value for name, value in settings.items()}
    return load_config(
        flags={"data_dir": str(tmp_path / "data")}, environment={}, assignments=given
    )


def problems(tmp_path: Path, **settings: str) -> str:
    with pytest.raises(InvalidConfigError) as caught:
        load(tmp_path, **settings)
    return caught.value.message


def test_a_cluster_is_configured_by_the_names_of_the_contract(tmp_path: Path) -> None:
    """All nodes may have the same list; a node's own entry is no peer of it."""
    environment = {
        "GOQUEUE_CLUSTER_ENABLED": "true",
        "GOQUEUE_CLUSTER_PEERS": PEERS,
        "GOQUEUE_CLUSTER_QUORUM": "2",
        "GOQUEUE_CLUSTER_ADVERTISE": "10.0.0.1:7000",
        "GOQUEUE_CLUSTER_CLIENT_ADVERTISE": "10.0.0.1:7070",
        "GOQUEUE_LISTENERS_INTERNAL": "127.0.0.1:7000",
    }
    loaded = load_config(flags={"data_dir": str(tmp_path / "data")}, environment=environment)

    assert loaded.config.cluster_enabled
    assert loaded.config.cluster_peers == PEERS
    assert loaded.config.cluster_advertise == "10.0.0.1:7000"
    assert loaded.warnings == ()


def test_no_peer_is_refused(tmp_path: Path) -> None:
    """Also where a node names only itself."""
    wanted = "cluster.peers: at least one peer is required in cluster mode"

    assert wanted in problems(tmp_path, cluster__peers="")
    assert wanted in problems(tmp_path, cluster__peers="node-1@127.0.0.1:7000")


@pytest.mark.parametrize("peer", ["127.0.0.1:7001", "b@", "b@host", "b@:7001", "@h:1", "b c@h:1"])
def test_a_peer_without_name_or_address_is_refused(tmp_path: Path, peer: str) -> None:
    """The place in the list is named."""
    text = problems(tmp_path, cluster__peers=f"a@127.0.0.1:7000,{peer}")

    assert "cluster.peers: [1]: invalid address" in text


def test_a_node_is_named_once(tmp_path: Path) -> None:
    """Neither a name nor an address twice."""
    assert "the node b is named twice" in problems(tmp_path, cluster__peers="b@h:1,b@h:2")
    assert "the address h:1 is named twice" in problems(tmp_path, cluster__peers="b@h:1,c@h:1")


def test_a_quorum_is_the_majority(tmp_path: Path) -> None:
    """The number of the contract is taken, if it is the one."""
    assert load(tmp_path, cluster__quorum="2").config.cluster_quorum == "2"
    assert ("cluster.quorum_size: 4 exceeds total cluster size 3 (peers=2 + self=1)") in problems(
        tmp_path, cluster__quorum="4"
    )
    assert "is not the majority of 3 nodes" in problems(tmp_path, cluster__quorum="1")
    assert "is not embedded" in problems(tmp_path, cluster__quorum="zookeeper")


def test_timers_fit_together(tmp_path: Path) -> None:
    """A node is suspect behind a heartbeat and dead behind that."""
    text = problems(
        tmp_path,
        cluster__heartbeat_interval="6s",
        cluster__suspect_timeout="5s",
        cluster__dead_timeout="4s",
        cluster__election_timeout="3s",
    )

    assert "suspect_timeout: must be longer" in text
    assert "dead_timeout: must be longer than cluster.suspect_timeout" in text
    assert "election_timeout: twice of it" in text


def test_other_machines_need_the_key(tmp_path: Path) -> None:
    """P12: without a key nodes speak on loopback only, and a key is a secret."""
    key = tmp_path / "key"
    key.write_text("k" * 32 + "\n")
    key.chmod(0o644)
    given = {"listeners__internal": "0.0.0.0:7000"}

    assert "nodes need cluster.key_file" in problems(tmp_path, **given)
    assert "can be read by others" in problems(tmp_path, **given, cluster__key_file=str(key))
    key.chmod(0o600)
    config = load(tmp_path, **given, cluster__key_file=str(key)).config
    assert read_key(config) == b"k" * 32
    key.write_text("short")
    assert "has 5 bytes" in problems(tmp_path, **given, cluster__key_file=str(key))
    assert "cannot be read" in problems(tmp_path, **given, cluster__key_file="/nowhere")


def test_ports_are_different(tmp_path: Path) -> None:
    """The port of the nodes is no other's."""
    text = problems(tmp_path, listeners__internal="127.0.0.1:7070")

    assert "listeners.internal: 127.0.0.1:7070 is also listeners.native" in text


def test_settings_of_a_cluster_mean_nothing_without_one(tmp_path: Path) -> None:
    """A broker by itself does not look at them."""
    loaded = load(tmp_path, cluster__enabled="false", cluster__peers="", cluster__quorum="7")

    assert not loaded.config.cluster_enabled


def test_ipv6_peers_are_read() -> None:
    """With brackets, as everywhere."""
    assert parse_peer("node-2@[::1]:7001").address == "[::1]:7001"
