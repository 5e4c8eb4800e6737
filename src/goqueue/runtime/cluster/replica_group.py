"""One replica group on this node: it follows a leader or leads, as the controller decided.

Performs what ``GroupLeader`` and ``GroupFollower`` decide, effects in their order and each of them
whole before the next. What others learn of a lost leadership they learn in the step in which the
image says so; everything else takes its turn.

    FOLLOWER -> LEADER    epoch starts durable, lead, load the state that goes with the partition
    LEADER -> FOLLOWER    refuse, fail those who wait, drop that state, fetch from the new leader
"""

import asyncio
from collections.abc import Mapping

from goqueue.base.errors import GoQueueError, NotLeaderError
from goqueue.base.ids import NO_EPOCH, Epoch, NodeId, Offset
from goqueue.core.replication.follower import AppendFrames, GroupFollower, RestartLog
from goqueue.core.replication.leader import (
    GroupLeader,
    ProposeIsr,
    WaitersFailed,
    WaitersReleased,
    WatermarkMoved,
)
from goqueue.core.replication.replica import (
    DATA_LOG,
    STATE_LOG,
    FetchAnswer,
    FetchPosition,
    IsrAnswer,
    LogId,
    LogKey,
    ReplicaSet,
)
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.group_host import GroupHost
from goqueue.runtime.cluster.group_log import GroupLog
from goqueue.runtime.cluster.replica_effects import (
    begin_epoch,
    check_ends,
    drop_stale_notes,
    perform_effect,
    release,
    resignation,
)
from goqueue.runtime.log.leadership import Mending
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.storage.log_notes import Gap

log = get_logger("goqueue.replicas")


