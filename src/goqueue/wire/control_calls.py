"""What nodes say to each other about their cluster: introductions, proposals, heartbeats.

Shape: codec.
"""

from typing import Annotated

import msgspec

from goqueue.base.cluster_limits import (
    ADDRESS_CHARACTERS_MAX,
    NODE_ID_CHARACTERS_MAX,
    NODES_MAX,
)
from goqueue.core.cluster.membership import NodeHealth
from goqueue.core.cluster.replies import Reply
from goqueue.core.cluster.states import NodeStatus
from goqueue.wire.calls import Call, Name, Natural

NodeName = Annotated[str, msgspec.Meta(max_length=NODE_ID_CHARACTERS_MAX)]
NodeNames = Annotated[list[NodeName], msgspec.Meta(max_length=NODES_MAX)]
Address = Annotated[str, msgspec.Meta(max_length=ADDRESS_CHARACTERS_MAX)]
Directories = Annotated[dict[NodeName, NodeName], msgspec.Meta(max_length=NODES_MAX)]
MemberNumbers = Annotated[dict[NodeName, Natural], msgspec.Meta(max_length=NODES_MAX)]


class Introduction(Call, frozen=True):
    """INTRODUCE, both ways: what a node knows before it knows the metadata."""

    peers: NodeNames
    """The nodes that its settings name, itself among them."""
    directory: NodeName
    cluster_id: Name = ""
    founders: Directories = msgspec.field(default_factory=dict)
    """The directories of the founders; empty until the cluster is founded as far as it knows."""
    members: MemberNumbers = msgspec.field(default_factory=dict)
    """The numbers of the members of the quorum."""
    controller: NodeName = ""
    addresses: Annotated[dict[NodeName, Address], msgspec.Meta(max_length=NODES_MAX)] = (
        msgspec.field(default_factory=dict)
    )
    """Where nodes listen for others, as far as it knows."""
    version: Natural = 0
    """The version of the metadata it has applied; what it says is as old as that."""


class ProposeCall(Call, frozen=True):
    """The header of PROPOSE; the proposal itself is the payload."""


class ProposeReply(Call, frozen=True):
    """What became of a proposal: an answer, or the code of why it was refused."""

    version: Natural
    """The version of the image that has it; the asker waits until it has applied that."""
    reply: Reply | None = None
    code: Name = ""
    message: str = ""


class NodeHeartbeat(Call, frozen=True):
    """NODE_HEARTBEAT: a registered node is there."""

    epoch: Natural
    is_ready: bool = False
    """Whether it wants to lead and be in sync."""
    refused: NodeNames = msgspec.field(default_factory=list)
    """Peers whose connections were refused since the last one."""
    version: Natural = 0
    """The version of the metadata it has applied."""


class NodeSight(Call, frozen=True):
    """How the controller sees one node."""

    node: NodeName
    health: NodeHealth
    silent_ms: Natural


class NodeHeartbeatReply(Call, frozen=True):
    """How the node stands, and how all nodes look."""

    status: NodeStatus
    term: Natural
    nodes: Annotated[list[NodeSight], msgspec.Meta(max_length=NODES_MAX)] = msgspec.field(
        default_factory=list
    )
