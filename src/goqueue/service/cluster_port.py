"""What can be asked over HTTP on the port between nodes.

Looking is answered from the image of the node that was asked. What changes something is a proposal
to the controller, or refused with the reason: nobody posts state (trap C9).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from goqueue.base.errors import (
    ForbiddenError,
    InvalidRequestError,
    LeaderNotAvailableError,
    NodeRefusedError,
)
from goqueue.base.ids import NodeId
from goqueue.core.cluster.commands import ElectLeaders, PartName, RetireNode
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.replies import OK, Done, PartsReply
from goqueue.runtime.cluster.enrolment import check_removal
from goqueue.runtime.cluster.node import Node
from goqueue.runtime.cluster.reassignments import TURNS, Reassignments
from goqueue.wire.http import cluster as views
from goqueue.wire.http import cluster_port as port
from goqueue.wire.http.moving import PlanRequest, StartRequest

BODY_FAULTS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
MOVES_PATH: Final = "/cluster/reassignment"
INFO_PARTS: Final = 5
"""``cluster / partition / {topic} / {number} / info``."""

_BY_PACKETS: Final = "nodes say this to each other by packets, behind a keyed handshake"


class PortAnswer(NamedTuple):
    """A value to be written as JSON, and whether it is a refusal."""

    value: object
    status: int = 200


class ClusterPort:
    """Answers HTTP requests about the cluster."""

    def __init__(self, node: Node, *, is_guarded: bool = False) -> None:
        self._node = node
        self.is_guarded = is_guarded
        """Whether callers on this machine need the key, too: where its clients need keys."""
        self.local_replica: Callable[[str, int], views.LocalReplica | None] = lambda _, __: None
        """Returns how the replica of a partition on this node stands, if it has one."""
        self.moves: Reassignments | None = None
        """Moves replicas; set when the broker of this node is open."""
        self._looks: Mapping[str, Callable[[], object]] = {
            "/cluster/state": lambda: views.state_reply(self._image, self._sight),
            "/cluster/metadata": lambda: views.cluster_metadata(self._image, self._sight),
            "/cluster/health": lambda: views.cluster_health(self._image, self._sight),
        }
        self._posts: Mapping[str, tuple[type[Any], Callable[[Any], Awaitable[PortAnswer]]]] = {
            "/cluster/heartbeat": (port.HeartbeatBody, self._heartbeat),
            "/cluster/join": (port.JoinBody, self._join),
            "/cluster/leave": (port.LeaveBody, self._leave),
            "/cluster/remove": (port.RemoveBody, self._remove),
            "/cluster/vote": (port.VoteBody, self._vote),
            "/cluster/metadata": (port.MetadataBody, self._metadata),
            "/cluster/isr": (port.IsrBody, self._isr),
            "/cluster/leader-election": (port.ElectionBody, self._elect),
        }

    @property
    def key(self) -> bytes:
        """The key that callers must have, those on this machine only where it is guarded."""
        return self._node.config.key

    @property
    def node_id(self) -> str:
        """The name of this node."""
        return self._node.node

    def now_ms(self) -> int:
        """Return the time by which proofs are judged."""
        return self._node.clock.now_ms()

    async def answer(self, method: str, path: str, body: bytes) -> PortAnswer | None:
        """Answer a request, or raise a GoQueueError; None if there is no such route."""
        if path == MOVES_PATH or path.startswith(f"{MOVES_PATH}/"):
            return await self._move(method, path.removeprefix(MOVES_PATH).strip("/"), body)
        if method == "GET":
            return self._look(path)
        if method == "POST" and path in self._posts:
            kind, verb = self._posts[path]
            return await verb(_decoded(body, kind))
        return None

    async def _move(self, method: str, name: str, body: bytes) -> PortAnswer | None:
        """Answer what is asked of moves of replicas."""
        moves = self.moves
        if moves is None:
            raise LeaderNotAvailableError("this node is starting")
        name, _, verb = name.partition("/")
        match method, name, verb:
            case "GET", "", "":
                return PortAnswer(await moves.list_all())
            case "GET", _, "":
                return PortAnswer(await moves.describe(name))
            case "POST", "", "":
                return PortAnswer(await moves.start(_decoded(body, StartRequest)), 202)
            case "POST", "plan", "":
                return PortAnswer(await moves.plan(_decoded(body, PlanRequest)))
            case "POST", _, _ if verb in TURNS:
                return PortAnswer(await moves.turn(name, verb))
            case _:
                return None

    @property
    def _image(self) -> ClusterImage:
        return self._node.metadata.image

    @property
    def _sight(self) -> views.Sight:
        return self._node.sight()

    def _look(self, path: str) -> PortAnswer | None:
        look = self._looks.get(path)
        if look is not None:
            return PortAnswer(look())
        parts = path.strip("/").split("/")
        is_info = len(parts) == INFO_PARTS and (parts[0], parts[1], parts[4]) == (
            "cluster", "partition", "info",
        )  # fmt: skip
        if not is_info:
            return None
        if not (parts[3].isascii() and parts[3].isdigit() and len(parts[3]) < 10):  # noqa: PLR2004
            raise InvalidRequestError("partition: a number")
        number = int(parts[3])
        local = self.local_replica(parts[2], number)
        return PortAnswer(views.partition_state(self._image, parts[2], number, local))

    # What is asked for by others.

    async def _heartbeat(self, body: port.HeartbeatBody) -> PortAnswer:
        """Say what is known; a heartbeat counts only from the process that registered."""
        self._image.node(body.node_id)
        sight = self._sight
        return PortAnswer(
            port.HeartbeatAnswer(
                node_id=sight.own,
                version=self._image.version,
                controller_id=sight.controller or "",
                controller_epoch=sight.controller_epoch,
            )
        )

    async def _join(self, body: port.JoinBody) -> PortAnswer:
        sight = self._sight
        controller = self._image.nodes.get(sight.controller) if sight.controller else None
        is_member = NodeId(body.node_id) in self._image.nodes
        error = (
            ""
            if is_member
            else f"{body.node_id} joins by being started with some of the nodes in cluster.peers"
        )
        answer = port.JoinAnswer(
            success=is_member,
            controller_id=sight.controller or "",
            redirect_required=False,
            cluster_state=views.cluster_state(self._image, sight) if is_member else None,
            controller_addr=controller.addresses.cluster if controller is not None else "",
            error=error,
        )
        return PortAnswer(answer, 200 if is_member else 409)

    async def _leave(self, body: port.LeaveBody) -> PortAnswer:
        """Remove a node for good; one that is only to stop is stopped."""
        await self._retire(RetireNode(node=body.node_id, move_replicas=body.graceful))
        return PortAnswer(port.SuccessAnswer())

    async def _remove(self, body: port.RemoveBody) -> PortAnswer:
        held = await self._retire(
            RetireNode(
                node=body.node_id, move_replicas=body.move_replicas, is_cancelled=body.cancel
            )
        )
        return PortAnswer(port.RemoveAnswer(node_id=body.node_id, replicas=held))

    async def _retire(self, command: RetireNode) -> int:
        """Return how many partitions the node has replicas of."""
        node = NodeId(command.node)
        self._image.node(node)
        if not command.is_cancelled:
            check_removal(
                node,
                members=self._node.quorum.members,
                metadata=self._node.metadata,
                health=self._sight.health,
            )
        reply = await self._node.topology.propose(command)
        assert isinstance(reply, Done), "the answer to a removal"
        return reply.changed

    async def _vote(self, body: port.VoteBody) -> PortAnswer:
        raise ForbiddenError(f"a vote for {body.candidate_id} is not asked for here; {_BY_PACKETS}")

    async def _metadata(self, body: port.MetadataBody) -> PortAnswer:
        del body
        raise ForbiddenError("metadata is never set from outside; ask for what should change")

    async def _isr(self, body: port.IsrBody) -> PortAnswer:
        image = self._image
        image.partition(image.topic(body.topic), body.partition)
        raise ForbiddenError(
            f"only the leader of {body.topic}/{body.partition} changes its replicas in sync;"
            f" {_BY_PACKETS}"
        )

    async def _elect(self, body: port.ElectionBody) -> PortAnswer:
        image = self._image
        record = image.partition(image.topic(body.topic), body.partition)
        if body.preferred_leader and body.preferred_leader != record.replicas[0]:
            raise NodeRefusedError(
                f"preferred_leader: {body.topic}/{body.partition} has {record.replicas[0]};"
                " move replicas to change that"
            )
        reply = await self._node.topology.propose(
            ElectLeaders(
                parts=[PartName(topic=body.topic, partition=body.partition)],
                kind="preferred" if body.preferred_leader else "any",
                allow_unclean=body.allow_unclean,
            )
        )
        assert isinstance(reply, PartsReply), "the answer to an election"
        part = reply.parts[0]
        return PortAnswer(
            port.ElectionAnswer(
                new_leader=part.leader or "",
                new_epoch=part.leader_epoch,
                error_code="" if part.outcome == OK else part.outcome,
            ),
            200 if part.outcome == OK else 503,
        )


T = TypeVar("T")


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except BODY_FAULTS as error:
        raise InvalidRequestError(f"the body is not as it should be: {error}") from error
