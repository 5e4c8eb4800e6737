"""What can be asked of a cluster's metadata: a closed union, the body of every proposal.

Shape: codec. Nothing sets state as such (trap C9): each command is a verb that is checked against
the image. All lengths are bounded here, before anything is looked up.
"""

from typing import Annotated, Final, Literal

import msgspec

from goqueue.base.cluster_limits import (
    ADDRESS_CHARACTERS_MAX,
    ALTERED_PARTITIONS_MAX,
    FEATURE_LEVEL_MAX,
    ID_OWNERS_MAX,
    MOVE_TIMEOUT_MS,
    MOVE_TIMEOUT_MS_MAX,
    MOVES_MAX,
    MOVES_PER_NODE,
    REPLICAS_MAX,
    REQUEST_ID_CHARACTERS_MAX,
    THROTTLE_BYTES,
)
from goqueue.base.errors import InvalidRequestError, TooLargeError
from goqueue.base.limits import NAME_CHARACTERS_MAX, PARTITIONS_MAX, REQUEST_HEADER_BYTES_MAX
from goqueue.core.security.commands import Command as SecurityCommand

Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARACTERS_MAX)]
Address = Annotated[str, msgspec.Meta(max_length=ADDRESS_CHARACTERS_MAX)]
Natural = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Level = Annotated[int, msgspec.Meta(ge=0, le=FEATURE_LEVEL_MAX)]
Nodes = Annotated[list[Name], msgspec.Meta(max_length=REPLICAS_MAX)]
Setting = Annotated[str, msgspec.Meta(max_length=NAME_CHARACTERS_MAX)] | int | float | bool
Settings = Annotated[dict[Name, Setting], msgspec.Meta(max_length=100)]
Assignments = Annotated[dict[Number, Nodes], msgspec.Meta(max_length=PARTITIONS_MAX)]
Ends = Annotated[list[Natural], msgspec.Meta(max_length=PARTITIONS_MAX)]


class FoundCluster(msgspec.Struct, frozen=True, tag="found", array_like=True, kw_only=True):
    """Let the cluster exist; its first controller asks for this."""

    cluster_id: Name
    feature_level: Level = 1


class RaiseFeatureLevel(msgspec.Struct, frozen=True, tag="raise", array_like=True, kw_only=True):
    """Allow events that only newer versions understand."""

    feature_level: Level


class RegisterNode(msgspec.Struct, frozen=True, tag="register", array_like=True, kw_only=True):
    """Let the started process of a node be known, fenced."""

    cluster_id: Name
    node: Name
    directory: Name
    incarnation: Natural
    native: Address = ""
    http: Address = ""
    cluster: Address = ""
    rack: Name = ""
    version: Name = ""
    feature_level: Level = 1
    is_clean: bool = False
    """Whether everything it had written was synced when it stopped."""
    process: Natural = 0
    """Chosen by the process at random: two copies of a directory may count to the same number."""


class UnfenceNode(msgspec.Struct, frozen=True, tag="unfence", array_like=True, kw_only=True):
    """Let a node that was heard of lead and be in sync."""

    node: Name
    epoch: Natural


class FenceNode(msgspec.Struct, frozen=True, tag="fence", array_like=True, kw_only=True):
    """Take everything from a node that is dead."""

    node: Name
    epoch: Natural


class BeginLeave(msgspec.Struct, frozen=True, tag="leave", array_like=True, kw_only=True):
    """Move the leaderships of a node that wants to stop."""

    node: Name
    epoch: Natural


class FinishLeave(msgspec.Struct, frozen=True, tag="left", array_like=True, kw_only=True):
    """Let such a node go, out of everything in sync."""

    node: Name
    epoch: Natural


class RetireNode(msgspec.Struct, frozen=True, tag="retire", array_like=True, kw_only=True):
    """Begin to remove a node for good, or let it stay after all."""

    node: Name
    move_replicas: bool = False
    """Whether what it holds shall be moved to other nodes; otherwise it must hold nothing."""
    is_cancelled: bool = False


class ForgetNode(msgspec.Struct, frozen=True, tag="forget", array_like=True, kw_only=True):
    """Remove a node that holds no replica."""

    node: Name


class CreateTopic(msgspec.Struct, frozen=True, tag="create", array_like=True, kw_only=True):
    """Make a topic and place its partitions, or have them where ``assignments`` say."""

    name: Name
    partitions: Number
    settings: Settings = {}
    assignments: Assignments = {}
    by_broker: bool = False


class ConfigureTopic(msgspec.Struct, frozen=True, tag="configure", array_like=True, kw_only=True):
    """Change settings of a topic."""

    name: Name
    settings: Settings


class DeleteTopic(msgspec.Struct, frozen=True, tag="delete", array_like=True, kw_only=True):
    """Remove a topic from every node."""

    name: Name


class AddPartitions(msgspec.Struct, frozen=True, tag="scale", array_like=True, kw_only=True):
    """Give a topic more partitions; ``count`` is the new total."""

    name: Name
    count: Number
    assignments: Assignments = {}


