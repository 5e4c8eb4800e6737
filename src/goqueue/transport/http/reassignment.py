"""Moves of replicas over HTTP."""

from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.deeds import Deed
from goqueue.service.service import Service
from goqueue.transport.http.call import Call, decode
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import Response, json_reply
from goqueue.wire.calls import Nothing, TopicCall
from goqueue.wire.http.moving import (
    MovesPlan,
    PlanRequest,
    ReassignmentList,
    ReassignmentStarted,
    ReassignmentStatus,
    ReassignmentTurned,
    StartRequest,
)

TAG: Final = "admin"
_PLAN: Final = msgspec.json.Decoder(PlanRequest)
_START: Final = msgspec.json.Decoder(StartRequest)


class ReassignmentRoutes:
    """Plans, begins, shows, pauses and takes back moves of replicas."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._moves = service.reassignment

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with moves."""
        bad, absent, large = (
            HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )  # fmt: skip
        taken, alone = HTTPStatus.CONFLICT, HTTPStatus.NOT_IMPLEMENTED
        every, one = "/admin/reassignment", "/admin/reassignment/{id}"
        look, change = Deed.DESCRIBE_MOVES, Deed.START_MOVES
        return (
            Operation(
                method="POST", path=f"{every}/plan", answer=self.plan, tag=TAG, deed=look,
                body=PlanRequest, is_body_optional=True, reply=MovesPlan,
                errors=(bad, absent, large, alone),
            ),
            Operation(
                method="POST", path=every, answer=self.start, tag=TAG, deed=change,
                body=StartRequest, reply=ReassignmentStarted, status=HTTPStatus.ACCEPTED,
                errors=(bad, absent, taken, large, alone),
            ),
            Operation(
                method="GET", path=every, answer=self.list_all, tag=TAG, deed=look,
                reply=ReassignmentList, errors=(alone,),
            ),
            Operation(
                method="GET", path=one, answer=self.describe, tag=TAG, deed=look,
                reply=ReassignmentStatus, errors=(absent, alone),
            ),
            Operation(
                method="DELETE", path=one, answer=self.cancel, tag=TAG, deed=change,
                reply=ReassignmentTurned, errors=(bad, absent, alone),
            ),
            Operation(
                method="POST", path=f"{one}/pause", answer=self.pause, tag=TAG, deed=change,
                reply=ReassignmentTurned, errors=(bad, absent, alone),
            ),
            Operation(
                method="POST", path=f"{one}/resume", answer=self.resume, tag=TAG, deed=change,
                reply=ReassignmentTurned, errors=(bad, absent, alone),
            ),
        )  # fmt: skip

    async def plan(self, call: Call) -> Response:
        """Return the moves that would empty the nodes in ``drain``, or even out all nodes.

        Nothing is moved. The ``partitions`` of the answer can be given to ``POST
        /admin/reassignment`` as they are.
        """
        body = await call.raw_body(self._service.config.http_body_bytes_max)
        wanted = decode(_PLAN, body) if body else PlanRequest()
        return json_reply(await self._moves.plan(call.grant, wanted))

    async def start(self, call: Call) -> Response:
        """Begin to move replicas: each partition gets its new replicas beside the old ones.

        The old ones go when all new ones are in sync. ``throttle_bytes_per_sec`` is what a node
        sends or receives at most for this; members that are in sync are not held up by it.
        """
        wanted = await call.body(_START, bytes_max=self._service.config.http_body_bytes_max)
        started = await self._moves.start(call.grant, wanted)
        return json_reply(started, HTTPStatus.ACCEPTED)

    async def list_all(self, call: Call) -> Response:
        """Return all reassignments that are remembered."""
        return json_reply(await self._moves.list_all(call.grant, Nothing()))

    async def describe(self, call: Call) -> Response:
        """Return a reassignment, with how far its partitions are by what their leaders say."""
        return json_reply(await self._moves.describe(call.grant, TopicCall(call.path["id"])))

    async def cancel(self, call: Call) -> Response:
        """Take back what is not finished: these partitions have their old replicas again."""
        return json_reply(await self._moves.cancel(call.grant, TopicCall(call.path["id"])))

    async def pause(self, call: Call) -> Response:
        """Copy nothing more of a reassignment until it is resumed."""
        return json_reply(await self._moves.pause(call.grant, TopicCall(call.path["id"])))

    async def resume(self, call: Call) -> Response:
        """Go on with a reassignment that was paused."""
        return json_reply(await self._moves.resume(call.grant, TopicCall(call.path["id"])))
