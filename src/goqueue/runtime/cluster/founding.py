"""How a node with an empty disk finds out what it is: a founder, or one that was here before.

Each node asks all others until it knows. A cluster is founded by the nodes that all settings name,
when each has heard of all others and none of them knows of a cluster. From then on the founders'
*directories* are known: a node whose directory is among them and whose journal of the quorum is
empty has promised nothing yet, and founds. A node whose name is among them with another directory
lost its disk, with votes and entries it may have confirmed: it asks the controller to be taken in
again, and takes part in another life (ADR 0054). So no order of starts, and no crash during the
first one, makes two clusters of one, or lets a vote be given twice.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from goqueue.base.errors import GoQueueError, NodeRefusedError
from goqueue.base.ids import NodeId
from goqueue.core.cluster.commands import Proposal, RegisterNode
from goqueue.core.cluster.node_verbs import REMOVED
from goqueue.core.raft.messages import PeerId
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.address_book import AddressBook
from goqueue.runtime.cluster.admission import check_not_removed
from goqueue.runtime.cluster.identity import Identity
from goqueue.runtime.cluster.links import Links, PeerReply
from goqueue.runtime.cluster.metadata import Metadata
from goqueue.runtime.cluster.node_config import NodeConfig
from goqueue.runtime.cluster.proposing import TRY_AGAIN, ask, reply_in
from goqueue.wire.complaint import decode_peer
from goqueue.wire.control_calls import Introduction
from goqueue.wire.packet import Buffer
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation

ASK_SECONDS: Final = 0.1
"""Time between two rounds of questions."""
ANSWER_SECONDS: Final = 2.0
CLUSTER_ID_CHARACTERS: Final = 24

log = get_logger("goqueue.cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a node with an empty journal of the quorum is."""

    cluster_id: str
    founders: Mapping[str, str]
    members: Mapping[str, int]
    is_new: bool
    """Whether it was never a member: it joins."""
    is_founder: bool
    """Whether it has promised nothing yet; otherwise it lost what it had promised."""


