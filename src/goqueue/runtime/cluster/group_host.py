"""What a replica group needs of the node it is on."""

from collections.abc import Mapping
from typing import Protocol

from goqueue.base.ids import NodeId, TopicPartition
from goqueue.core.replication.leader import ProposeIsr
from goqueue.core.replication.replica import LogKey
from goqueue.runtime.clock import Clock
from goqueue.runtime.cluster.replica_notebook import ReplicaNotebook
from goqueue.runtime.log.leadership import Mending
from goqueue.runtime.log.partition import Partition
from goqueue.storage.log_notes import Gap


class GroupHost(Protocol):
    """What a replica group needs of its node."""

    @property
    def node(self) -> NodeId:
        """The name of this node."""
        ...

    @property
    def heard(self) -> Mapping[NodeId, int]:
        """When each node's last request came."""
        ...

    @property
    def notebook(self) -> ReplicaNotebook:
        """Where epochs are noted."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock of the broker."""
        ...

    @property
    def lag_ms(self) -> int:
        """How long a follower may lag before it leaves the replicas in sync."""
        ...

    def now_ms(self) -> int:
        """Return steady milliseconds."""
        ...

    def check_live(self) -> None:
        """Raise unless this node may answer for what it leads."""
        ...

    def fetch_from(self, leader: NodeId | None, key: LogKey) -> None:
        """Fetch a log from a node, and from no other."""
        ...

    def position_changed(self, key: LogKey) -> None:
        """Report to the leader of a log what this node has of it."""
        ...

    def log_grew(self, key: LogKey) -> None:
        """Send followers of a log what is new."""
        ...

    def watermark_moved(self, key: LogKey) -> None:
        """Let followers of a log know its high watermark, or its start."""
        ...

    def propose(self, place: TopicPartition, proposal: ProposeIsr) -> None:
        """Ask the controller to change the replicas in sync."""
        ...

    def open_state(self, place: TopicPartition) -> Partition:
        """Make the state log of a partition on this node, empty."""
        ...

    async def mend(self, key: LogKey, gap: Gap) -> Mending:
        """Put good frames of another replica in the place of damaged ones."""
        ...

    async def gain(self, place: TopicPartition) -> None:
        """Load the state that goes with a partition."""
        ...

    async def lose(self, place: TopicPartition) -> None:
        """Drop the state that goes with a partition."""
        ...
