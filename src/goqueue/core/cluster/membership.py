"""Which nodes are heard of, as their controller and they themselves judge it.

Shape: stepper. Silence makes a node suspect and then dead. A refused connection makes it suspect at
once, and dead if two nodes are refused within a second: safety never depends on that, only speed.
A node that has not reached its controller for the time of its lease answers for nothing. All times
are steady milliseconds, given by the caller.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from goqueue.base.cluster_limits import SUSPECTED_BY_MIN
from goqueue.base.ids import NodeId
from goqueue.base.units import SECOND_MS


class NodeHealth(StrEnum):
    """How a node looks from here; what follows is decided in the image."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTimers:
    """How long a cluster waits for its nodes."""

    heartbeat_ms: int = 3 * SECOND_MS
    suspect_ms: int = 6 * SECOND_MS
    dead_ms: int = 9 * SECOND_MS
    lease_ms: int = 6 * SECOND_MS
    """How long a node answers for itself behind a heartbeat that was answered. It is over before
    silence makes the node dead, so that no other leads what it still answers for (ADR 0060)."""
    refusals_ms: int = SECOND_MS
    """Refused connections within so long count together."""

    def __post_init__(self) -> None:
        assert 0 < self.heartbeat_ms < self.suspect_ms, "one heartbeat may be lost"
        assert self.suspect_ms < self.dead_ms
        assert self.heartbeat_ms < self.lease_ms, "a heartbeat in time keeps the lease"
        assert self.lease_ms <= self.dead_ms - self.heartbeat_ms, "fenced before it is replaced"
        assert self.refusals_ms > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthChanged:
    """A node looks different from before."""

    node: NodeId
    health: NodeHealth
    before: NodeHealth
    at_ms: int


@dataclass(slots=True, kw_only=True)
class _Watched:
    heard_ms: int
    health: NodeHealth = NodeHealth.ALIVE
    refusals: dict[NodeId, int] = field(default_factory=dict)
    """When connections to it were last refused, by the node that tried."""


class FailureDetector:
    """What the controller has heard of the other nodes; a new one gives all of them full time.

    Dead nodes stay watched: they are heard again when a partition of the network heals (trap C6).
    """

    def __init__(self, timers: ClusterTimers, *, own: NodeId, now_ms: int) -> None:
        self._timers = timers
        self._own = own
        self._watched: dict[NodeId, _Watched] = {}
        self._ticked_ms = now_ms
        self._effects: list[HealthChanged] = []

    def __repr__(self) -> str:
        shown = ", ".join(f"{node} {one.health}" for node, one in self._watched.items())
        return f"<FailureDetector {shown}>"

    @property
    def health(self) -> Mapping[NodeId, NodeHealth]:
        """How each node looks."""
        return {node: one.health for node, one in self._watched.items()}

    @property
    def heard_ms(self) -> Mapping[NodeId, int]:
        """When each node was last heard of."""
        return {node: one.heard_ms for node, one in self._watched.items()}

    def watch(self, nodes: Iterable[NodeId], *, now_ms: int) -> None:
        """Watch these nodes and no others, never oneself; new ones have full time."""
        wanted = dict.fromkeys(node for node in nodes if node != self._own)
        for gone in self._watched.keys() - wanted.keys():
            del self._watched[gone]
        for node in wanted:
            self._watched.setdefault(node, _Watched(heard_ms=now_ms))

    def heard(self, node: NodeId, *, now_ms: int) -> None:
        """Take notice of a heartbeat, or of any other answer of a node."""
        one = self._watched.get(node)
        if one is None:
            return
        one.heard_ms = max(one.heard_ms, now_ms)
        one.refusals.clear()
        self._judge(node, one, NodeHealth.ALIVE, now_ms)

    def refused(self, node: NodeId, *, by: NodeId, now_ms: int) -> None:
        """Take notice that a connection of one node to another was refused or reset.

        Only nodes that are not dead themselves are believed.
        """
        one = self._watched.get(node)
        if one is None or by == node or not self._is_believed(by):
            return
        one.refusals[by] = now_ms
        since_ms = now_ms - self._timers.refusals_ms
        one.refusals = {peer: at for peer, at in one.refusals.items() if at > since_ms}
        if len(one.refusals) >= SUSPECTED_BY_MIN:
            self._judge(node, one, NodeHealth.DEAD, now_ms)
        elif one.health is NodeHealth.ALIVE:
            self._judge(node, one, NodeHealth.SUSPECT, now_ms)

    def _is_believed(self, node: NodeId) -> bool:
        witness = self._watched.get(node)
        return node == self._own or (witness is not None and witness.health is not NodeHealth.DEAD)

    def tick(self, now_ms: int) -> None:
        """Judge the silence of all nodes; to be called at least as often as they are heard.

        Time in which this process did not run is not their silence: nothing could be heard in it.
        """
        missed_ms = now_ms - self._ticked_ms - self._timers.heartbeat_ms
        self._ticked_ms = now_ms
        for node, one in self._watched.items():
            if missed_ms > 0:
                one.heard_ms += min(missed_ms, max(0, now_ms - one.heard_ms))
            silent_ms = now_ms - one.heard_ms
            if silent_ms >= self._timers.dead_ms:
                self._judge(node, one, NodeHealth.DEAD, now_ms)
            elif silent_ms >= self._timers.suspect_ms and one.health is NodeHealth.ALIVE:
                self._judge(node, one, NodeHealth.SUSPECT, now_ms)

    def take_effects(self) -> list[HealthChanged]:
        """Return what changed since this was last asked."""
        effects, self._effects = self._effects, []
        return effects

    def _judge(self, node: NodeId, one: _Watched, health: NodeHealth, now_ms: int) -> None:
        if one.health is not health:
            change = HealthChanged(node=node, health=health, before=one.health, at_ms=now_ms)
            one.health = health
            self._effects.append(change)


class NodeLease:
    """For how long a node may believe what its controller told it last."""

    def __init__(self, timers: ClusterTimers) -> None:
        self._lease_ms = timers.lease_ms
        self._until_ms: int | None = None

    def renew(self, *, sent_ms: int) -> None:
        """Go on from a heartbeat that was answered.

        Counted from when it was *sent*, which is surely before the controller heard it.
        """
        until_ms = sent_ms + self._lease_ms
        self._until_ms = until_ms if self._until_ms is None else max(self._until_ms, until_ms)

    def end(self) -> None:
        """Answer for nothing from now on: the controller said that the node is fenced."""
        self._until_ms = None

    def is_held(self, now_ms: int) -> bool:
        """Return True while the node may answer for what it leads."""
        return self._until_ms is not None and now_ms < self._until_ms
