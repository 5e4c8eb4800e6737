"""Requests and replies of HTTP on the port between nodes.

Shape: codec.
"""

from typing import Annotated

import msgspec

from goqueue.base.cluster_limits import ADDRESS_CHARACTERS_MAX
from goqueue.base.limits import NAME_CHARACTERS_MAX
from goqueue.wire.http.cluster import ClusterState

Word = Annotated[str, msgspec.Meta(max_length=NAME_CHARACTERS_MAX)]
Words = Annotated[str, msgspec.Meta(max_length=ADDRESS_CHARACTERS_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class HeartbeatBody(msgspec.Struct, frozen=True, kw_only=True):
    """``POST /cluster/heartbeat``."""

    node_id: Word
    timestamp: Words | Count = ""
    controller_id: Word = ""
    epoch: Count = 0
    cluster_version: Count = 0


class HeartbeatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What is known here of the cluster."""

    node_id: str
    version: int
    controller_id: str
    controller_epoch: int


class JoinBody(msgspec.Struct, frozen=True, kw_only=True):
    """``POST /cluster/join``."""

    node_id: Word
    node_info: msgspec.Raw = msgspec.Raw()


class JoinAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a node is a part of the cluster."""

    success: bool
    controller_id: str
    redirect_required: bool
    cluster_state: ClusterState | None = None
    controller_addr: str = ""
    error: str = ""


class LeaveBody(msgspec.Struct, frozen=True, kw_only=True):
    """``POST /cluster/leave``: remove a node for good."""

    node_id: Word
    graceful: bool = True
    """Whether replicas that it has are moved to other nodes; otherwise it must have none."""


class RemoveBody(msgspec.Struct, frozen=True, kw_only=True):
    """``POST /cluster/remove``: remove a node for good, or let it stay after all."""

    node_id: Word
    move_replicas: bool = False
    cancel: bool = False


class RemoveAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The removal began, or was cancelled; ``GET /cluster/state`` shows how far it is."""

    node_id: str
    replicas: int
    """Partitions that the node has replicas of, which are moved first."""
    success: bool = True


class SuccessAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """It is so now."""

    success: bool = True


class VoteBody(msgspec.Struct, frozen=True, kw_only=True):
    """``POST /cluster/vote``."""

    candidate_id: Word
    epoch: Count
    lease_expiry: Words | Count = ""


class MetadataBody(msgspec.Struct, frozen=True, kw_only=True):
    """``POST /cluster/metadata``."""

    metadata: msgspec.Raw


class IsrBody(msgspec.Struct, frozen=True, kw_only=True):
    """``POST /cluster/isr``."""

    topic: Word
    partition: Count
    node_id: Word
    type: Word
    offset: int = 0
    reason: Words = ""
    timestamp: Words | Count = ""


class ElectionBody(msgspec.Struct, frozen=True, kw_only=True):
    """``POST /cluster/leader-election``."""

    topic: Word
    partition: Count
    reason: Words = ""
    preferred_leader: Word = ""
    allow_unclean: bool = False


class ElectionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads now; ``error_code`` is empty if that is what was asked for."""

    new_leader: str
    new_epoch: int
    error_code: str