class ReplicaGroup:
    """A data partition with its state log, on this node."""

    def __init__(
        self, topic: Topic, logs: Mapping[LogId, Partition | None], host: GroupHost
    ) -> None:
        data = logs[DATA_LOG]
        assert data is not None, "all partitions are open"
        self.place = data.name
        self._host = host
        self.logs: dict[LogId, GroupLog] = {}
        for log_id, partition in logs.items():
            key = LogKey(self.place, log_id)
            one = self.logs[log_id] = GroupLog(self, key, host.notebook.find(key))
            if partition is not None:
                one.attach(partition, topic if log_id == DATA_LOG else None, host.clock)
            one.recovered()
        self._own = {log_id: one.own for log_id, one in self.logs.items()}
        self.leader: GroupLeader | None = None
        self.follower: GroupFollower | None = None
        self._state: ReplicaSet | None = None
        self._done_epoch = NO_EPOCH
        """The epoch that this node has taken its role in, whatever that is."""
        self._is_gained = False
        self.is_closed = False
        # Guards the logs: what an answer brings and a change of role wait for each other.
        self.turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<ReplicaGroup {self.place}: {self.leader or self.follower or 'no role yet'}>"

    @property
    def is_leading(self) -> bool:
        """Whether this node leads the group."""
        return self.leader is not None and not self.leader.is_resigned

    @property
    def _is_behind(self) -> bool:
        return self._state is not None and self._state.epoch != self._done_epoch

    async def settled(self) -> None:
        """Return when this node has the role that it last heard of, or could not take it."""
        while self._task is not None:
            await asyncio.wait([self._task])

    @property
    def epoch(self) -> Epoch:
        """The epoch of the role that this node has."""
        return self._done_epoch

    # What the controller says.

    def learn(self, state: ReplicaSet) -> None:
        """Take a state of the group; an earlier one means nothing."""
        known = self._state
        if self.is_closed or (known is not None and state.partition_epoch <= known.partition_epoch):
            return
        self._state = state
        if self.leader is not None and self.leader.epoch == state.epoch:
            self.leader.changed(state, now_ms=self._host.now_ms())
            self.perform()
            return
        if self.leader is not None:
            self._refuse(state.epoch)
        if self._task is None and state.epoch != self._done_epoch:
            self._begin()

    def answered(self, answer: IsrAnswer) -> None:
        """Take the controller's answer to a proposal of this leader."""
        if self.leader is not None:
            self.leader.answered(answer, now_ms=self._host.now_ms())
            self.perform()

    def set_min_insync(self, min_insync: int) -> None:
        """Take a new setting of the topic."""
        if self.leader is not None:
            self.leader.set_min_insync(min_insync)
            self.perform()

    def tick(self) -> None:
        """Propose what time has made due."""
        if self.leader is not None:
            self.leader.tick(now_ms=self._host.now_ms())
            self.perform()
        elif self._task is None and not self.is_closed and self._is_behind:
            self._begin()

    def retire(self) -> None:
        """Take no part any more: the topic is gone, or this node has no replica of it."""
        self.is_closed = True
        if self.leader is not None:
            self._refuse(self.leader.epoch)
        for one in self.logs.values():
            self._host.fetch_from(None, one.key)

    async def close(self) -> None:
        """End what is under way and drop the state that goes with the partition."""
        self.retire()
        while self._task is not None:
            await asyncio.wait([self._task])
        if self._is_gained:
            self._is_gained = False
            await self._host.lose(self.place)

    async def drop_files(self) -> None:
        """Remove what this node has of the group, which is closed."""
        for one in self.logs.values():
            await one.drop_files()

    # Roles.

    def _refuse(self, epoch: Epoch) -> None:
        """Lead no more, in this step: nothing is appended, and those who wait are in doubt."""
        leader, self.leader = self.leader, None
        if leader is not None:
            leader.close()
            leader.take_effects()
        for one in self.logs.values():
            one.follow(epoch)

    def _begin(self) -> None:
        state = self._state
        assert state is not None, "heard of"
        is_simple = not self._is_gained and not self.turn.locked()
        is_simple = is_simple and not any(one.has_stale_notes for one in self.logs.values())
        if is_simple and state.leader != self._host.node:
            self._follow(state)
            self._done_epoch = state.epoch
            return
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """Take the role that was last heard of, until there is no other."""
        try:
            while not self.is_closed and (state := self._state) is not None:
                if state.epoch == self._done_epoch:
                    return
                if self._is_gained:
                    self._is_gained = False
                    await self._host.lose(self.place)
                if state.leader == self._host.node:
                    await self._lead(state)
                else:
                    async with self.turn:
                        await drop_stale_notes(self.logs.values(), self._host.notebook)
                        self._follow(state)
                self._done_epoch = state.epoch
        except GoQueueError as error:
            # The disk, most likely. It is tried again.
            log.warning(LogEvent.ROLE_CHANGE_FAILED, partition=str(self.place), error=error.message)
        except Exception:
            log.exception(LogEvent.ROLE_CHANGE_CRASHED, partition=str(self.place))
        finally:
            self._task = None

    def _follow(self, state: ReplicaSet) -> None:
        if self.follower is None:
            self.follower = GroupFollower(self._own)
        if not self.follower.follow(state.leader, state.epoch):
            return
        for one in self.logs.values():
            one.follow(state.epoch)
            self._host.fetch_from(state.leader, one.key)
        log.info(
            LogEvent.REPLICA_FOLLOWS,
            partition=str(self.place),
            leader=state.leader,
            epoch=state.epoch,
        )

    async def _lead(self, state: ReplicaSet) -> None:
        async with self.turn:
            if not await self._begin_epoch(state):
                return
        try:
            await self._host.gain(self.place)
        finally:
            release(self.logs.values())
        self._is_gained = True

    async def _begin_epoch(self, state: ReplicaSet) -> bool:
        """Make the start of an epoch durable and lead in it; return whether this node does."""
        if not all(own.epochs.may_lead(state.epoch) for own in self._own.values()):
            # It led in this epoch before it was started again; the controller begins another.
            return False
        self.follower = None
        for one in self.logs.values():
            self._host.fetch_from(None, one.key)
        try:
            check_ends(self.logs.values(), state, self._host.node)
            await begin_epoch(self.logs.values(), state.epoch, self._host.notebook)
        except GoQueueError as error:
            self._give_up(state, error)
            return False
        latest = self._state
        if self.is_closed or latest is None or latest.epoch != state.epoch:
            return False
        self._take_over(latest)
        return True

    def _take_over(self, state: ReplicaSet) -> None:
        host = self._host
        self.leader = GroupLeader(
            host.node,
            state,
            self._own,
            heard=host.heard,
            now_ms=host.now_ms(),
            lag_ms=host.lag_ms,
        )
        for log_id, one in self.logs.items():
            one.lead(state.epoch, may_lack=log_id == DATA_LOG and state.is_unclean)
            self.leader.look(log_id)
            if one.partition is not None:
                one.partition.sync_soon()
        log.info(
            LogEvent.REPLICA_LEADS,
            partition=str(self.place),
            epoch=state.epoch,
            isr=list(state.isr),
            end_offset=self._own[DATA_LOG].end_offset,
        )
        self.perform()

    def _give_up(self, state: ReplicaSet, error: GoQueueError) -> None:
        """Ask for another leader, or raise if there can be none."""
        proposal = resignation(state, self._host.node)
        if proposal is None:
            raise error
        log.error(LogEvent.LEADER_RESIGNED, partition=str(self.place), error=error.message)
        self._host.propose(self.place, proposal)

    # What the partitions report.

    @property
    def is_alone(self) -> bool:
        """Return True if an own sync commits."""
        return self.leader is not None and self.leader.is_alone

    def check_live(self) -> None:
        """Raise if this node may not answer as a leader now."""
        self._host.check_live()

    def check_append(self) -> None:
        """Raise if nothing may be appended as a leader now."""
        self._host.check_live()
        if self.leader is None:
            raise NotLeaderError("this node does not lead the partition")
        self.leader.check_append()

    def replicas_with(self, log_id: LogId, end_offset: Offset) -> int:
        """Return how many replicas have everything below an offset on their disks."""
        return 1 if self.leader is None else self.leader.replicas_with(log_id, end_offset)

    async def mend(self, log_id: LogId, gap: Gap) -> Mending:
        """Put good frames of another replica in the place of damaged ones."""
        return await self._host.mend(LogKey(self.place, log_id), gap)

    def appended(self, one: GroupLog, end_offset: Offset) -> None:
        """Take note that a log has grown."""
        if self.leader is not None:
            self.leader.appended(one.key.log, end_offset)
            self._host.log_grew(one.key)
        else:
            one.own.appended(end_offset)
        if one.partition is not None and not one.partition.settings.is_fsync:
            # Acks do not wait for the disk here, on no replica.
            self.synced(one, end_offset)

    def synced(self, one: GroupLog, durable_offset: Offset) -> None:
        """Take note of what the disk has of a log."""
        partition = one.partition
        if partition is not None and partition.log.failure is not None:
            self._disk_failed(partition)
        elif self.leader is not None:
            self.leader.synced(one.key.log, durable_offset)
            self.perform()
        elif self.follower is not None:
            if self.follower.synced(one.key.log, durable_offset):
                one.show()
            self._host.position_changed(one.key)
        else:
            one.own.synced(durable_offset)

    def trimmed(self, one: GroupLog, start_offset: Offset) -> None:
        """Take note of what retention removed from a log."""
        if self.leader is not None and start_offset > one.own.start_offset:
            one.own.trimmed(start_offset)
            self._host.watermark_moved(one.key)

    def _disk_failed(self, partition: Partition) -> None:
        """Have another replica lead, if one is in sync; alone, it goes on being read."""
        leader = self.leader
        if leader is None or leader.is_resigned or len(leader.state.isr) == 1:
            return
        reason = "" if partition.log.failure is None else partition.log.failure.message
        log.error(LogEvent.LEADER_RESIGNED, partition=str(self.place), error=reason)
        leader.disk_failed()
        self.perform()

    # Leading.

    def perform(self) -> None:
        """Do what the leader decided."""
        leader = self.leader
        if leader is None:
            return
        for effect in leader.take_effects():
            match effect:
                case ProposeIsr():
                    self._host.propose(self.place, effect)
                case WatermarkMoved(log=log_id):
                    self.logs[log_id].show()
                    self._host.watermark_moved(LogKey(self.place, log_id))
                case WaitersReleased() | WaitersFailed():
                    # Those who wait do so at their partition.
                    pass

    def state_made(self, partition: Partition) -> None:
        """Take the state log that was just made here, by the leader of the group."""
        one = self.logs[STATE_LOG]
        one.attach(partition, None, self._host.clock)
        if self.leader is not None:
            one.lead(self.leader.epoch)

    # Following.

    def position(self, log_id: LogId) -> FetchPosition | None:
        """Return what this node has of a log, None if it does not follow."""
        return None if self.follower is None else self.follower.position(log_id)

    async def take(
        self, sender: NodeId, log_id: LogId, answer: FetchAnswer, frames: memoryview
    ) -> None:
        """Do what an answer of the leader asks for, or raise with some of it done."""
        async with self.turn:
            follower, one = self.follower, self.logs.get(log_id)
            if follower is None or one is None or follower.leader != sender or self.is_closed:
                return
            for effect in follower.take(log_id, answer):
                if one.partition is None and isinstance(effect, (AppendFrames, RestartLog)):
                    one.attach(self._host.open_state(self.place), None, self._host.clock)
                    one.follow(follower.epoch)
                await perform_effect(one, effect, frames, follower.epoch, self._host.notebook)
