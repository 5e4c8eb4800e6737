"""Proof that the gate admitted a request."""

from dataclasses import dataclass
from typing import Final

from goqueue.base.caller import BROKER, Caller
from goqueue.base.deeds import Deed


@dataclass(frozen=True, slots=True)
class Grant:
    """What a caller may do. Only ``service/gate.py`` makes one for a request; a test checks it."""

    caller: Caller
    deed: Deed
    names: tuple[str, ...]
    """Resources of the deed's kind; empty where the request does not name one."""
    epoch: int
    """The gate's epoch when it was given; it is void in another one."""


BROKER_PUBLISHES: Final = Grant(BROKER, Deed.PUBLISH, (), 0)
"""For messages the broker writes itself, such as those that did not fit a schema."""

BROKER_READS: Final = Grant(BROKER, Deed.FETCH, (), 0)
"""For messages the broker reads itself, such as those that wait under a name."""
