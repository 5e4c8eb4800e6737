"""The controller at work: on the node that leads the quorum, and nowhere else.

It founds the cluster, hears heartbeats, proposes to fence and unfence nodes, makes the internal
topics, and goes on with what an earlier controller began. All of it is decided by the verbs of
``core/cluster``; nothing here is remembered beyond a leadership.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from goqueue.base.errors import (
    GoQueueError,
    LeaderNotAvailableError,
    NotLeaderError,
    StaleEpochError,
)
from goqueue.base.ids import NodeEpoch, NodeId, TopicId
from goqueue.base.units import MINUTE_MS, SECOND_MS
from goqueue.core.cluster import commands
from goqueue.core.cluster.commands import Command
from goqueue.core.cluster.image import ClusterTopic
from goqueue.core.cluster.membership import FailureDetector, HealthChanged, NodeHealth
from goqueue.core.cluster.records import NodeRecord
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.cluster.consensus import Leading
from goqueue.runtime.cluster.decisions import Decisions
from goqueue.runtime.cluster.enrolment import Enrolment
from goqueue.runtime.cluster.internal_topics import missing_topics
from goqueue.runtime.cluster.links import PeerReply
from goqueue.runtime.cluster.metadata import Metadata
from goqueue.runtime.cluster.node_config import NodeConfig
from goqueue.wire.complaint import decode_peer
from goqueue.wire.control_calls import NodeHeartbeat, NodeHeartbeatReply, NodeSight
from goqueue.wire.packet import Buffer
from goqueue.wire.peer_calls import PeerIdentity

LOOKS_PER_HEARTBEAT: Final = 6
"""How often the failure detector is asked, while a node is heard of once."""
RETRY_SECONDS: Final = 0.1
BALANCE_MS: Final = 5 * MINUTE_MS
MOVES_MS: Final = SECOND_MS
TOPICS_WAIT_MS: Final = 10 * SECOND_MS
"""How long internal topics wait for all nodes, so that they have as many replicas as they may."""

FindEnds = Callable[[ClusterTopic], Awaitable[list[int]]]

log = get_logger("goqueue.cluster")


class _Reign:
    """What is known during one leadership."""

    def __init__(self, detector: FailureDetector, *, term: int, now_ms: int) -> None:
        self.detector = detector
        self.term = term
        self.began_ms = now_ms
        self.balanced_ms = now_ms
        self.moved_ms = now_ms
        self.versions: dict[NodeId, tuple[NodeEpoch, int]] = {}
        """The version of the metadata that each node has applied, and in which life it said so."""
        self.ready: dict[NodeId, NodeEpoch] = {}
        """Nodes that want to lead and be in sync, in the life in which they said so."""


class Controller:
    """Watches over the nodes while this one leads the quorum."""

    def __init__(
        self,
        config: NodeConfig,
        metadata: Metadata,
        decisions: Decisions,
        enrolment: Enrolment,
        clock: Clock,
        *,
        cluster_id: Callable[[], str],
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._decisions = decisions
        self._enrolment = enrolment
        self._clock = clock
        self._cluster_id = cluster_id
        self._reign: _Reign | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self.elections = 0
        """How often another node came to lead, as far as this one knows."""
        self.find_ends: FindEnds | None = None
        """Asks the leaders of a growing topic where its old partitions ended."""
        self._endings: dict[TopicId, asyncio.Task[None]] = {}
        metadata.watch_leader(self._leadership_changed)

    def __repr__(self) -> str:
        return f"<Controller at {self._config.node}: {self._metadata.leading}>"

    @property
    def health(self) -> Mapping[NodeId, NodeHealth]:
        """How the nodes look from here; empty where another node is the controller."""
        return {} if self._reign is None else self._reign.detector.health

    @property
    def age_ms(self) -> int | None:
        """For how long this node has been the controller; None while it is not."""
        reign = self._reign
        return None if reign is None else self._clock.steady_ms() - reign.began_ms

    async def stop(self) -> None:
        """End the leadership of this node, if it has one."""
        task, self._task, self._reign = self._task, None, None
        tasks = [*self._endings.values(), *(() if task is None else (task,))]
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Leadership.

    def _leadership_changed(self, leading: Leading) -> None:
        reign = self._reign
        if reign is not None and (not leading.is_own or leading.term != reign.term):
            log.info(LogEvent.CONTROLLER_LOST, node=self._config.node, term=reign.term)
        self._reign = None
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if leading.leader is not None:
            self.elections += 1
        if leading.is_own:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._lead(leading.term))
            self._task.add_done_callback(_ended)

    async def _lead(self, term: int) -> None:
        """Take over, then look after the cluster until another node leads."""
        while True:
            try:
                await self._take_over(term)
                while True:
                    await self._look_after(self._checked(term))
                    await self._pause()
            except NotLeaderError:
                if self._metadata.leading.term != term:
                    return
            except GoQueueError as error:
                log.warning(LogEvent.CONTROLLER_WAITS, node=self._config.node, error=error.message)
            await asyncio.sleep(RETRY_SECONDS)

    async def _take_over(self, term: int) -> None:
        """Found the cluster if need be, and finish what an earlier controller began."""
        if self._reign is not None:
            return
        await self._decisions.command(commands.FoundCluster(cluster_id=self._cluster_id()))
        await self._decisions.command(commands.MendLeaders())
        now_ms = self._clock.steady_ms()
        detector = FailureDetector(self._config.timers, own=self._config.node, now_ms=now_ms)
        detector.watch(self._metadata.image.nodes, now_ms=now_ms)
        self._reign = _Reign(detector, term=term, now_ms=now_ms)
        log.info(LogEvent.CONTROLLER_BEGAN, node=self._config.node, term=term)

    def _checked(self, term: int) -> _Reign:
        if self._reign is None or self._reign.term != term:
            raise NotLeaderError("another leadership began")
        return self._reign

    async def _pause(self) -> None:
        self._wake.clear()
        seconds = self._config.timers.heartbeat_ms / SECOND_MS / LOOKS_PER_HEARTBEAT
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    # Looking after the cluster.

    async def _look_after(self, reign: _Reign) -> None:
        now_ms = self._clock.steady_ms()
        image = self._metadata.image
        reign.detector.watch(image.nodes, now_ms=now_ms)
        reign.detector.tick(now_ms)
        for change in reign.detector.take_effects():
            _tell(change)
        for node in list(image.nodes.values()):
            command = self._due(reign, node)
            if command is not None:
                await self._try(command)
        await self._make_topics(reign, now_ms)
        self._end_scalings()
        await self._enrolment.look(reign.detector.health, self._versions(reign))
        if now_ms - reign.balanced_ms >= BALANCE_MS:
            reign.balanced_ms = now_ms
            await self._try(commands.BalanceLeaders())
        if now_ms - reign.moved_ms >= MOVES_MS:
            reign.moved_ms = now_ms
            if any(one.is_open for one in image.reassignments.values()):
                await self._try(commands.AdvanceMoves())

    def _versions(self, reign: _Reign) -> dict[NodeId, int]:
        """Return what each node has applied, as far as its present process said so."""
        nodes = self._metadata.image.nodes
        return {
            node: version
            for node, (epoch, version) in reign.versions.items()
            if node in nodes and nodes[node].epoch == epoch
        }

    def _due(self, reign: _Reign, node: NodeRecord) -> Command | None:
        """Return what should become of a node."""
        is_own = node.id == self._config.node
        health = NodeHealth.ALIVE if is_own else reign.detector.health.get(node.id)
        if health is NodeHealth.DEAD and not node.is_fenced:
            return commands.FenceNode(node=node.id, epoch=node.epoch)
        is_heard = health is NodeHealth.ALIVE and reign.ready.get(node.id) == node.epoch
        if node.is_fenced and is_heard:
            return commands.UnfenceNode(node=node.id, epoch=node.epoch)
        return None

    async def _make_topics(self, reign: _Reign, now_ms: int) -> None:
        """Make the topics that the brokers need, once all nodes are there or had time to come."""
        image = self._metadata.image
        alive = sum(node.may_lead for node in image.nodes.values())
        is_whole = alive >= len(self._metadata.members)
        if not alive or (not is_whole and now_ms - reign.began_ms < TOPICS_WAIT_MS):
            return
        for command in missing_topics(image, factor=self._config.replication_factor):
            await self._try(command)

    def _end_scalings(self) -> None:
        """Find out where the old partitions of growing topics ended; others go on meanwhile."""
        find_ends = self.find_ends
        if find_ends is None:
            return
        for topic in [one for one in self._metadata.image.topics.values() if one.is_scaling]:
            if topic.id not in self._endings:
                task = asyncio.get_running_loop().create_task(self._end_scaling(topic, find_ends))
                self._endings[topic.id] = task
                task.add_done_callback(partial(self._scaling_ended, topic.id))

    async def _end_scaling(self, topic: ClusterTopic, find_ends: FindEnds) -> None:
        try:
            ends = await find_ends(topic)
            command = commands.FinishScaling(name=topic.name, topic_id=topic.id, ends=ends)
            await self._decisions.command(command)
        except GoQueueError as error:
            # A leader has not opened the new partitions yet, or is gone. It is tried again.
            log.info(LogEvent.SCALING_WAITS, topic=topic.name, error=error.message)
            await asyncio.sleep(RETRY_SECONDS)

    def _scaling_ended(self, topic_id: TopicId, _: "asyncio.Task[None]") -> None:
        del self._endings[topic_id]
        self._wake.set()

    async def _try(self, command: Command) -> None:
        """Decide something; what a verb refuses is asked for again while it is due."""
        try:
            await self._decisions.command(command)
        except NotLeaderError:
            raise
        except GoQueueError as error:
            kind = type(command).__name__
            log.warning(LogEvent.CONTROLLER_REFUSED, command=kind, error=error.message)

    # Heartbeats.

    def answer(self, peer: PeerIdentity, header: Buffer) -> PeerReply:
        """Answer a heartbeat of another node."""
        return PeerReply(self.hear(peer.node, decode_peer(header, NodeHeartbeat)))

    def hear(self, node: NodeId, heartbeat: NodeHeartbeat) -> NodeHeartbeatReply:
        """Take a heartbeat of a node, and say how it stands."""
        reign = self._reign
        if reign is None or not self._metadata.leading.is_own:
            raise LeaderNotAvailableError("this node is not the controller, or not yet")
        image = self._metadata.image
        record = image.node(node)
        if record.epoch != heartbeat.epoch:
            raise StaleEpochError(
                f"the node {node} registered again, with the epoch {record.epoch}"
            )
        now_ms = self._clock.steady_ms()
        reign.detector.watch(image.nodes, now_ms=now_ms)
        reign.detector.heard(node, now_ms=now_ms)
        reign.versions[node] = (record.epoch, heartbeat.version)
        self._note_ready(reign, record, heartbeat)
        for peer in heartbeat.refused:
            reign.detector.refused(NodeId(peer), by=node, now_ms=now_ms)
        if heartbeat.refused:
            self._wake.set()
        return NodeHeartbeatReply(record.status, reign.term, self._sights(reign, now_ms))

    def _note_ready(self, reign: _Reign, record: NodeRecord, heartbeat: NodeHeartbeat) -> None:
        if not heartbeat.is_ready:
            reign.ready.pop(record.id, None)
            return
        reign.ready[record.id] = record.epoch
        if record.is_fenced:
            self._wake.set()

    def _sights(self, reign: _Reign, now_ms: int) -> list[NodeSight]:
        health, heard_ms = reign.detector.health, reign.detector.heard_ms
        found = [NodeSight(node, health[node], max(0, now_ms - heard_ms[node])) for node in health]
        return [NodeSight(self._config.node, NodeHealth.ALIVE, 0), *found]


def _tell(change: HealthChanged) -> None:
    match change.health:
        case NodeHealth.ALIVE:
            log.info(LogEvent.NODE_RECOVERED, node=change.node, before=change.before)
        case NodeHealth.SUSPECT:
            log.warning(LogEvent.NODE_SUSPECT, node=change.node)
        case NodeHealth.DEAD:
            log.warning(LogEvent.NODE_DIED, node=change.node)


def _ended(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error(LogEvent.CONTROLLER_CRASHED, error=repr(task.exception()))
