"""The leader of one replica group: what is committed, who is in sync, and who has to hear of it.

Shape: stepper. What happens is reported by the verbs; ``take_effects`` returns what is to be done.

A message is committed when every replica in sync has it on its disk, by fsync. The replicas in sync
are changed by the controller only. Until it has answered, the leader counts with the larger set
(KIP-497): everybody that the controller may have let in by now, and nobody it may not have let go.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from goqueue.base.cluster_limits import REPLICA_LAG_MS, REPLICA_WAIT_MS
from goqueue.base.errors import NotEnoughReplicasError, NotLeaderError
from goqueue.base.ids import Epoch, NodeEpoch, NodeId, Offset, PartitionEpoch
from goqueue.base.units import SECOND_MS
from goqueue.core.replication.epochs import EpochEnd
from goqueue.core.replication.progress import ReplicaProgress
from goqueue.core.replication.replica import (
    AlterOutcome,
    FetchAnswer,
    FetchOutcome,
    FetchPosition,
    IsrAnswer,
    IsrMember,
    LogId,
    ReplicaLog,
    ReplicaSet,
)

PROPOSAL_RETRY_MS: Final = SECOND_MS
"""A proposal that was not answered for so long is sent again."""

REFUSED_PAUSE_MS: Final = 3 * PROPOSAL_RETRY_MS
"""Pause before a follower that the controller did not let in is proposed again."""

ENTER_MS_MAX: Final = 2 * REPLICA_WAIT_MS
"""A follower that was not heard of for so long is not let in: the leader would wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeIsr:
    """Ask the controller to change the replicas in sync; ``resigns`` asks for another leader."""

    epoch: Epoch
    partition_epoch: PartitionEpoch
    isr: tuple[IsrMember, ...]
    resigns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkMoved:
    """Everything below an offset is committed, and may be shown."""

    log: LogId
    high_watermark: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitersReleased:
    """These waited for messages that are committed; so many replicas have them on their disks."""

    waiters: tuple[object, ...]
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitersFailed:
    """These will not hear from this leader; what became of their messages is in doubt."""

    waiters: tuple[object, ...]


LeaderEffect = ProposeIsr | WatermarkMoved | WaitersReleased | WaitersFailed


