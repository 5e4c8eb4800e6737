"""What happened to a group, as its journal keeps it. Short tags: they are written often."""

import msgspec

from goqueue.base.ids import Generation, MemberId, TopicName
from goqueue.core.groups.options import GroupOptions

Layout = dict[MemberId, dict[TopicName, list[int]]]
"""Partitions by member and topic, as they travel and rest."""


class Opened(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="o"):
    """The group came to be, or took new options while it was empty."""

    created_ms: int
    protocol: str
    assignor: str
    options: GroupOptions


class Joined(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="j"):
    """A member came, or changed the topics it subscribes to."""

    member_id: MemberId
    client_id: str
    topics: tuple[TopicName, ...]
    joined_ms: int
    generation: Generation
    """The first one this member may speak of."""


class Gone(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="g"):
    """Members are gone; what they owned is free."""

    members: dict[MemberId, str]
    """Why each is gone: ``left``, ``expired`` or ``disconnected``."""


class Counted(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="c"):
    """So many partitions the topics of the group have; partitions beyond are owned by nobody."""

    partitions: dict[TopicName, int]


class RebalanceBegun(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="b"):
    """A new generation began: who shall own what, and who owns what until then."""

    generation: Generation
    reason: str
    target: Layout
    owned: Layout | None = None
    """None where every member has its assignment at once."""


class Revoked(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="r"):
    """A member gave partitions up, or they were taken; those who waited for them have them."""

    member_id: MemberId
    partitions: dict[TopicName, list[int]]
    is_forced: bool = False


class RebalanceCompleted(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="d"):
    """Every member has its assignment."""

    generation: Generation


class Emptied(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="e"):
    """The last member is gone."""

    generation: Generation


class Deleted(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="x"):
    """The group is gone, with everything known of it."""


Event = (
    Opened
    | Joined
    | Gone
    | Counted
    | RebalanceBegun
    | Revoked
    | RebalanceCompleted
    | Emptied
    | Deleted
)
