"""What a node is told at its start, as far as it is about its cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from goqueue.base.ids import NodeId
from goqueue.base.units import SECOND_MS
from goqueue.core.cluster.membership import ClusterTimers
from goqueue.core.raft.messages import PeerId

TICK_MS: Final = 50
"""The quorum's unit of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerAddresses:
    """Where others reach this node."""

    native: str = ""
    http: str = ""
    cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The settings of a node of a cluster."""

    node: NodeId
    peers: Mapping[NodeId, str]
    """The addresses of the other nodes."""
    timers: ClusterTimers = field(default_factory=ClusterTimers)
    election_ms: int = SECOND_MS
    """Without a leader for this long, to twice as long, there is an election."""
    leave_ms: int = 30 * SECOND_MS
    """How long a node that stops waits for others to take over."""
    replication_factor: int = 0
    """Replicas of new topics that do not say; 0 leaves it to the metadata."""
    rack: str = ""
    version: str = ""
    boot_id: str = ""
    """Which run of this machine it is; empty where that is not known."""
    key: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        assert self.node not in self.peers, "peers are the others"

    @property
    def founders(self) -> list[NodeId]:
        """The nodes that found the cluster, in the order of their numbers."""
        return sorted((self.node, *self.peers))

    @property
    def numbers(self) -> dict[NodeId, PeerId]:
        """The numbers of the founders in the quorum."""
        return {node: PeerId(place) for place, node in enumerate(self.founders, 1)}
