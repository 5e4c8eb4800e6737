"""How every node learns the schemas: the node that decides about them tells what happened.

Shape: codec. What happened since a node began to decide is numbered from 0, and begins with what
was there. The events are the payload of the reply, as one msgpack array.
"""

from typing import Annotated

import msgspec

from goqueue.base.limits import FETCH_WAIT_MS_MAX
from goqueue.wire.calls import Call, Name, Natural


class FollowSchemas(Call, frozen=True):
    """Ask for what happened behind a place; one of another history begins at its start."""

    history: Name
    number: Natural
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=FETCH_WAIT_MS_MAX)] = 0
    """How long to wait for news."""


class SchemaNews(Call, frozen=True):
    """The history, the number of the first event in the payload, and how many there are in all."""

    history: str
    number: int
    total: int