def cluster_id_of(founders: Mapping[str, str]) -> str:
    """Return the id of the cluster that these directories found."""
    text = "\n".join(f"{node} {directory}" for node, directory in sorted(founders.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:CLUSTER_ID_CHARACTERS]


class Founding:
    """Introduces this node to others, and finds out what it is."""

    def __init__(
        self,
        config: NodeConfig,
        identity: Identity,
        links: Links,
        metadata: Metadata,
        book: AddressBook,
    ) -> None:
        self._config = config
        self._identity = identity
        self._links = links
        self._metadata = metadata
        self._book = book
        self._heard: dict[NodeId, str] = {}
        """The directories of peers that know of no cluster."""
        self._meetings: dict[asyncio.Task[None], None] = {}
        self.controller: NodeId | None = None
        """The node that decides, as far as this one knows."""

    @property
    def own(self) -> Introduction:
        """What this node says of itself."""
        identity = self._identity
        members = self._metadata.members or identity.members
        return Introduction(
            peers=list(self._config.founders),
            directory=identity.directory,
            cluster_id=identity.cluster_id,
            founders=dict(identity.founders),
            members={str(node): int(peer) for node, peer in members.items()},
            controller=self.controller or "",
            addresses=self._book.known,
            version=self._metadata.image.version,
        )

    def answer(self, peer: PeerIdentity, header: Buffer) -> PeerReply:
        """Answer a node that introduces itself."""
        check_not_removed(peer, self._metadata)
        said = decode_peer(header, Introduction)
        self._check(peer.node, said)
        self._learn(said)
        return PeerReply(self.own)

    def _learn(self, said: Introduction) -> None:
        """Take over what a node knows that has applied more: who takes part, and where."""
        if said.cluster_id and said.cluster_id == self._identity.cluster_id:
            numbers = {NodeId(node): PeerId(peer) for node, peer in said.members.items() if peer}
            if said.version > self._metadata.image.version:
                self._metadata.expect(numbers)
        if self._book.hear(said):
            self._links.dial(self._book.to_dial)

    def _check(self, node: NodeId, said: Introduction) -> None:
        """Refuse a node whose settings name other nodes: it would count other majorities."""
        own = self._config.founders
        is_founded = bool(said.founders or self._identity.founders)
        if not is_founded and sorted(said.peers) != own:
            raise NodeRefusedError(
                f"cluster.peers differ: the node {node} names {', '.join(sorted(said.peers))};"
                f" the node {self._config.node} names {', '.join(own)}"
            )

    # The node with an empty disk.

    async def find(self) -> Origin:
        """Return what this node is, as soon as that is sure."""
        log.info(LogEvent.BOOTSTRAP_STARTED, node=self._config.node, peers=len(self._config.peers))
        while True:
            known = await self._ask_all()
            if known is not None:
                return self._origin(known)
            if self._heard.keys() >= self._config.peers.keys():
                return self._found()
            await asyncio.sleep(ASK_SECONDS)

    async def _ask_all(self) -> Introduction | None:
        """Ask every peer once; return what one said that knows of a cluster."""
        answers = await asyncio.gather(*(self._ask(peer) for peer in self._book.to_dial))
        known = [one for one in answers if one is not None and one.founders]
        return max(known, key=lambda one: one.version, default=None)

    async def _ask(self, node: NodeId) -> Introduction | None:
        try:
            packet = await self._links.request(
                node, PeerOperation.INTRODUCE, self.own, timeout_s=ANSWER_SECONDS
            )
        except NodeRefusedError:
            raise
        except GoQueueError:
            self._heard.pop(node, None)
            return None
        said = decode_peer(packet.header, Introduction)
        self._check(node, said)
        self._learn(said)
        if said.controller:
            self.controller = NodeId(said.controller)
        if not said.founders:
            self._heard[node] = said.directory
        return said

    def _found(self) -> Origin:
        founders = {str(node): directory for node, directory in self._heard.items()}
        founders[self._config.node] = self._identity.directory
        numbers = {str(node): int(peer) for node, peer in self._config.numbers.items()}
        return Origin(
            cluster_id=cluster_id_of(founders),
            founders=founders,
            members=numbers,
            is_new=False,
            is_founder=True,
        )

    def _origin(self, known: Introduction) -> Origin:
        own = self._config.node
        is_founder = known.founders.get(own) == self._identity.directory
        return Origin(
            cluster_id=known.cluster_id,
            founders=known.founders,
            members=known.members,
            is_new=own not in known.members,
            is_founder=is_founder and own in known.members,
        )

    async def be_numbered(self) -> Mapping[str, int]:
        """Return the members of the quorum once this node, which joins, is one of them."""
        while True:
            known = await self._ask_all()
            if known is not None and self._config.node in known.members:
                return known.members
            await asyncio.sleep(ASK_SECONDS)

    def meet(self, node: NodeId) -> None:
        """Tell a node that was reached what this one knows, and hear what it knows."""
        task = asyncio.get_running_loop().create_task(self._meet(node))
        self._meetings[task] = None
        task.add_done_callback(self._meetings.pop)

    async def _meet(self, node: NodeId) -> None:
        with contextlib.suppress(GoQueueError):
            await self._ask(node)

    async def ask_around(self) -> None:
        """Ask all nodes who the controller is; NodeRefusedError: this node was removed."""
        try:
            await self._ask_all()
        except NodeRefusedError as error:
            if REMOVED in error.message:
                raise

    async def stop(self) -> None:
        """Ask nothing any more."""
        meetings = list(self._meetings)
        for task in meetings:
            task.cancel()
        await asyncio.gather(*meetings, return_exceptions=True)

    async def be_taken_in(self, command: RegisterNode) -> None:
        """Have the controller register this node with its new directory, before it takes part.

        While another process is alive under the same name, this one is refused; it may be dead
        and not known to be, so that is asked for again until the failure detector must have seen.
        """
        loop = asyncio.get_running_loop()
        patience_s = 2 * self._config.timers.dead_ms / 1_000
        refused_since: float | None = None
        while True:
            await self._ask_all()
            try:
                if self.controller is not None:
                    proposal = Proposal(command=command)
                    answer = await ask(
                        self._links, self.controller, proposal, timeout_s=ANSWER_SECONDS
                    )
                    reply_in(answer)
                    return
            except NodeRefusedError as error:
                refused_since = refused_since or loop.time()
                if loop.time() - refused_since >= patience_s:
                    raise
                log.warning(LogEvent.NODE_WAITS, node=self._config.node, error=error.message)
                await asyncio.sleep(1)
            except TRY_AGAIN:
                pass
            await asyncio.sleep(ASK_SECONDS)
