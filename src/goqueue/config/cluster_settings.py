"""What an operator may set about the cluster that a broker is a node of."""

import re
from typing import Final, NamedTuple

from goqueue.base.cluster_limits import NODE_ID_CHARACTERS_MAX, NODES_MAX, REPLICAS_MAX
from goqueue.base.errors import InvalidNameError
from goqueue.base.names import check_name
from goqueue.base.units import MINUTE_MS, GiB, format_duration_ms, format_size_bytes
from goqueue.config.address import parse_address
from goqueue.config.readers import (
    Setting,
    read_count,
    read_duration,
    read_flag,
    read_listener,
    read_size,
    read_text,
)

EMBEDDED: Final = "embedded"
ETCD: Final = "etcd://"
_NUMBER: Final = re.compile(r"\d{1,3}", re.ASCII)


class PeerAddress(NamedTuple):
    """A node that the settings name, and where it listens for others."""

    node: str
    address: str


def parse_peer(text: str) -> PeerAddress:
    """Read ``node-id@host:port``, or raise ValueError."""
    node, at, address = text.strip().partition("@")
    if not at:
        raise ValueError(
            f'invalid address {text!r}; write it with the name of the node: "node-2@10.0.0.2:7000"'
        )
    try:
        check_name(node, field="node id", characters_max=NODE_ID_CHARACTERS_MAX)
        parsed = parse_address(address)
    except (ValueError, InvalidNameError) as error:
        raise ValueError(f"invalid address {text!r}: {error}") from error
    if not parsed.host or not parsed.port:
        raise ValueError(f"invalid address {text!r}: it needs a host and a port")
    return PeerAddress(node, str(parsed))


def parse_peers(value: str) -> list[PeerAddress]:
    """Return the peers of a setting that was read."""
    return [parse_peer(text) for text in value.split(",") if text]