class FinishScaling(msgspec.Struct, frozen=True, tag="scaled", array_like=True, kw_only=True):
    """Say where the old partitions of a topic ended when the new ones were used."""

    name: Name
    topic_id: Natural
    ends: Ends


class InSyncMember(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A replica in sync, in the life in which the leader saw it."""

    node: Name
    epoch: Natural


class PartIsr(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The set of replicas in sync that a leader wants for one partition."""

    topic_id: Natural
    partition: Number
    leader_epoch: Natural
    partition_epoch: Natural
    isr: Annotated[list[InSyncMember], msgspec.Meta(max_length=2 * REPLICAS_MAX)]


class AlterPartitions(msgspec.Struct, frozen=True, tag="isr", array_like=True, kw_only=True):
    """Change sets of replicas in sync; asked by their leader."""

    node: Name
    epoch: Natural
    parts: Annotated[list[PartIsr], msgspec.Meta(max_length=ALTERED_PARTITIONS_MAX)]


class PartName(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One partition."""

    topic: Name
    partition: Number


class ElectLeaders(msgspec.Struct, frozen=True, tag="elect", array_like=True, kw_only=True):
    """Elect leaders of some partitions: any where there is none, or the preferred ones."""

    parts: Annotated[list[PartName], msgspec.Meta(max_length=ALTERED_PARTITIONS_MAX)]
    kind: Literal["any", "preferred"] = "any"
    allow_unclean: bool = False


class BalanceLeaders(msgspec.Struct, frozen=True, tag="balance", array_like=True, kw_only=True):
    """Elect preferred leaders everywhere if more than a share of them do not lead."""

    off_percent_max: Annotated[int, msgspec.Meta(ge=0, le=100)] = 10


class MendLeaders(msgspec.Struct, frozen=True, tag="mend", array_like=True, kw_only=True):
    """Finish what an earlier controller began: elect where a node may lead and none does."""


class AllocateIds(msgspec.Struct, frozen=True, tag="ids", array_like=True, kw_only=True):
    """Give out a block of ids above some that are in use already."""

    kind: Name
    owner: Annotated[int, msgspec.Meta(ge=0, lt=ID_OWNERS_MAX)] = 0
    above: Natural = 0


class PartMove(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Where the replicas of one partition shall be; ``old`` must be where they are, if given."""

    topic: Name
    partition: Number
    new: Nodes
    old: Nodes = []


class StartReassignment(msgspec.Struct, frozen=True, tag="move", array_like=True, kw_only=True):
    """Move replicas of some partitions."""

    parts: Annotated[list[PartMove], msgspec.Meta(min_length=1, max_length=MOVES_MAX)]
    throttle_bytes: Annotated[int, msgspec.Meta(ge=1, lt=2**62)] = THROTTLE_BYTES
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=MOVE_TIMEOUT_MS_MAX)] = MOVE_TIMEOUT_MS
    moves_per_node: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = MOVES_PER_NODE


class AdvanceMoves(msgspec.Struct, frozen=True, tag="advance", array_like=True, kw_only=True):
    """Begin moves that wait for their turn, and end those that took too long."""

    moves_per_node: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = MOVES_PER_NODE


class PauseReassignment(msgspec.Struct, frozen=True, tag="pause", array_like=True, kw_only=True):
    """Begin no more moves of a reassignment, and copy nothing for those that began."""

    id: Name


class ResumeReassignment(msgspec.Struct, frozen=True, tag="resume", array_like=True, kw_only=True):
    """Go on with a reassignment."""

    id: Name


class CancelReassignment(msgspec.Struct, frozen=True, tag="cancel", array_like=True, kw_only=True):
    """Take back what a reassignment has not finished."""

    id: Name


class ChangeSecurity(msgspec.Struct, frozen=True, tag="security", array_like=True, kw_only=True):
    """Change keys or access rules."""

    command: SecurityCommand


Command = (
    FoundCluster
    | RaiseFeatureLevel
    | RegisterNode
    | UnfenceNode
    | FenceNode
    | BeginLeave
    | FinishLeave
    | RetireNode
    | ForgetNode
    | CreateTopic
    | ConfigureTopic
    | DeleteTopic
    | AddPartitions
    | FinishScaling
    | AlterPartitions
    | ElectLeaders
    | BalanceLeaders
    | MendLeaders
    | AllocateIds
    | StartReassignment
    | AdvanceMoves
    | PauseReassignment
    | ResumeReassignment
    | CancelReassignment
    | ChangeSecurity
)


class Proposal(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A command and the id of its request: a repeat gets the first answer. Empty: none is kept."""

    command: Command
    request_id: Annotated[str, msgspec.Meta(max_length=REQUEST_ID_CHARACTERS_MAX)] = ""


encode_proposal: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Proposal).decode


def decode_proposal(data: bytes) -> Proposal:
    """Read a proposal, or raise: the bytes come from outside."""
    if len(data) > REQUEST_HEADER_BYTES_MAX:
        raise TooLargeError(
            f"a proposal of {len(data)} bytes; the limit is {REQUEST_HEADER_BYTES_MAX}"
        )
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"no proposal: {error}") from error
