"""Moves of replicas as people ask for them: planned, begun, looked at, paused, taken back.

The controller decides all of it and the image keeps it, so any node answers, and another controller
goes on. How far copies are is asked of the leaders each time.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from goqueue.base.cluster_limits import (
    MOVE_TIMEOUT_MS,
    MOVES_MAX,
    MOVES_PER_NODE,
    THROTTLE_BYTES,
)
from goqueue.base.errors import InvalidRequestError
from goqueue.base.units import SECOND_MS
from goqueue.core.cluster import commands, rebalance
from goqueue.core.cluster.commands import Command
from goqueue.core.cluster.replies import ReassignmentReply
from goqueue.runtime.cluster.image_source import ImageSource, Propose
from goqueue.runtime.cluster.replica_reports import ReplicaReports
from goqueue.wire.http import moving as said
from goqueue.wire.http.reassignment import plan_of, reassignment_list, reassignment_status

TURNS: Final[Mapping[str, Callable[[str], Command]]] = {
    "pause": lambda name: commands.PauseReassignment(id=name),
    "resume": lambda name: commands.ResumeReassignment(id=name),
    "cancel": lambda name: commands.CancelReassignment(id=name),
}
"""What can be done to a reassignment that runs."""


class Reassignments:
    """Answers on any node of a cluster."""

    def __init__(self, source: ImageSource, propose: Propose, reports: ReplicaReports) -> None:
        self._source = source
        self._propose = propose
        self._reports = reports

    def __repr__(self) -> str:
        return f"<Reassignments: {len(self._source.image.moving)} partitions are moving>"

    async def plan(self, asked: said.PlanRequest) -> said.MovesPlan:
        """Return the moves that would empty some nodes, or even out all; nothing is moved."""
        image = self._source.image
        drained = [image.node(name).id for name in asked.drain]
        found = rebalance.plan(
            image,
            sizes=await self._reports.sizes(),
            drained=drained,
            throttle_bytes=asked.throttle_bytes_per_sec or THROTTLE_BYTES,
            moves_max=asked.moves_max or MOVES_MAX,
            is_even=asked.is_even and not drained,
        )
        return plan_of(found)

    async def start(self, asked: said.StartRequest) -> said.ReassignmentStarted:
        """Begin to move replicas."""
        if not asked.partitions:
            raise InvalidRequestError("partitions: name at least one")
        command = self._command(asked)
        reply = await self._propose(command)
        assert isinstance(reply, ReassignmentReply), "the answer to a reassignment"
        return said.ReassignmentStarted(
            reassignment_id=reply.id, message=f"{reply.moves} partitions are moving"
        )

    @staticmethod
    def _command(asked: said.StartRequest) -> Command:
        try:
            # What is out of bounds is refused here, by name, and not by the controller's decoder.
            return msgspec.convert(
                [
                    "move",
                    [
                        [one.topic, one.partition, one.new_replicas, one.old_replicas]
                        for one in asked.partitions
                    ],
                    asked.throttle_bytes_per_sec or THROTTLE_BYTES,
                    asked.timeout_per_partition_sec * SECOND_MS or MOVE_TIMEOUT_MS,
                    asked.moves_per_node or MOVES_PER_NODE,
                ],
                commands.StartReassignment,
            )
        except msgspec.ValidationError as error:
            raise InvalidRequestError(f"reassignment: {error}") from error

    async def turn(self, name: str, verb: str) -> said.ReassignmentTurned:
        """Pause, resume or cancel one."""
        reply = await self._propose(TURNS[verb](name))
        assert isinstance(reply, ReassignmentReply), "the answer to a reassignment"
        message = f"{verb}: {reply.moves} partitions are not over"
        if reply.refused:
            message = f"{verb}: {reply.refused} go on, because only new replicas have everything"
        return said.ReassignmentTurned(message=message)

    async def describe(self, name: str) -> said.ReassignmentStatus:
        """Return one, with how far it is."""
        self._source.image.reassignment(name)
        reports = await self._reports.progress()
        return reassignment_status(self._source.image, name, reports)

    async def list_all(self) -> said.ReassignmentList:
        """Return all that are remembered."""
        reports = await self._reports.progress()
        return reassignment_list(self._source.image, reports)