class GroupLeader:
    """One node's leadership of one replica group, in one epoch.

    The epoch start is noted durably before this is made. ``heard`` says when each node's last
    request came, for all groups: a follower with nothing to fetch is not mentioned in those.
    """

    def __init__(
        self,
        node: NodeId,
        state: ReplicaSet,
        logs: Mapping[LogId, ReplicaLog],
        *,
        heard: Mapping[NodeId, int],
        now_ms: int,
        lag_ms: int = REPLICA_LAG_MS,
    ) -> None:
        assert state.leader == node, "the controller says who leads"
        assert node in state.isr, "only a replica in sync leads"
        self.node = node
        self.state = state
        self.logs = logs
        self.is_resigned = False
        self._heard = heard
        self._lag_ms = lag_ms
        for own in logs.values():
            # One that was elected although it lagged knows a high watermark beyond its own log.
            # What it writes below that is as little committed as anything else.
            own.high_watermark = own.committed_offset
        self._epoch_starts = {log: logs[log].end_offset for log in logs}
        self._proposed: dict[NodeId, None] = {}
        """Everybody that a proposal since the last change of the partition would let in."""
        self._pending: ProposeIsr | None = None
        self._may_propose_ms = now_ms
        self._waits = 0
        self._waiting: dict[LogId, list[tuple[Offset, int, object]]] = {log: [] for log in logs}
        self._effects: list[LeaderEffect] = []
        self._followers = {
            other: ReplicaProgress(logs, now_ms=now_ms) for other in state.replicas if other != node
        }

    def __repr__(self) -> str:
        return f"<GroupLeader {self.node} in epoch {self.state.epoch}: ISR {self.state.isr}>"

    @property
    def epoch(self) -> Epoch:
        """The epoch this leads in."""
        return self.state.epoch

    @property
    def isr_max(self) -> dict[NodeId, None]:
        """Everybody who may be in sync by now, as far as the controller may have decided."""
        return dict.fromkeys(self.state.isr) | self._proposed

    @property
    def is_alone(self) -> bool:
        """Return True if an own fsync commits: no other replica may be in sync."""
        return self.isr_max.keys() == {self.node} and self.state.isr_size_min == 1

    def durable_offsets(self, log: LogId) -> dict[str, int]:
        """Return up to where each follower has a log on its disk."""
        return {node: max(one.logs[log].durable_offset, 0) for node, one in self._followers.items()}

    def replicas_with(self, log: LogId, end_offset: Offset) -> int:
        """Return how many replicas have everything below an offset on their disks."""
        others = sum(one.logs[log].durable_offset >= end_offset for one in self._followers.values())
        return others + (self.logs[log].durable_offset >= end_offset)

    def check_append(self) -> None:
        """Raise if nothing may be appended now."""
        if self.is_resigned:
            raise NotLeaderError("the leader of the partition has given it up")
        if len(self.state.isr) < self.state.isr_size_min:
            raise NotEnoughReplicasError(
                f"{len(self.state.isr)} replicas are in sync, {self.state.isr_size_min} are needed"
            )

    # What happens here.

    def appended(self, log: LogId, end_offset: Offset) -> None:
        """Take note of messages that were written, and not yet synced."""
        for node, follower in self._followers.items():
            follower.leave_end(self.logs, heard_ms=self._heard.get(node))
        self.logs[log].appended(end_offset)

    def synced(self, log: LogId, durable_offset: Offset) -> None:
        """Take note of what this node's own disk has."""
        self.logs[log].synced(durable_offset)
        self._advance(log)

    def look(self, log: LogId) -> None:
        """Take note of what this node's own disk had before it led."""
        self._advance(log)

    def wait(self, log: LogId, end_offset: Offset, waiter: object) -> None:
        """Have a waiter released when everything below an offset is committed."""
        if self.is_resigned:
            self._effects.append(WaitersFailed(waiters=(waiter,)))
            return
        self._waits += 1
        heapq.heappush(self._waiting[log], (end_offset, self._waits, waiter))
        self._release(log)

    def disk_failed(self) -> None:
        """Give the leadership up: what this disk has is not known any more."""
        if self.is_resigned:
            return
        self.is_resigned = True
        others = tuple(self._member(node) for node in self.state.isr if node != self.node)
        self._effects.append(
            ProposeIsr(
                epoch=self.epoch,
                partition_epoch=self.state.partition_epoch,
                isr=others,
                resigns=True,
            )
        )
        self.close()

    def close(self) -> None:
        """End it: those who wait do not hear from this leader whether they are committed."""
        self.is_resigned = True
        waiters = tuple(waiter for queue in self._waiting.values() for *_, waiter in sorted(queue))
        for queue in self._waiting.values():
            queue.clear()
        if waiters:
            self._effects.append(WaitersFailed(waiters=waiters))

    # What followers say.

    def judge(
        self,
        node: NodeId,
        log: LogId,
        position: FetchPosition,
        *,
        node_epoch: NodeEpoch,
        now_ms: int,
    ) -> FetchAnswer | None:
        """Take a follower's position, or return what to tell it instead of messages.

        The caller has made sure that the controller knows this node_epoch of the node.
        """
        follower = self._followers.get(node)
        offset, last_epoch = position.offset, position.last_epoch
        if position.epoch != self.epoch or follower is None or self.is_resigned:
            is_old = position.epoch < self.epoch
            outcome = FetchOutcome.FENCED if is_old else FetchOutcome.UNKNOWN
            return self._refusal(log, offset, last_epoch, outcome)
        own = self.logs[log]
        if offset < own.start_offset:
            return self._refusal(log, offset, last_epoch, FetchOutcome.OUT_OF_RANGE)
        diverging = own.epochs.divergence(
            offset=offset, last_epoch=last_epoch, end_offset=own.end_offset
        )
        if diverging is not None:
            return self._refusal(log, offset, last_epoch, FetchOutcome.DIVERGING, diverging)
        follower.begin(node_epoch, now_ms=now_ms)
        follower.fetched(log, position, end_offset=own.end_offset, now_ms=now_ms)
        self._judge_loss(node, log, position, now_ms=now_ms)
        self._advance(log)
        self._consider(node, now_ms=now_ms)
        return None

    def answer(
        self, log: LogId, *, offset: Offset, last_epoch: Epoch, end_offset: Offset
    ) -> FetchAnswer:
        """Return what to say with a range of messages, or with none."""
        own = self.logs[log]
        if offset < own.start_offset:
            return self._refusal(log, offset, last_epoch, FetchOutcome.OUT_OF_RANGE)
        return FetchAnswer(
            outcome=FetchOutcome.OK,
            epoch=self.epoch,
            offset=offset,
            last_epoch=last_epoch,
            end_offset=end_offset,
            high_watermark=own.high_watermark,
            start_offset=own.start_offset,
            epochs=own.epochs.between(start_offset=offset, end_offset=end_offset),
        )

    def is_in_sync(self, node: NodeId) -> bool:
        """Return True if a node counts among the replicas in sync."""
        return node in self.isr_max

    def _refusal(
        self,
        log: LogId,
        offset: Offset,
        last_epoch: Epoch,
        outcome: FetchOutcome,
        diverging: EpochEnd | None = None,
    ) -> FetchAnswer:
        own = self.logs[log]
        return FetchAnswer(
            outcome=outcome,
            epoch=self.epoch,
            offset=offset,
            last_epoch=last_epoch,
            end_offset=offset,
            high_watermark=own.high_watermark,
            start_offset=own.start_offset,
            diverging=diverging,
        )

    # What the controller says.

    def changed(self, state: ReplicaSet, *, now_ms: int) -> None:
        """Take a later state of the partition; earlier ones come late and mean nothing."""
        if state.partition_epoch <= self.state.partition_epoch or state.epoch != self.epoch:
            return
        self.state = state
        # What was proposed for an earlier state is refused from now on, however late it comes.
        self._proposed, self._pending = {}, None
        self._may_propose_ms = now_ms
        for node in state.replicas:
            if node != self.node and node not in self._followers:
                self._followers[node] = ReplicaProgress(self.logs, now_ms=now_ms)
        for node in [node for node in self._followers if node not in state.replicas]:
            del self._followers[node]
        for node, follower in self._followers.items():
            follower.has_lost &= node in state.isr
        for log in self.logs:
            self._advance(log)

    def set_min_insync(self, min_insync: int) -> None:
        """Take a new setting of the topic; with fewer needed more may be committed."""
        self.state = replace(self.state, min_insync=min_insync)
        for log in self.logs:
            self._advance(log)

    def answered(self, answer: IsrAnswer, *, now_ms: int) -> None:
        """Take the controller's answer to a proposal; what it says of the partition decides.

        An answer may be to a proposal of an earlier leadership of this node, and mean nothing.
        """
        if answer.state.epoch > self.epoch:
            self.close()
            return
        self.changed(answer.state, now_ms=now_ms)
        is_about_now = answer.state.partition_epoch == self.state.partition_epoch
        if is_about_now and answer.outcome is AlterOutcome.INELIGIBLE:
            # A copy of the proposal may still be accepted: its members are counted until the
            # partition has changed, and it is proposed as it is to get there.
            self._pending = None
            self._may_propose_ms = now_ms + PROPOSAL_RETRY_MS
            for node in self._proposed.keys() - {*self.state.isr}:
                self._followers[node].enter_from_ms = now_ms + REFUSED_PAUSE_MS

    def tick(self, *, now_ms: int) -> None:
        """Propose what time has made due: followers that lag leave, lost proposals go again."""
        if not self.is_resigned and now_ms >= self._may_propose_ms:
            self._propose(self._wanted(now_ms), now_ms=now_ms)

    # The replicas in sync.

    def _consider(self, node: NodeId, *, now_ms: int) -> None:
        """Let a follower in as soon as it has what is committed, and all from before this epoch."""
        if self._pending is None and node not in self.state.isr and now_ms >= self._may_propose_ms:
            self._propose(self._wanted(now_ms), now_ms=now_ms)

    def _judge_loss(
        self, node: NodeId, log: LogId, position: FetchPosition, *, now_ms: int
    ) -> None:
        """See to it that a replica that lost what it had on its disk is not counted in sync."""
        lost = position.offset < self.logs[log].high_watermark and node in self.state.isr
        self._followers[node].has_lost |= lost
        if lost and self._pending is None:
            self._propose(self._wanted(now_ms), now_ms=now_ms)

    def _wanted(self, now_ms: int) -> list[NodeId]:
        """Return who should be in sync: in the order of the replicas, this node always."""
        return [
            node
            for node in self.state.replicas
            if node == self.node
            or (
                self._may_stay(node, now_ms)
                if node in self.state.isr
                else self._may_enter(node, now_ms)
            )
        ]

    def _may_stay(self, node: NodeId, now_ms: int) -> bool:
        follower = self._followers[node]
        caught_up_ms = follower.caught_up_ms(self.logs, heard_ms=self._heard.get(node))
        return not follower.has_lost and now_ms - caught_up_ms <= self._lag_ms

    def _may_enter(self, node: NodeId, now_ms: int) -> bool:
        follower = self._followers[node]
        heard_ms = self._heard.get(node)
        if heard_ms is None or now_ms - heard_ms > ENTER_MS_MAX or now_ms < follower.enter_from_ms:
            return False
        is_complete = all(
            follower.logs[log].durable_offset >= max(own.high_watermark, self._epoch_starts[log])
            for log, own in self.logs.items()
        )
        return is_complete and follower.node_epoch is not None

    def _propose(self, nodes: Iterable[NodeId], *, now_ms: int) -> None:
        wanted = tuple(nodes)
        # A proposal that was refused may be accepted later; the same ISR, accepted, rules that out.
        if set(wanted) == set(self.state.isr) and not self._proposed:
            return
        self._pending = ProposeIsr(
            epoch=self.epoch,
            partition_epoch=self.state.partition_epoch,
            isr=tuple(self._member(node) for node in wanted),
        )
        self._proposed |= dict.fromkeys(wanted)
        self._may_propose_ms = now_ms + PROPOSAL_RETRY_MS
        self._effects.append(self._pending)

    def _member(self, node: NodeId) -> IsrMember:
        follower = self._followers.get(node)
        return IsrMember(node, follower.node_epoch if follower is not None else None)

    # What is committed.

    def _advance(self, log: LogId) -> None:
        """Move the high watermark, if enough replicas are in sync and all of them are further."""
        own = self.logs[log]
        if len(self.state.isr) < self.state.isr_size_min or self.is_resigned:
            return
        reached = own.durable_offset
        for node in self.isr_max:
            if node != self.node:
                reached = min(reached, self._followers[node].logs[log].durable_offset)
        if reached > own.high_watermark:
            own.high_watermark = reached
            self._effects.append(WatermarkMoved(log=log, high_watermark=reached))
            self._release(log)

    def _release(self, log: LogId) -> None:
        committed, queue = self.logs[log].high_watermark, self._waiting[log]
        released: list[object] = []
        while queue and queue[0][0] <= committed:
            released.append(heapq.heappop(queue)[2])
        if released:
            replicas = self.replicas_with(log, committed)
            self._effects.append(WaitersReleased(waiters=tuple(released), replicas=replicas))

    def take_effects(self) -> list[LeaderEffect]:
        """Return what is to be done, in order, once."""
        effects, self._effects = self._effects, []
        return effects
