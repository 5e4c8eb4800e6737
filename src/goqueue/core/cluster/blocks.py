"""Blocks of ids, so that nodes give ids without asking each time.

Shape: decider. Blocks go round the owners: the number of a block, taken modulo the owners, names
the one it belongs to (``core/producers/id_blocks.py``). So any node finds the coordinator of a
producer by its id alone, and nothing is remembered but the next block of each owner.

    id = (ordinal * ID_OWNERS_MAX + owner) * ID_BLOCK + place + 1
"""

from goqueue.base.cluster_limits import ID_BLOCK, ID_KINDS_MAX, ID_OWNERS_MAX
from goqueue.base.errors import OverloadedError
from goqueue.base.names import check_name
from goqueue.core.cluster import commands, events
from goqueue.core.cluster.events import Event
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.replies import IdsReply
from goqueue.core.decision import Decision

ROUND = ID_BLOCK * ID_OWNERS_MAX
"""Ids of one block of every owner."""


def allocate(
    image: ClusterImage, command: commands.AllocateIds, _now_ms: int
) -> Decision[Event, IdsReply]:
    """Give out the next block of an owner that lies above all ids in use."""
    kind, owner = check_name(command.kind, field="kind"), command.owner
    known = {one for one, _ in image.ids}
    if kind not in known and len(known) >= ID_KINDS_MAX:
        raise OverloadedError(f"there are {ID_KINDS_MAX} kinds of ids")
    least = max(0, command.above - owner * ID_BLOCK + ROUND - 1) // ROUND
    ordinal = max(image.ids.get((kind, owner), 0), least)
    event = events.IdsAllocated(kind=kind, owner=owner, next_ordinal=ordinal + 1)
    first = (ordinal * ID_OWNERS_MAX + owner) * ID_BLOCK + 1
    return Decision((event,), IdsReply(first=first, count=ID_BLOCK))
