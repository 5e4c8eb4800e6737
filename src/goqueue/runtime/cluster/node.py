"""A node of a cluster: its identity, its quorum, the metadata, and the broker's way to all of them.

The order of a start: the identity is read and counted, the port listens, ``start`` finds the
cluster and registers this process, the broker opens what the image says, ``serve`` lets the node be
given leaderships. A stop goes the other way round.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence

from goqueue.base.errors import (
    GoQueueError,
    LeaderNotAvailableError,
    NodeRefusedError,
    ProtocolError,
    StaleEpochError,
)
from goqueue.base.ids import NodeId
from goqueue.base.units import SECOND_MS
from goqueue.core.cluster.commands import RegisterNode
from goqueue.core.cluster.events import Event, NodeForgotten, NodeRegistered
from goqueue.core.cluster.node_verbs import REMOVED
from goqueue.core.raft.messages import PeerId
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.cluster.address_book import AddressBook
from goqueue.runtime.cluster.admission import OLD_COPY, Denials, check_peer
from goqueue.runtime.cluster.consensus import Consensus, ConsensusMaker, Leading
from goqueue.runtime.cluster.controller import Controller
from goqueue.runtime.cluster.decisions import Decisions
from goqueue.runtime.cluster.enrolment import Enrolment
from goqueue.runtime.cluster.founding import Founding
from goqueue.runtime.cluster.handover import hand_over
from goqueue.runtime.cluster.identity import Identity
from goqueue.runtime.cluster.joining import Joining
from goqueue.runtime.cluster.links import Handler, Links, PeerReply, Receiver
from goqueue.runtime.cluster.membership import NodeMembership
from goqueue.runtime.cluster.metadata import Metadata
from goqueue.runtime.cluster.node_config import TICK_MS, ListenerAddresses, NodeConfig
from goqueue.runtime.cluster.node_topology import NodeTopology
from goqueue.runtime.cluster.proposing import Proposing
from goqueue.runtime.cluster.quorum import Quorum, QuorumConfig
from goqueue.storage.disk import Disk
from goqueue.storage.raft_store import RaftStore
from goqueue.wire.http.cluster import Sight
from goqueue.wire.packet import Buffer
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation

log = get_logger("goqueue.cluster")


class Node:
    """One node. Its broker asks ``topology``, everything else asks the part it is about."""

    def __init__(
        self, config: NodeConfig, disk: Disk, clock: Clock, maker: ConsensusMaker | None = None
    ) -> None:
        self.config, self.clock = config, clock
        self._make_consensus = maker
        self.metadata = Metadata(config.node, clock)
        self._book = AddressBook(config.peers, self.metadata)
        self.addresses = ListenerAddresses()
        self._disk = disk
        self._links: Links | None = None
        self._identity: Identity | None = None
        self._founding: Founding | None = None
        self._quorum: Consensus | None = None
        self._proposing: Proposing | None = None
        self._controller: Controller | None = None
        self._membership: NodeMembership | None = None
        self.topology = NodeTopology(self.metadata, factor=config.replication_factor)
        """What the broker of this node asks about its cluster."""
        self._denials = Denials(
            founders=len(config.founders), patience_s=2 * config.timers.dead_ms / SECOND_MS
        )
        self._denied: asyncio.Future[None] | None = None
        self.metadata.watch_leader(self._leader_changed)
        self.metadata.watch(self._image_changed)
        self.on_removed: Callable[[GoQueueError], None] = lambda _: None
        """Told when this node was removed from its cluster."""

    def __repr__(self) -> str:
        return f"<Node {self.node}: {self.metadata.image!r}>"

    # Parts.

    @property
    def node(self) -> NodeId:
        """The name of this node."""
        return self.config.node

    @property
    def links(self) -> Links:
        """The connections to other nodes."""
        assert self._links is not None, "attached"
        return self._links

    @property
    def identity(self) -> Identity:
        """Who this node is."""
        assert self._identity is not None, "opened"
        return self._identity

    @property
    def founding(self) -> Founding:
        """What introduces this node to others."""
        assert self._founding is not None, "opened"
        return self._founding

    @property
    def membership(self) -> NodeMembership:
        """How this node stands in its cluster."""
        assert self._membership is not None, "started"
        return self._membership

    @property
    def proposing(self) -> Proposing:
        """The way to change the metadata."""
        assert self._proposing is not None, "started"
        return self._proposing

    @property
    def controller(self) -> Controller:
        """What this node does while it leads the quorum."""
        assert self._controller is not None, "started"
        return self._controller

    @property
    def quorum(self) -> Consensus:
        """The quorum that holds the metadata."""
        assert self._quorum is not None, "started"
        return self._quorum

    def handlers(self) -> Mapping[PeerOperation, Handler]:
        """Return what answers peers."""
        return {
            PeerOperation.INTRODUCE: self._answer_introduction,
            PeerOperation.PROPOSE: self._answer_proposal,
            PeerOperation.NODE_HEARTBEAT: self._answer_heartbeat,
        }

    def receivers(self) -> Mapping[PeerOperation, Receiver]:
        """Return what takes messages that are not answered."""
        return {PeerOperation.RAFT: self._receive_raft}

    # Life.

    def attach(self, links: Links) -> None:
        """Take the connections to other nodes; they ask this node back who it is."""
        self._links = links

    def open(self) -> None:
        """Take the data directory, and count this start in it, before anything is said."""
        self._disk.lock()
        self._identity = Identity(self._disk, self.node, boot_id=self.config.boot_id)
        self._founding = Founding(
            self.config, self._identity, self.links, self.metadata, self._book
        )

    async def start(self, addresses: ListenerAddresses) -> None:
        """Find the cluster, take part in its quorum, register; however long that takes."""
        self.addresses = addresses
        loop = asyncio.get_running_loop()
        self._denied = loop.create_future()
        starting = loop.create_task(self._start())
        try:
            await asyncio.wait((starting, self._denied), return_when=asyncio.FIRST_COMPLETED)
            await (starting if starting.done() else self._denied)
        except NodeRefusedError as error:
            if OLD_COPY in error.message or REMOVED in error.message:
                self.identity.refuse(error.message)
            raise
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            denied, self._denied = self._denied, None
            denied.cancel()

    async def _start(self) -> None:
        self.links.dial(self._book.to_dial)
        store = RaftStore(self._disk, life=self.clock.now_ms())
        try:
            was_known = bool(self.identity.cluster_id)
            joining = Joining(self.identity, self.founding, self.clock, self._registration)
            await joining.begin(store)
        except BaseException:
            store.close()
            raise
        self.metadata.expect(self.identity.members)
        if not was_known and not self._first_voters():
            # Others must know by which cluster's node they are dialled.
            self.links.dial({})
            self.links.dial(self._book.to_dial)
        self._build(store)
        await self.quorum.start()
        await self.membership.register(self._registration(self.identity.cluster_id))
        self.membership.start()

    def _consensus(self, store: RaftStore) -> Consensus:
        own = self.identity.members[self.node]
        if self._make_consensus is not None:
            store.close()
            return self._make_consensus(own, self._first_voters(), self.metadata)
        config = QuorumConfig(
            peer=own,
            tick_ms=TICK_MS,
            election_ticks=max(2, self.config.election_ms // TICK_MS),
            heartbeat_ticks=max(1, self.config.election_ms // TICK_MS // 4),
        )
        return Quorum(config, store, self.metadata, self._send_raft)

    def _first_voters(self) -> Sequence[PeerId]:
        """Return the founders' numbers, on a founder; a node that joined must begin no cluster."""
        founders = self.identity.founders
        is_founder = founders.get(self.node) == self.identity.directory
        return [PeerId(at) for at in range(1, len(founders) + 1)] if is_founder else []

    def _build(self, store: RaftStore) -> None:
        self._quorum = self._consensus(store)
        decisions = Decisions(self.metadata, self._quorum, self.clock)
        self._proposing = Proposing(self.metadata, decisions, self.links)
        self._controller = Controller(
            self.config,
            self.metadata,
            decisions,
            Enrolment(self.metadata, decisions, self._quorum),
            self.clock,
            cluster_id=lambda: self.identity.cluster_id,
        )
        self._membership = NodeMembership(
            self.config, self.metadata, self._proposing, self._controller, self.links, self.clock
        )
        self._membership.ask_around = self.founding.ask_around
        self._membership.on_failure = self._failed
        self.topology.attach(self._proposing, self._membership, self.links, self._quorum)

    def _registration(self, cluster_id: str) -> RegisterNode:
        return RegisterNode(
            cluster_id=cluster_id,
            node=self.node,
            directory=self.identity.directory,
            incarnation=self.identity.incarnation,
            native=self.addresses.native,
            http=self.addresses.http,
            cluster=self.addresses.cluster,
            rack=self.config.rack,
            version=self.config.version,
            is_clean=self.identity.was_clean,
            process=self.identity.process,
        )

    @property
    def is_live(self) -> bool:
        """Return True while this node may answer for what it leads."""
        return self._membership is not None and self._membership.is_live

    def sight(self) -> Sight:
        """Return what this node knows beside the image: who is heard of, and the controller."""
        now_ms = self.clock.now_ms()
        sights = [] if self._membership is None else self._membership.sights
        return Sight(
            own=self.node,
            controller=self.metadata.controller,
            controller_epoch=self.metadata.leading.term,
            updated_ms=self.metadata.updated_ms,
            health={NodeId(one.node): one.health for one in sights},
            heard_ms={NodeId(one.node): now_ms - one.silent_ms for one in sights},
            timers=self.config.timers,
            voters=self._names(is_voter=True),
            learners=self._names(is_voter=False),
        )

    def _names(self, *, is_voter: bool) -> list[NodeId]:
        if self._quorum is None:
            return []
        members = self._quorum.members
        found = map(self.metadata.node_of, members.voters if is_voter else members.learners)
        return [node for node in found if node is not None]

    def serve(self) -> None:
        """Let this node lead and be in sync: its broker has opened what the image says."""
        self.membership.set_ready(is_ready=True)

    async def leave(self) -> None:
        """Let others take over what this node leads, and the quorum, too."""
        if self._membership is None:
            return
        await self._membership.leave()
        if self.metadata.leading.is_own:
            await hand_over(self.quorum, self.metadata)

    async def stop(self) -> None:
        """Take part no longer. The broker is stopped next, then ``end_clean`` may be called."""
        if self._founding is not None:
            await self._founding.stop()
        if self._proposing is not None:
            self._proposing.stop()
        if self._membership is not None:
            await self._membership.stop()
        if self._controller is not None:
            await self._controller.stop()
        if self._quorum is not None:
            await self._quorum.stop()

    def end_clean(self) -> None:
        """Note on the disk that this node stopped with everything synced."""
        self.identity.end_clean()

    # What peers ask.

    async def _answer_introduction(
        self, peer: PeerIdentity, header: Buffer, _: memoryview
    ) -> PeerReply:
        return self.founding.answer(peer, header)

    async def _answer_proposal(self, _: PeerIdentity, __: Buffer, payload: memoryview) -> PeerReply:
        if self._proposing is None:
            raise LeaderNotAvailableError(f"the node {self.node} is starting")
        return await self._proposing.answer(payload)

    async def _answer_heartbeat(
        self, peer: PeerIdentity, header: Buffer, _: memoryview
    ) -> PeerReply:
        if self._controller is None:
            raise LeaderNotAvailableError(f"the node {self.node} is starting")
        return self._controller.answer(peer, header)

    # The quorum's messages.

    def _send_raft(self, peer: PeerId, raw: bytes) -> None:
        node = self.metadata.node_of(peer)
        if node is not None:
            self.links.cast(node, PeerOperation.RAFT, raw)

    def _receive_raft(self, peer: PeerIdentity, body: Buffer) -> None:
        quorum = self._quorum
        is_member = (
            peer.cluster_id == self.identity.cluster_id or peer.node in self.metadata.members
        )
        if not isinstance(quorum, Quorum) or not is_member:
            return
        try:
            quorum.receive(memoryview(body))
        except ProtocolError as error:
            log.warning(LogEvent.PEER_REFUSED, peer=peer.node_id, error=error.message)

    def _image_changed(self, events: Sequence[Event] | None) -> None:
        """Know the members over a restart, and dial those there are, when they changed."""
        if self._identity is None or not self._identity.cluster_id:
            return
        kinds = (NodeRegistered, NodeForgotten)
        if events and not any(isinstance(event, kinds) for event in events):
            return
        with contextlib.suppress(GoQueueError):  # the journal has them, too
            self._identity.know(self.metadata.members)
        self.links.dial(self._book.to_dial)

    def _failed(self, error: GoQueueError) -> None:
        """Be started no more if this node was removed."""
        if not isinstance(error, StaleEpochError):
            self.identity.refuse(f"the node {self.node} {REMOVED}")
            self.on_removed(error)

    def _leader_changed(self, _: Leading) -> None:
        if self._founding is not None:
            self._founding.controller = self.metadata.controller
        log.info(
            LogEvent.CONTROLLER_CHANGED,
            controller=self.metadata.controller,
            term=self.metadata.leading.term,
        )

    # What the port asks.

    def check_peer(self, peer: PeerIdentity) -> None:
        """Raise unless a node that knows the key may connect."""
        check_peer(peer, self.identity.peer, self.metadata, peers=self.config.peers)

    def peer_connected(self, peer: PeerIdentity) -> None:
        """Hear that a peer answered and proved who it is."""
        self._denials.accepted(peer.node)
        if self._membership is not None:
            self._membership.peer_connected(peer.node)
            self.founding.meet(peer.node)

    def peer_refused(self, node: NodeId) -> None:
        """Hear that nothing listens at the address of a peer."""
        if self._membership is not None:
            self._membership.peer_refused(node)

    def peer_denied(self, node: NodeId, error: GoQueueError, *, by_peer: bool) -> None:
        """Hear that a peer and this node do not go together."""
        now_s = asyncio.get_running_loop().time()
        is_final = self._denials.denied(node, error, by_peer=by_peer, now_s=now_s)
        if by_peer and REMOVED in error.message and self._membership is not None:
            self._membership.fail(error)
        if is_final and self._denied is not None and not self._denied.done():
            self._denied.set_exception(error)
