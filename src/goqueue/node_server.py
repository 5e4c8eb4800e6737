"""A broker that is a node of a cluster, with its listeners: ``goqueue serve`` with a cluster."""

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from goqueue.base.errors import GoQueueError, ShuttingDownError
from goqueue.base.ids import NodeId
from goqueue.config.cluster_check import read_key
from goqueue.config.cluster_settings import parse_peers
from goqueue.config.etcd import is_etcd_url, parse_etcd_url
from goqueue.config.model import BrokerConfig
from goqueue.core.cluster.membership import ClusterTimers
from goqueue.core.raft.messages import PeerId
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import SystemClock
from goqueue.runtime.cluster.consensus import Consensus, ConsensusMaker, StateMachine
from goqueue.runtime.cluster.gauges import cluster_metrics, repair_metrics
from goqueue.runtime.cluster.image_meter import ImageMeter
from goqueue.runtime.cluster.node import Node
from goqueue.runtime.cluster.node_config import ListenerAddresses, NodeConfig
from goqueue.runtime.cluster.quorum import Quorum
from goqueue.runtime.cluster.reassignments import Reassignments
from goqueue.runtime.cluster.replica_reports import ReplicaReports
from goqueue.runtime.cluster.replicas import Replicas
from goqueue.runtime.cluster.scrub import Scrub
from goqueue.runtime.cluster.views import ClusterViews
from goqueue.server import Server
from goqueue.service.cluster_port import ClusterPort
from goqueue.service.forwarding import ForwardedRequests
from goqueue.service.peers import Peers
from goqueue.service.routed import asked_verbs
from goqueue.storage.local import LocalDisk
from goqueue.transport.cluster.http_port import PortRequest
from goqueue.transport.cluster.server import ClusterServer
from goqueue.transport.native.dispatch import Dispatch

BOOT_ID_PATH: Final = Path("/proc/sys/kernel/random/boot_id")

log = get_logger("goqueue.cluster")


def node_config(config: BrokerConfig) -> NodeConfig:
    """Return what a node is told, from the settings of its broker."""
    peers = {NodeId(one.node): one.address for one in parse_peers(config.cluster_peers)}
    peers.pop(NodeId(config.node_id), None)
    timers = ClusterTimers(
        heartbeat_ms=config.cluster_heartbeat_ms,
        suspect_ms=config.cluster_suspect_ms,
        dead_ms=config.cluster_dead_ms,
        lease_ms=config.cluster_dead_ms - config.cluster_heartbeat_ms,
    )
    return NodeConfig(
        node=NodeId(config.node_id),
        peers=peers,
        timers=timers,
        election_ms=config.cluster_election_ms,
        leave_ms=config.cluster_leave_ms,
        replication_factor=config.cluster_replication_factor,
        rack=config.cluster_rack,
        version=version("goqueue"),
        key=read_key(config),
        boot_id=_boot_id(),
    )


def _boot_id() -> str:
    """Return which run of the system this is, or nothing where it does not say."""
    try:
        return BOOT_ID_PATH.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _maker(config: BrokerConfig) -> ConsensusMaker | None:
    """Return what makes the node's part in an etcd, None for the embedded quorum."""
    if not is_etcd_url(config.cluster_quorum):
        return None
    etcd = parse_etcd_url(config.cluster_quorum, environment=os.environ)

    def make(peer: PeerId, founders: Sequence[PeerId], machine: StateMachine) -> Consensus:
        # Its client is loaded only where it is used.
        from goqueue.runtime.cluster.etcd.opening import open_etcd_consensus  # noqa: PLC0415

        return open_etcd_consensus(etcd, peer=peer, founders=founders, machine=machine)

    return make


