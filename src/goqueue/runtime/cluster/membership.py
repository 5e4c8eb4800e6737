"""This node as a member of its cluster: registered, heard of, and live only while that is sure."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from goqueue.base.errors import (
    DeadlineExceededError,
    GoQueueError,
    LeaderNotAvailableError,
    NodeFencedError,
    NodeNotFoundError,
    NodeRefusedError,
    StaleEpochError,
)
from goqueue.base.ids import NodeEpoch, NodeId
from goqueue.base.units import SECOND_MS
from goqueue.core.cluster.commands import BeginLeave, FinishLeave, RegisterNode
from goqueue.core.cluster.events import Event, NodeUnfenced
from goqueue.core.cluster.membership import NodeLease
from goqueue.core.cluster.replies import NodeReply
from goqueue.core.cluster.states import NodeStatus
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.cluster.consensus import Leading
from goqueue.runtime.cluster.controller import Controller
from goqueue.runtime.cluster.links import Links
from goqueue.runtime.cluster.metadata import Metadata
from goqueue.runtime.cluster.node_config import NodeConfig
from goqueue.runtime.cluster.proposing import Proposing
from goqueue.wire.complaint import decode_peer
from goqueue.wire.control_calls import NodeHeartbeat, NodeHeartbeatReply, NodeSight
from goqueue.wire.peer_calls import PeerOperation

REGISTER_SECONDS: Final = 5.0
"""How long one try to register lasts; there are as many as it takes."""
RETRY_SECONDS: Final = 0.1
"""Pause behind a heartbeat that was not answered, or until this node is no longer fenced."""
ANSWERS_PER_HEARTBEAT: Final = 3
"""An answer is waited for as long as this part of the time between two heartbeats."""
LEAVE_RETRY_SECONDS: Final = 0.05
ELECTIONS_WAITED: Final = 4
"""How many times the least time of an election a node that stops waits for a controller."""

log = get_logger("goqueue.cluster")


class NodeMembership:
    """Registers this node and keeps it heard of."""

    def __init__(
        self,
        config: NodeConfig,
        metadata: Metadata,
        proposing: Proposing,
        controller: Controller,
        links: Links,
        clock: Clock,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._proposing = proposing
        self._controller = controller
        self._links = links
        self._clock = clock
        self._lease = NodeLease(config.timers)
        self._refused: dict[NodeId, None] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_ready = False
        self.status = NodeStatus.FENCED
        """How the node stands, as the controller last said."""
        self.sights: list[NodeSight] = []
        """How the controller sees all nodes, as of the last heartbeat."""
        self.failure: GoQueueError | None = None
        """Why this process is not a member any more."""
        self.on_failure: Callable[[GoQueueError], None] = lambda _: None
        self.ask_around: Callable[[], Awaitable[None]] = _nothing
        """Asks other nodes for the controller; raises NodeRefusedError if this one was removed."""
        metadata.watch_leader(self._leader_changed)
        metadata.watch(self._image_changed)

    def __repr__(self) -> str:
        return f"<NodeMembership of {self._config.node}: {self.status}>"

    # Being a member.

    async def register(self, command: RegisterNode) -> NodeEpoch:
        """Have this process known to the cluster, however long that takes.

        NodeRefusedError ends it: the node cannot be a part of the cluster as it is.
        """
        while True:
            try:
                reply = await self._proposing.propose(command, timeout_s=REGISTER_SECONDS)
            except (DeadlineExceededError, LeaderNotAvailableError) as error:
                log.warning(LogEvent.NODE_WAITS, node=self._config.node, error=error.message)
                continue
            except GoQueueError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(RETRY_SECONDS)
                continue
            assert isinstance(reply, NodeReply), "the answer to a registration"
            self._metadata.node_epoch = reply.epoch
            log.info(LogEvent.CLUSTER_JOINED, node=self._config.node, epoch=reply.epoch)
            return reply.epoch

    def start(self) -> None:
        """Begin to be heard of."""
        self._task = asyncio.get_running_loop().create_task(self._beat())

    def set_ready(self, *, is_ready: bool) -> None:
        """Say whether this node wants to lead and be in sync."""
        self._is_ready = is_ready
        self._wake.set()

    def check_live(self) -> None:
        """Raise unless this node may answer for what it leads."""
        if not self._lease.is_held(self._clock.steady_ms()):
            raise NodeFencedError(
                f"the node {self._config.node} has not reached the controller for too long"
            )

    @property
    def is_live(self) -> bool:
        """Return True while this node may answer for what it leads."""
        return self._lease.is_held(self._clock.steady_ms())

    async def leave(self) -> None:
        """Give what this node leads to others, and be let go; give up after a while."""
        epoch = self._metadata.node_epoch
        if epoch is None or self.failure is not None:
            return
        self.set_ready(is_ready=False)
        node = self._config.node
        seconds = self._config.leave_ms / SECOND_MS
        try:
            async with asyncio.timeout(seconds):
                # Without a controller nothing can be handed over; an election is waited for.
                patience_s = min(seconds, ELECTIONS_WAITED * self._config.election_ms / SECOND_MS)
                await self._proposing.propose(
                    BeginLeave(node=node, epoch=epoch), timeout_s=patience_s
                )
                while True:
                    reply = await self._proposing.propose(
                        FinishLeave(node=node, epoch=epoch), timeout_s=seconds
                    )
                    if isinstance(reply, NodeReply) and reply.status is NodeStatus.FENCED:
                        break
                    await asyncio.sleep(LEAVE_RETRY_SECONDS)
        except (GoQueueError, TimeoutError) as error:
            log.warning(LogEvent.LEAVE_NOT_FINISHED, node=node, error=str(error) or "too slow")
        else:
            log.info(LogEvent.CLUSTER_LEFT, node=node)

    async def stop(self) -> None:
        """Be heard of no longer, and answer for nothing."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._lease.end()

    # What the links report.

    def peer_refused(self, node: NodeId) -> None:
        """Pass on that nothing listens at the address of a peer."""
        self._refused[node] = None
        self._wake.set()

    def peer_connected(self, node: NodeId) -> None:
        """Take back that a peer cannot be reached."""
        self._refused.pop(node, None)

    def _leader_changed(self, _: Leading) -> None:
        self._wake.set()

    def _image_changed(self, events: Sequence[Event] | None) -> None:
        """Ask at once how this node stands when one was unfenced: it may serve from then on."""
        if events is not None and any(isinstance(event, NodeUnfenced) for event in events):
            self._wake.set()

    # Heartbeats.

    async def _beat(self) -> None:
        while self.failure is None:
            self._wake.clear()
            refused, self._refused = list(self._refused), {}
            pause_s = self._config.timers.heartbeat_ms / SECOND_MS
            sent_ms = self._clock.steady_ms()
            try:
                reply = await self._say(refused)
            except (StaleEpochError, NodeNotFoundError, NodeRefusedError) as error:
                self.fail(error)
                return
            except GoQueueError:
                pause_s = min(pause_s, RETRY_SECONDS)
            else:
                self._take(reply, sent_ms)
                if reply.status is NodeStatus.FENCED and self._is_ready:
                    pause_s = min(pause_s, RETRY_SECONDS)
            await self._pause(pause_s)

    async def _say(self, refused: list[NodeId]) -> NodeHeartbeatReply:
        epoch = self._metadata.node_epoch
        assert epoch is not None, "registered"
        heartbeat = NodeHeartbeat(
            epoch,
            self._is_ready,
            [str(node) for node in refused],
            self._metadata.image.version,
        )
        if self._metadata.leading.is_own:
            return self._controller.hear(self._config.node, heartbeat)
        controller = self._metadata.controller
        if controller is None:
            await self.ask_around()
            raise LeaderNotAvailableError("no controller is known at present")
        packet = await self._links.request(
            controller,
            PeerOperation.NODE_HEARTBEAT,
            heartbeat,
            timeout_s=self._config.timers.heartbeat_ms / SECOND_MS / ANSWERS_PER_HEARTBEAT,
        )
        return decode_peer(packet.header, NodeHeartbeatReply)

    def _take(self, reply: NodeHeartbeatReply, sent_ms: int) -> None:
        self.status, self.sights = reply.status, reply.nodes
        if reply.status is NodeStatus.FENCED:
            self._lease.end()
        else:
            self._lease.renew(sent_ms=sent_ms)

    def fail(self, error: GoQueueError) -> None:
        """Be no member any more: this node was removed, or another process has its name."""
        if self.failure is not None:
            return
        self.failure = error
        self._lease.end()
        if isinstance(error, StaleEpochError):
            log.error(LogEvent.NODE_REPLACED, node=self._config.node, error=error.message)
        else:
            log.error(LogEvent.NODE_REMOVED, node=self._config.node, error=error.message)
        self.on_failure(error)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return


async def _nothing() -> None:
    """Ask no other node."""
