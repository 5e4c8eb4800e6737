"""A controller as the rules want it, in memory: who leads, who is in sync, who may be elected.

It never fails by itself; a scenario holds it up, or lets what it said long ago arrive again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from goqueue.base.ids import (
    DirectoryId,
    Epoch,
    NodeEpoch,
    NodeId,
    PartitionEpoch,
    TopicPartition,
)
from goqueue.core.replication.leader import ProposeIsr
from goqueue.core.replication.replica import AlterOutcome, IsrAnswer, ReplicaSet

SESSION_MS = 1_000


@dataclass(frozen=True)
class Image:
    """What the controller decided, as nodes get to know it."""

    version: int
    node_epochs: Mapping[NodeId, NodeEpoch]
    groups: Mapping[TopicPartition, ReplicaSet]


@dataclass
class Registered:
    directory: DirectoryId
    node_epoch: NodeEpoch
    process: int
    heard_ms: int
    is_fenced: bool = False


@dataclass
class Record:
    """A replica group at the controller; ``elr`` may be elected although they are not in sync."""

    state: ReplicaSet
    elr: tuple[NodeId, ...] = ()
    is_fsynced: bool = True
    is_unclean_allowed: bool = False
    unclean_elections: int = 0


class Controller:
    """Elects replicas in sync, in the order of replicas, and without one as KIP-966 says."""

    def __init__(self) -> None:
        self.nodes: dict[NodeId, Registered] = {}
        self.groups: dict[TopicPartition, Record] = {}
        self.images: list[Image] = []
        self._node_epochs = 0

    @property
    def image(self) -> Image:
        return self.images[-1]

    def publish(self) -> None:
        """Make what was decided known as the latest image."""
        self.images.append(
            Image(
                len(self.images),
                {node: one.node_epoch for node, one in self.nodes.items()},
                {group: record.state for group, record in self.groups.items()},
            )
        )

    def create(self, group: TopicPartition, replicas: list[NodeId], record: Record) -> None:
        self.groups[group] = record
        self._change(record, isr=tuple(replicas), lost=())

    def register(
        self, node: NodeId, directory: DirectoryId, *, process: int, is_clean: bool, now_ms: int
    ) -> NodeEpoch:
        """Let a process in. What it may have lost with its predecessor decides what it still is."""
        before = self.nodes.get(node)
        if before is not None and before.process == process:
            return before.node_epoch
        self._node_epochs += 1
        node_epoch = NodeEpoch(self._node_epochs)
        self.nodes[node] = Registered(directory, node_epoch, process, now_ms)
        is_wiped = before is not None and before.directory != directory
        for record in self.groups.values():
            state = record.state
            if node not in state.replicas:
                continue
            has_lost = is_wiped or not (is_clean or record.is_fsynced)
            lost = (node,) if has_lost else ()
            isr = tuple(n for n in state.isr if n not in lost)
            elr = tuple(n for n in record.elr if n not in lost)
            if isr != state.isr or elr != record.elr or state.leader in (node, None):
                self._change(record, isr=isr, lost=lost, is_new_epoch=state.leader == node)
        self.publish()
        return node_epoch

    def heard(self, node: NodeId, node_epoch: NodeEpoch, now_ms: int) -> None:
        """Keep a node's session; one that was fenced may lead again."""
        one = self.nodes[node]
        if one.node_epoch != node_epoch:
            return
        one.heard_ms = now_ms
        if one.is_fenced:
            one.is_fenced = False
            for record in self.groups.values():
                if record.state.leader is None and node in record.state.replicas:
                    self._change(record, isr=record.state.isr, lost=())
            self.publish()

    def tick(self, now_ms: int) -> bool:
        """Fence the silent; return whether anything changed."""
        silent = [
            node
            for node, one in self.nodes.items()
            if not one.is_fenced and now_ms - one.heard_ms > SESSION_MS
        ]
        for node in silent:
            self.nodes[node].is_fenced = True
            for record in self.groups.values():
                if node in record.state.isr:
                    isr = tuple(n for n in record.state.isr if n != node)
                    self._change(record, isr=isr, lost=())
        if silent:
            self.publish()
        return bool(silent)

    def alter(
        self, node: NodeId, node_epoch: NodeEpoch, group: TopicPartition, proposal: ProposeIsr
    ) -> IsrAnswer:
        """Judge a proposal of a leader."""
        record = self.groups[group]
        state = record.state
        is_leader = state.leader == node and self.nodes[node].node_epoch == node_epoch
        if not is_leader or state.epoch != proposal.epoch:
            return IsrAnswer(outcome=AlterOutcome.FENCED, state=state)
        if state.partition_epoch != proposal.partition_epoch:
            return IsrAnswer(outcome=AlterOutcome.STALE, state=state)
        for member in proposal.isr:
            if member.node not in state.isr and not self._may_enter(member.node, member[1]):
                return IsrAnswer(outcome=AlterOutcome.INELIGIBLE, state=state)
        isr = tuple(n for n in state.replicas if n in {member.node for member in proposal.isr})
        if proposal.resigns:
            isr = tuple(n for n in state.isr if n != node)
        self._change(record, isr=isr, lost=())
        self.publish()
        return IsrAnswer(outcome=AlterOutcome.ACCEPTED, state=record.state)

    def _may_enter(self, node: NodeId, node_epoch: NodeEpoch | None) -> bool:
        one = self.nodes[node]
        return not one.is_fenced and one.node_epoch == node_epoch

    def _change(
        self,
        record: Record,
        *,
        isr: tuple[NodeId, ...],
        lost: tuple[NodeId, ...],
        is_new_epoch: bool = False,
    ) -> None:
        """Decide about a partition again: members, those that may be elected, and the leader."""
        old = record.state
        elr: tuple[NodeId, ...] = ()
        if len(isr) < old.isr_size_min:
            known = {*old.isr, *record.elr} - {*isr, *lost}
            elr = tuple(n for n in old.replicas if n in known)
        leader = old.leader if old.leader in isr and not is_new_epoch else None
        if leader is None:
            leader, isr = self._elect(record, isr, elr)
            elr = tuple(n for n in elr if n not in isr)
        is_elected = leader != old.leader or is_new_epoch
        record.elr = elr
        record.state = replace(
            old,
            epoch=Epoch(old.epoch + is_elected),
            partition_epoch=PartitionEpoch(old.partition_epoch + 1),
            leader=leader,
            isr=isr,
        )

    def _elect(
        self, record: Record, isr: tuple[NodeId, ...], elr: tuple[NodeId, ...]
    ) -> tuple[NodeId | None, tuple[NodeId, ...]]:
        alive = [
            n for n in record.state.replicas if n in self.nodes and not self.nodes[n].is_fenced
        ]
        for node in alive:
            if node in isr:
                return node, isr
        for node in alive:
            if node in elr and not isr:
                return node, (node,)
        if alive and record.is_unclean_allowed:
            record.unclean_elections += 1
            return alive[0], (alive[0],)
        return None, isr
