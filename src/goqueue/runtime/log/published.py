"""What became of messages that reached a log."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from goqueue.base.ids import Offset, PartitionId
from goqueue.base.units import NS_PER_US
from goqueue.core.record.check import CheckedFrame
from goqueue.core.record.stamp import Repeat
from goqueue.runtime.tracing.partition_trace import PartitionTrace, Traced


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """Where messages went. ``repeats`` names those that were left out, and their originals."""

    partition: PartitionId
    base_offset: Offset
    is_duplicate: bool = False
    repeats: tuple[Repeat, ...] = ()
    misfits: Mapping[int, str] = {}
    """Why messages were refused, by row; their repeats have no offset."""
    conflicts: frozenset[int] = frozenset()
    """Those of them that were refused because their name is taken."""
    written: Sequence[CheckedFrame] = ()
    """What of them is in the log now, and was not before."""
    replicas: int = 1
    """How many nodes had them when they were acknowledged."""
    traced: Traced | None = None
    """Those of them whose traces are noted once they are acknowledged."""

    def with_conflicts(self, rows: Iterable[int]) -> "Published":
        """Return the same, with rows that were refused because their name is taken."""
        return msgspec.structs.replace(self, conflicts=frozenset(rows))


class Reach:
    """How many nodes have all messages of a request, as its parts are acknowledged."""

    __slots__ = ("_least",)

    def __init__(self) -> None:
        self._least = 0

    def note(self, published: Published) -> None:
        """Take what became of one part."""
        self._least = min(self._least or published.replicas, published.replicas)

    @property
    def replicas(self) -> int:
        """The least of all parts; one where nothing was taken."""
        return self._least or 1


def trace_published(
    trace: PartitionTrace | None, published: Published, received_us: int, durability: str
) -> None:
    """Note traced messages that were acknowledged."""
    if trace is not None and published.traced is not None:
        received_ns = received_us * NS_PER_US
        trace.published(published.traced, received_ns=received_ns, durability=durability)
