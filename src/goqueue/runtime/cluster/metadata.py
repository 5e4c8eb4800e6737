"""The metadata of a cluster on one node: the image, applied entry by entry from the quorum.

Each entry says on which version of the image it was decided, and by which leadership. An entry that
was decided on anything but what is applied changes nothing, on all nodes alike: so whatever keeps
the order of entries, and however late one arrives, no decision meets an image it did not know.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Final

import msgspec

from goqueue.base.ids import NodeEpoch, NodeId
from goqueue.core.cluster.events import Event, NodeRegistered
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.raft.messages import PeerId
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.cluster.consensus import Leading

Watcher = Callable[[Sequence[Event] | None], None]
"""Hears the events of an entry in the step in which they were applied; None after a snapshot."""

Stamp = tuple[int, int]
"""A term, and the ordinal of a leadership in it; a later one is greater."""

NO_LEADER: Final = Leading(leader=None, term=0, is_own=False)

log = get_logger("goqueue.cluster")


class MetadataEntry(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One entry of the quorum's log."""

    term: int
    lead: int
    version: int
    """The image has this version before the entry, or the entry changes nothing."""
    events: list[Event]
    members: dict[str, Annotated[int, msgspec.Meta(ge=0)]] = {}
    """Numbers that nodes get in the quorum with this entry; 0: it has none any more."""


class MetadataSnapshot(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Everything that was applied. The founders begin with one without events."""

    founders: dict[str, str]
    members: dict[str, int]
    term: int = 0
    lead: int = 0
    events: list[Event] = []
    last_number: int = 0
    """The greatest number that was ever given; numbers are not given twice."""


encode_metadata: Final = msgspec.msgpack.Encoder().encode
_decode_entry: Final = msgspec.msgpack.Decoder(MetadataEntry).decode
decode_snapshot: Final = msgspec.msgpack.Decoder(MetadataSnapshot).decode


class Metadata:
    """What this node has applied; a ``StateMachine`` of the quorum."""

    def __init__(self, own: NodeId, clock: Clock) -> None:
        self.own = own
        self._clock = clock
        self.updated_ms = 0
        """When the image last changed here."""
        self.image = ClusterImage()
        self.founders: Mapping[str, str] = {}
        self.node_epoch: NodeEpoch | None = None
        """The registration of this process; None until it is registered."""
        self.leading = NO_LEADER
        self._members: dict[NodeId, PeerId] = {}
        self._nodes: dict[PeerId, NodeId] = {}
        self._last_number = 0
        self._expected: dict[PeerId, NodeId] = {}
        """Numbers that other nodes said, for as long as this one has not applied so much."""
        self._stamp: Stamp = (0, 0)
        self._watchers: list[Watcher] = []
        self._leader_watchers: list[Callable[[Leading], None]] = []
        self._waits: list[tuple[int, asyncio.Future[None]]] = []

    def __repr__(self) -> str:
        return f"<Metadata of {self.own}: {self.image!r}>"

    # Looking.

    @property
    def members(self) -> Mapping[NodeId, PeerId]:
        """The numbers of nodes in the quorum."""
        return self._members

    @property
    def next_number(self) -> int:
        """The number that the next node gets in the quorum."""
        return max(self._last_number, *self._members.values(), 0) + 1

    def node_of(self, peer: PeerId) -> NodeId | None:
        """Return the node that has a number in the quorum."""
        return self._nodes.get(peer) or self._expected.get(peer)

    @property
    def controller(self) -> NodeId | None:
        """The node that decides, as far as this one knows."""
        leader = self.leading.leader
        return None if leader is None else self.node_of(leader)

    def watch(self, watcher: Watcher) -> None:
        """Have a function called in each step in which the image changes."""
        self._watchers.append(watcher)

    def watch_leader(self, watcher: Callable[[Leading], None]) -> None:
        """Have a function called when another node leads the quorum, or none."""
        self._leader_watchers.append(watcher)

    async def applied(self, version: int) -> None:
        """Return when the image of this node has at least this version."""
        if self.image.version < version:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waits.append((version, future))
            await future

    def expect(self, members: Mapping[NodeId, PeerId]) -> None:
        """Know numbers of members before anything is applied, to be able to talk to them."""
        self._members = {**members, **self._members}
        self._expected.update({number: node for node, number in members.items()})

    # What the quorum calls.

    def apply(self, index: int, data: bytes) -> bool:
        """Apply one entry; return False if it was decided on another image than this one."""
        entry = _decode_entry(data)
        stamp = (entry.term, entry.lead)
        if stamp < self._stamp or entry.version != self.image.version:
            log.warning(LogEvent.ENTRY_PASSED_OVER, index=index, version=self.image.version)
            return False
        self._stamp = stamp
        for event in entry.events:
            self.image.apply(event)
        if entry.members:
            self._know({**self._members, **_typed(entry.members)})
        self._tell(entry.events)
        return True

    def snapshot(self) -> bytes:
        """Return everything that was applied."""
        term, lead = self._stamp
        return encode_metadata(
            MetadataSnapshot(
                founders=dict(self.founders),
                members={str(node): int(peer) for node, peer in self._members.items()},
                term=term,
                lead=lead,
                events=list(self.image.snapshot()),
                last_number=self.next_number - 1,
            )
        )

    def restore(self, data: bytes) -> None:
        """Replace everything by a snapshot; one without anything is of a node that joins."""
        image = ClusterImage()
        if data:
            with _uncollected():
                found = decode_snapshot(data)
                for event in found.events:
                    image.apply(event)
            self.founders = found.founders
            self._stamp = (found.term, found.lead)
            self._last_number = found.last_number
            self._know(_typed(found.members))
        self.image = image
        self._tell(None)

    def leadership_changed(self, leading: Leading) -> None:
        """Learn that another node leads, or none."""
        self.leading = leading
        for watcher in self._leader_watchers:
            watcher(leading)

    def _know(self, members: dict[NodeId, PeerId]) -> None:
        self._last_number = self.next_number - 1
        self._members = {node: number for node, number in members.items() if number}
        self._nodes = {number: node for node, number in self._members.items()}

    def _tell(self, events: Sequence[Event] | None) -> None:
        self.updated_ms = self._clock.now_ms()
        for watcher in self._watchers:
            watcher(events)
        if not self._waits:
            return
        version = self.image.version
        due = [future for wanted, future in self._waits if wanted <= version]
        self._waits = [one for one in self._waits if one[0] > version and not one[1].cancelled()]
        for future in due:
            if not future.done():
                future.set_result(None)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the collector from walking over a large image again and again while it is made."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _typed(members: Mapping[str, int]) -> dict[NodeId, PeerId]:
    return {NodeId(node): PeerId(number) for node, number in members.items()}


def copy_of(image: ClusterImage) -> ClusterImage:
    """Return an image that is equal, and changed by itself."""
    copied = ClusterImage()
    with _uncollected():
        for event in image.snapshot():
            copied.apply(event)
    return copied


def has_registered(events: Sequence[Event] | None, node: NodeId) -> bool:
    """Return True if a registration of the node may be among the events."""
    return events is None or any(
        isinstance(event, NodeRegistered) and event.node.id == node for event in events
    )
