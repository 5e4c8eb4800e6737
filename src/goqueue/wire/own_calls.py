"""What one broker appends to a partition that another one leads: dead letters, ticks of schedules.

Shape: codec. Every message has an identity (its origin), so that the same request may come twice:
what is there already is not appended again. Frames follow one another in the payload, one for each
origin. Without frames the request only looks; without origins it only asks for the end.
"""

from typing import Annotated, Final

import msgspec

from goqueue.base.limits import MOVE_MESSAGES_MAX
from goqueue.wire.calls import Call, Name, Natural, Number, Text

ORIGIN_BYTES: Final = 16
Origin = Annotated[bytes, msgspec.Meta(min_length=ORIGIN_BYTES, max_length=ORIGIN_BYTES)]
ABSENT: Final = -1


class OwnAppend(Call, frozen=True):
    """Append messages of a broker's own unless they are there, from an offset on."""

    topic: Name
    partition: Number
    life: Natural
    """When the topic was made: one of the same name that was made later is another."""
    source: Text
    """What the messages come from; the node that decides about it may change."""
    epoch: Natural
    """In which epoch the asking node decides about the source; earlier ones are refused then."""
    from_offset: Natural = 0
    origins: Annotated[list[Origin], msgspec.Meta(max_length=MOVE_MESSAGES_MAX)] = msgspec.field(
        default_factory=list
    )
    sizes: Annotated[list[Number], msgspec.Meta(max_length=MOVE_MESSAGES_MAX)] = msgspec.field(
        default_factory=list
    )
    """Bytes of the frame of each; none where nothing is to be appended."""


class OwnAppended(Call, frozen=True):
    """Where messages are, -1 for those that are not there, and what is committed up to where."""

    end_offset: int
    offsets: list[int] = msgspec.field(default_factory=list)