def _peers(value: object) -> str:
    """Read peers with commas between; each problem names its place."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return ""
    words = value if isinstance(value, list) else read_text(value).split(",")
    found: list[PeerAddress] = []
    for place, word in enumerate(words):
        try:
            found.append(parse_peer(read_text(word)))
        except ValueError as error:
            raise ValueError(f"[{place}]: {error}") from error
    for what, given in (
        ("node", [one.node for one in found]),
        ("address", [one.address for one in found]),
    ):
        twice = {one for one in given if given.count(one) > 1}
        if twice:
            raise ValueError(f"the {what} {min(twice)} is named twice")
    if len(found) > NODES_MAX:
        raise ValueError(f"{len(found)} nodes; the limit is {NODES_MAX}")
    return ",".join(f"{one.node}@{one.address}" for one in found)


def _quorum(value: object) -> str:
    text = read_text(value).strip()
    if text == EMBEDDED or _NUMBER.fullmatch(text) or text.startswith(ETCD):
        return text
    raise ValueError(f"{text!r} is not {EMBEDDED}, a number of nodes, or etcd://host:port,…")


def _optional_address(value: object) -> str:
    if value is None or (isinstance(value, str) and not value.strip()):
        return ""
    parsed = parse_address(read_text(value))
    if not parsed.host:
        raise ValueError("others need a host to connect to")
    return str(parsed)


def _optional_text(value: object) -> str:
    return "" if value is None or value == "" else read_text(value)


CLUSTER_SETTINGS: Final = (
    Setting(
        field="cluster_enabled",
        key="cluster.enabled",
        environment="GOQUEUE_CLUSTER_ENABLED",
        flag=None,
        meaning="whether this broker is a node of a cluster: true or false",
        read=read_flag,
        show=lambda value: str(bool(value)).lower(),
    ),
    Setting(
        field="cluster_peers",
        key="cluster.peers",
        environment="GOQUEUE_CLUSTER_PEERS",
        flag=None,
        meaning="all nodes as node-id@host:port, with commas between; the same on each of them",
        read=_peers,
        show=lambda value: str(value) or "none",
    ),
    Setting(
        field="cluster_listener",
        key="listeners.internal",
        environment="GOQUEUE_LISTENERS_INTERNAL",
        flag=None,
        meaning="address at which other nodes connect; port 0 takes a free one",
        read=read_listener,
    ),
    Setting(
        field="cluster_advertise",
        key="cluster.advertise",
        environment="GOQUEUE_CLUSTER_ADVERTISE",
        flag=None,
        meaning="address that other nodes are told; by default where the node listens for them",
        read=_optional_address,
        show=lambda value: str(value) or "none",
    ),
    Setting(
        field="cluster_client_advertise",
        key="cluster.client_advertise",
        environment="GOQUEUE_CLUSTER_CLIENT_ADVERTISE",
        flag=None,
        meaning="address that clients are told; by default where the native protocol listens",
        read=_optional_address,
        show=lambda value: str(value) or "none",
    ),
    Setting(
        field="cluster_quorum",
        key="cluster.quorum",
        environment="GOQUEUE_CLUSTER_QUORUM",
        flag=None,
        meaning="what keeps the metadata: embedded, or the URL of an etcd: etcd://host:port,…",
        read=_quorum,
    ),
    Setting(
        field="cluster_key_file",
        key="cluster.key_file",
        environment="GOQUEUE_CLUSTER_KEY_FILE",
        flag=None,
        meaning="file with the key that all nodes share; without it they listen on loopback only",
        read=_optional_text,
        show=lambda value: str(value) or "none",
    ),
    Setting(
        field="cluster_rack",
        key="cluster.rack",
        environment="GOQUEUE_CLUSTER_RACK",
        flag=None,
        meaning="where this node stands; replicas are spread over racks",
        read=_optional_text,
        show=lambda value: str(value) or "none",
    ),
    Setting(
        field="cluster_heartbeat_ms",
        key="cluster.heartbeat_interval",
        environment="GOQUEUE_CLUSTER_HEARTBEAT_INTERVAL",
        flag=None,
        meaning="how often a node is heard of by the controller",
        read=read_duration(50, MINUTE_MS),
        show=format_duration_ms,
    ),
    Setting(
        field="cluster_suspect_ms",
        key="cluster.suspect_timeout",
        environment="GOQUEUE_CLUSTER_SUSPECT_TIMEOUT",
        flag=None,
        meaning="silence after which a node is suspect",
        read=read_duration(100, 10 * MINUTE_MS),
        show=format_duration_ms,
    ),
    Setting(
        field="cluster_dead_ms",
        key="cluster.dead_timeout",
        environment="GOQUEUE_CLUSTER_DEAD_TIMEOUT",
        flag=None,
        meaning="silence after which a node is dead and others take over",
        read=read_duration(150, 10 * MINUTE_MS),
        show=format_duration_ms,
    ),
    Setting(
        field="cluster_election_ms",
        key="cluster.election_timeout",
        environment="GOQUEUE_CLUSTER_ELECTION_TIMEOUT",
        flag=None,
        meaning="time without a controller until there is an election; up to twice as long",
        read=read_duration(100, MINUTE_MS),
        show=format_duration_ms,
    ),
    Setting(
        field="cluster_leave_ms",
        key="cluster.leave_timeout",
        environment="GOQUEUE_CLUSTER_LEAVE_TIMEOUT",
        flag=None,
        meaning="longest wait of a node that stops for others to take over",
        read=read_duration(0, 10 * MINUTE_MS),
        show=format_duration_ms,
    ),
    Setting(
        field="cluster_replication_factor",
        key="cluster.replication_factor",
        environment="GOQUEUE_CLUSTER_REPLICATION_FACTOR",
        flag=None,
        meaning="replicas of new topics that do not say; 0 means 3, or as many as there are nodes",
        read=read_count(0, REPLICAS_MAX),
    ),
    Setting(
        field="cluster_scrub_bytes",
        key="cluster.scrub_rate",
        environment="GOQUEUE_CLUSTER_SCRUB_RATE",
        flag=None,
        meaning="bytes a second read in the background to find damaged messages; 0 reads nothing",
        read=read_size(0, GiB),
        show=format_size_bytes,
    ),
)