class NodeServer(Server):
    """Starts a broker as a node: it finds its cluster first, and leaves it when it stops."""

    def __init__(self, config: BrokerConfig) -> None:
        disk, clock = LocalDisk(Path(config.data_dir)), SystemClock()
        self.node = Node(node_config(config), disk, clock, _maker(config))
        super().__init__(config, disk=disk, clock=clock, topology=self.node.topology)
        self.broker.security.follow(self.node.topology)
        self.peers = Peers(self.node)
        self.port = ClusterPort(self.node, is_guarded=config.auth_enabled)
        self._cluster = ClusterServer(
            self.peers,
            watcher=self.node,
            http=partial(PortRequest, self.port),
            tls=self.tls,
        )
        self.node.attach(self._cluster)
        self.replicas: Replicas | None = None
        self.scrub: Scrub | None = None
        self._waiting: asyncio.Task[None] | None = None
        self._views = ClusterViews(self.node, disk)
        self._meter = ImageMeter(self.node.metadata)
        self.node.on_removed = self.fail
        self._add_handlers()

    def _add_handlers(self) -> None:
        """Answer peers for the broker and the service."""
        broker, service = self.broker, self.service
        forwarded = ForwardedRequests(
            service.gate,
            service.turns,
            serve=Dispatch(service).serve,
            verbs=asked_verbs(service),
        )
        self.peers.add(forwarded.handlers())
        if broker.transactions.cluster is not None:
            self.peers.add(broker.transactions.cluster.handlers())
        if broker.views is not None:
            self.peers.add(broker.views.handlers())
        if broker.own_targets is not None:
            self.peers.add(broker.own_targets.handlers())
        if broker.redrives.led is not None:
            self.peers.add(broker.redrives.led.handlers())
        if broker.schemas.feed is not None:
            self.peers.add(broker.schemas.feed.handlers())

    @property
    def cluster_address(self) -> str:
        """Where other nodes connect, with the port that was really taken."""
        return self._cluster.address

    async def bind(self) -> None:
        """Take the ports, so that one in use is found before anything of the data is touched."""
        await super().bind()
        try:
            await self._cluster.bind(self.config.cluster_listener)
        except BaseException:
            await self._close_ports()
            raise

    async def start(self) -> None:
        """Find the cluster, open what it says, serve; a node without a controller waits for one."""
        if not self.native_address:
            await self.bind()
        try:
            self.node.open()
            await self._cluster.listen()
            self._wait_visibly()
            await self._listen()
            await self._find_cluster()
        except BaseException:
            await self.abandon()
            raise
        await self._open_broker()
        self.service.gate.serve()
        self.broker.metrics.collect_from(lambda: cluster_metrics(self.node))
        self.broker.metrics.collect_from(self._meter.metrics)
        self._views.start()
        self.node.serve()

    def _wait_visibly(self) -> None:
        """Answer clients that ask before this node serves: what it waits for, and to come again."""
        peers = ", ".join(sorted(self.node.config.peers)) or "none"
        self.service.gate.wait(
            f"the node {self.node.node} waits for its cluster, or opens what that says;"
            f" its peers: {peers}"
        )

    async def _open_broker(self) -> None:
        """Open what the image says, before this node is given anything to lead."""
        try:
            await self.broker.start()
            self.replicas = replicas = self._make_replicas()
            self.peers.add(replicas.handlers())
            self._offer_moves(replicas)
            await replicas.start()
            await replicas.settled()
            self.scrub = Scrub(
                replicas, self.broker.disk, bytes_per_second=self.config.cluster_scrub_bytes
            )
            self.scrub.start()
            self.broker.metrics.collect_from(lambda: repair_metrics(replicas.repairs))
        except BaseException:
            await self.abandon()
            raise

    def _make_replicas(self) -> Replicas:
        replicas = Replicas(
            self.broker,
            self.node.metadata,
            self._cluster,
            identity=self.node.identity.peer,
            propose=self.node.topology.propose,
            check_live=self.node.topology.check_live,
        )
        self.node.topology.topics = replicas.topics
        return replicas

    def _offer_moves(self, replicas: Replicas) -> None:
        """Let replicas be moved, and topics grow."""
        reports = ReplicaReports(replicas, self.node.metadata, self._cluster)
        self.peers.add(reports.handlers())
        self.node.controller.find_ends = reports.find_ends
        moves = Reassignments(self.node.metadata, self.node.topology.propose, reports)
        self.service.reassignment.moves = self.port.moves = moves

    async def _find_cluster(self) -> None:
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_task(self.node.start(self._addresses()))
        try:
            await asyncio.wait((self._waiting,))
            if self._waiting.cancelled():
                raise ShuttingDownError("the node was stopped before it found its cluster")
            self._waiting.result()
        except GoQueueError as error:
            if not isinstance(error, ShuttingDownError):
                # Its command prints the error; a traceback would say nothing to who runs it.
                fields = {"node": self.node.node, "error": error.message}
                log.error(LogEvent.BOOTSTRAP_FAILED, **fields)  # noqa: TRY400 - see above
            raise
        finally:
            self._waiting.cancel()
            self._waiting = None

    def interrupt(self) -> None:
        """Wait no longer for a cluster: ``start`` ends with ShuttingDownError."""
        if self._waiting is not None:
            self._waiting.cancel()

    async def failed(self) -> GoQueueError:
        """Return why this node cannot take part in its cluster any more.

        Without its quorum it hears of no decision, so it can neither lead nor follow.
        """
        quorum = self.node.quorum
        if not isinstance(quorum, Quorum):
            return await super().failed()
        await quorum.failed.wait()
        assert quorum.failure is not None, "it failed"
        return quorum.failure

    async def stop(self) -> None:
        """Let others take over, then stop as any broker; what was synced is noted at the end."""
        await self.node.leave()
        self.broker.end_waits()
        await super()._close_ports()
        if self.scrub is not None:
            await self.scrub.stop()
        if self.replicas is not None:
            await self.replicas.stop()
        await self._views.stop()
        await self.node.stop()
        await self.broker.stop()
        await self._cluster.stop()
        self.node.end_clean()

    async def abandon(self) -> None:
        """Stop listening and leave the quorum; what is open stays as it is."""
        await self._close_ports()
        await self.node.stop()
        self.broker.disk.unlock()

    async def _close_ports(self) -> None:
        await asyncio.gather(super()._close_ports(), self._cluster.stop())

    def _addresses(self) -> ListenerAddresses:
        config = self.config
        return ListenerAddresses(
            native=config.cluster_client_advertise or self.native_address,
            http=self.http_address,
            cluster=config.cluster_advertise or self.cluster_address,
        )
