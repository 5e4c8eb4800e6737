"""What the node with a job on dead letters asks the leaders of the partitions they are in.

Shape: codec. These requests may be repeated: a step looks at what is still there, so messages
that went back in a step whose reply was lost do not go again. Sampled letters follow as row frames
in the payload, in the order of ``sizes``.
"""

from typing import Annotated, Literal

import msgspec

from goqueue.base.limits import MOVE_MESSAGES_MAX
from goqueue.core.dlq.redrive import Order
from goqueue.wire.calls import Call, Name, Natural, Number

SAMPLE_LETTERS = 10
"""Dead letters that a trial shows."""


class ShelfAsk(Call, frozen=True):
    """Count, try or work on the dead letters of one partition."""

    verb: Literal["left", "count", "trial", "step"]
    topic: Name
    partition: Number
    life: Natural
    """When the topic was made: one of the same name that was made later is another."""
    epoch: Natural = 0
    """In which epoch the asking node decides about the job; earlier ones are refused then."""
    job: Natural = 0
    order: Order | None = None
    """What the job does; of the places it names, those of this partition."""
    start: Natural = 0
    end: Natural = 0
    """Which offsets a step may look at, half-open."""
    allowed: Annotated[int, msgspec.Meta(ge=0, le=MOVE_MESSAGES_MAX)] = 0
    """How many messages may go in this step."""


class ShelfTold(Call, frozen=True):
    """How a partition's dead letters stand, and what became of a step or would of a job."""

    end_offset: int = 0
    depth: int = 0
    redriven: int = 0
    """How many ever went back from this partition."""
    purged: int = 0
    next_offset: int = 0
    taken: int = 0
    unmatched: int = 0
    skipped: int = 0
    is_paced: bool = False
    """Whether the step ended because no more messages were allowed."""
    is_over: bool = False
    """Whether nothing is left before the end."""
    is_cut: bool = False
    sizes: list[int] = msgspec.field(default_factory=list)
