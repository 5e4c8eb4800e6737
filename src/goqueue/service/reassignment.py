"""Moves of replicas between the nodes of a cluster, as people ask for them."""

from typing import TYPE_CHECKING

from goqueue.base.deeds import Deed
from goqueue.base.errors import UnsupportedError
from goqueue.service.verb import verb
from goqueue.wire.calls import Nothing, TopicCall
from goqueue.wire.http import moving as said

if TYPE_CHECKING:
    from goqueue.runtime.cluster.reassignments import Reassignments


class Reassignment:
    """What can be asked about moves of replicas; a broker by itself has none."""

    def __init__(self) -> None:
        self.moves: Reassignments | None = None
        """Set on a node of a cluster."""

    @property
    def _moves(self) -> "Reassignments":
        if self.moves is None:
            raise UnsupportedError("this broker is not a node of a cluster: replicas do not move")
        return self.moves

    @verb(Deed.DESCRIBE_MOVES)
    async def plan(self, call: said.PlanRequest) -> said.MovesPlan:
        """Return what would be moved; nothing is."""
        return await self._moves.plan(call)

    @verb(Deed.START_MOVES)
    async def start(self, call: said.StartRequest) -> said.ReassignmentStarted:
        """Begin to move replicas."""
        return await self._moves.start(call)

    @verb(Deed.DESCRIBE_MOVES)
    async def list_all(self, _: Nothing) -> said.ReassignmentList:
        """Return all reassignments that are remembered."""
        return await self._moves.list_all()

    @verb(Deed.DESCRIBE_MOVES)
    async def describe(self, call: TopicCall) -> said.ReassignmentStatus:
        """Return one, with how far it is."""
        return await self._moves.describe(call.name)

    @verb(Deed.START_MOVES)
    async def pause(self, call: TopicCall) -> said.ReassignmentTurned:
        """Copy nothing for a while."""
        return await self._moves.turn(call.name, "pause")

    @verb(Deed.START_MOVES)
    async def resume(self, call: TopicCall) -> said.ReassignmentTurned:
        """Go on."""
        return await self._moves.turn(call.name, "resume")

    @verb(Deed.START_MOVES)
    async def cancel(self, call: TopicCall) -> said.ReassignmentTurned:
        """Take back what is not finished."""
        return await self._moves.turn(call.name, "cancel")
