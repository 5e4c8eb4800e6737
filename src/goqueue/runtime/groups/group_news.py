"""What changed in a group, for those who hold something on behalf of its members."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from goqueue.base.ids import GroupId, MemberId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNews:
    """What changed in a group, for those who hold something on behalf of its members."""

    group: GroupId
    gone: Mapping[MemberId, str]
    """Members that are gone, and why: ``left``, ``expired`` or ``disconnected``."""
    lost: Mapping[MemberId, frozenset[TopicPartition]] = field(default_factory=dict)
    """What members that are still there do not own any more."""
    is_deleted: bool = False


Watcher = Callable[[GroupNews], None]
