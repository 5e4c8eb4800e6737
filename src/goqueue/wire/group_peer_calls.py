"""What nodes of a cluster say to each other about consumer groups.

Shape: codec. A leader of partitions that a group reads watches the group at its coordinator: it
names the last sight it had, and is answered when there is a newer one, or its time to wait is over.
With it goes which members the leader has heard of since it asked last.
"""

from typing import Annotated

import msgspec

from goqueue.base.limits import FETCH_WAIT_MS_MAX, GROUP_MEMBERS_MAX
from goqueue.core.groups.group_view import GroupSight, SightOf
from goqueue.wire.calls import Call, Name
from goqueue.wire.queue_calls import Member


class WatchGroup(Call, frozen=True):
    """Show a group, once it is another than the one last seen."""

    group: Name
    of: SightOf
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=FETCH_WAIT_MS_MAX)]
    heard: Annotated[list[Member], msgspec.Meta(max_length=GROUP_MEMBERS_MAX)]
    """Members that polled or settled at the node that asks."""


class GroupSeen(Call, frozen=True):
    """A group as it is; the same sight again if nothing happened meanwhile."""

    sight: GroupSight
