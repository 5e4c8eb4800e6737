"""Nodes that join and nodes that are removed, as their controller sees to it.

What should be is in the image: a registered node takes part in the quorum, one that is being
removed loses its replicas, then its vote, then its place. Each look does what comes next, so
another controller goes on where this one stopped. ``core/cluster/voters`` decides who votes.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from goqueue.base.cluster_limits import MOVES_MAX
from goqueue.base.errors import GoQueueError, NotLeaderError, OperationActiveError
from goqueue.base.ids import NodeId
from goqueue.core.cluster.commands import ForgetNode, StartReassignment
from goqueue.core.cluster.membership import NodeHealth
from goqueue.core.cluster.rebalance import plan
from goqueue.core.cluster.records import NodeRecord
from goqueue.core.cluster.retirement import is_empty
from goqueue.core.cluster.voters import QuorumChange, QuorumStep, QuorumView, next_change
from goqueue.core.raft.messages import PeerId
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.consensus import Consensus, QuorumMembers
from goqueue.runtime.cluster.decisions import Decisions
from goqueue.runtime.cluster.metadata import Metadata

BEHIND_MAX: Final = 1_000
"""A node that lacks so many changes of the metadata at the most may get a vote."""

log = get_logger("goqueue.cluster")


class Enrolment:
    """Makes the members of the quorum those that the image says."""

    def __init__(self, metadata: Metadata, decisions: Decisions, consensus: Consensus) -> None:
        self._metadata = metadata
        self._decisions = decisions
        self._consensus = consensus
        self._failures: dict[str, None] = {}
        """What was last said in the log about removals that have to wait."""

    def __repr__(self) -> str:
        return f"<Enrolment: {self._consensus.members}>"

    async def look(
        self, health: Mapping[NodeId, NodeHealth], versions: Mapping[NodeId, int]
    ) -> None:
        """Do what comes next, given how nodes look and what they have applied."""
        steps = (self._number, self._empty, partial(self._change, health, versions), self._forget)
        refused: dict[str, None] = {}
        for step in steps:
            # One that has to wait, for a node to join perhaps, holds up no other.
            try:
                await step()
            except NotLeaderError:
                raise
            except GoQueueError as error:
                refused[error.message] = None
        for message in [one for one in refused if one not in self._failures]:
            kind = type(self).__name__
            log.warning(LogEvent.CONTROLLER_REFUSED, command=kind, error=message)
        self._failures = refused

    # Numbers in the quorum.

    async def _number(self) -> None:
        """Give registered nodes numbers, and take those of nodes that are out of the quorum."""
        metadata, members = self._metadata, self._consensus.members
        taking_part = {*members.voters, *members.learners}
        changed: dict[str, int] = {}
        for node in metadata.image.nodes.values():
            if node.id not in metadata.members and not node.is_retiring:
                changed[node.id] = metadata.next_number + len(changed)
        for node_id in self._gone():
            if metadata.members[node_id] not in taking_part:
                changed[node_id] = 0
        if changed:
            await self._decisions.add_members(changed)

    def _gone(self) -> list[NodeId]:
        """Return the nodes with a number that are to have none: they hold nothing any more."""
        image, members = self._metadata.image, self._metadata.members
        names = set(image.removed.values()) - image.nodes.keys()
        names.update(one.id for one in self._retiring() if is_empty(image, one.id))
        return sorted(names & members.keys())

    def _retiring(self) -> list[NodeRecord]:
        return [one for one in self._metadata.image.nodes.values() if one.is_retiring]

    # Replicas.

    async def _empty(self) -> None:
        """Have the replicas of nodes that are being removed moved to the others."""
        image = self._metadata.image
        retiring = {one.id for one in self._retiring()}
        if all(is_empty(image, one) for one in retiring):
            return
        found = plan(image, sizes={}, drained=retiring, moves_max=MOVES_MAX // 2, is_even=False)
        # What finds no room for now stays where it is, until a node joins or is back.
        parts = [one.command() for one in found.moves if not retiring & set(one.new)]
        if parts:
            log.info(LogEvent.NODE_RETIRING, nodes=sorted(retiring), partitions=len(parts))
            await self._decisions.command(StartReassignment(parts=parts))

    # Votes.

    async def _change(
        self, health: Mapping[NodeId, NodeHealth], versions: Mapping[NodeId, int]
    ) -> None:
        """Change one member of the quorum, if one should be."""
        change = next_change(self._view(health, versions))
        if change is None:
            return
        await self._carry_out(change)
        node = self._metadata.node_of(change.peer)
        if change.step is QuorumStep.ADD:
            log.info(LogEvent.QUORUM_JOINED, node=node)
            return
        voters = map(self._metadata.node_of, self._consensus.members.voters)
        step = change.step.value
        log.info(LogEvent.VOTERS_CHANGED, node=node, step=step, voters=sorted(filter(None, voters)))

    async def _carry_out(self, change: QuorumChange) -> None:
        match change.step:
            case QuorumStep.ADD | QuorumStep.DEMOTE:
                await self._consensus.add_learner(change.peer)
            case QuorumStep.PROMOTE:
                await self._consensus.promote(change.peer)
            case QuorumStep.REMOVE:
                await self._consensus.remove(change.peer)
            case QuorumStep.HAND_OVER:
                await self._consensus.transfer(change.peer)

    def _view(
        self, health: Mapping[NodeId, NodeHealth], versions: Mapping[NodeId, int]
    ) -> QuorumView:
        metadata, members = self._metadata, self._consensus.members
        own = metadata.members[metadata.own]
        numbers = metadata.members
        gone = frozenset(numbers[node] for node in self._gone())
        retiring = {one.id for one in self._retiring()}
        registered = metadata.image.nodes.keys() - retiring
        alive = {own} | {
            numbers[node]
            for node, one in health.items()
            if node in numbers and one is not NodeHealth.DEAD
        }
        least = metadata.image.version - BEHIND_MAX
        current = {
            numbers[node]
            for node, version in versions.items()
            if node in numbers and node not in retiring and version >= least
        }
        active = frozenset(members.active)
        return QuorumView(
            leader=own,
            voters=frozenset(members.voters),
            learners=frozenset(members.learners),
            wanted=frozenset(numbers[node] for node in registered if node in numbers),
            gone=gone,
            recovering=frozenset(members.recovering),
            active=active & _peers(alive),
            current=_peers(current & alive) & active,
            alive=_peers(alive),
            is_by_majority=members.is_by_majority,
        )

    # The end.

    async def _forget(self) -> None:
        """Forget nodes that hold nothing and have no number any more."""
        metadata = self._metadata
        for node in self._retiring():
            if node.id not in metadata.members and is_empty(metadata.image, node.id):
                await self._decisions.command(ForgetNode(node=node.id))
                log.info(LogEvent.NODE_FORGOTTEN, node=node.id)


def _peers(found: set[PeerId]) -> frozenset[PeerId]:
    return frozenset(found)


def check_removal(
    node: NodeId,
    *,
    members: QuorumMembers,
    metadata: Metadata,
    health: Mapping[NodeId, NodeHealth],
) -> None:
    """Raise if the voters that would be left could decide nothing, as far as is known here."""
    number = metadata.members.get(node)
    if number not in members.voters or not members.is_by_majority:
        return

    def is_alive(peer: PeerId) -> bool:
        name = metadata.node_of(peer)
        return name == metadata.own or (
            name is not None and health.get(name, NodeHealth.ALIVE) is not NodeHealth.DEAD
        )

    left = [peer for peer in members.voters if peer != number]
    # A learner that is alive gets a vote before this one is taken.
    left += [peer for peer in members.learners if is_alive(peer)][:1]
    alive = sum(map(is_alive, left))
    if alive <= len(left) // 2:
        raise OperationActiveError(
            f"without {node}, {alive} of {len(left)} voters are alive: nothing could be decided"
            " any more. Start the others, or let another node join first"
        )
