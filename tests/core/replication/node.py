"""A node of the simulated cluster: it performs what the steppers of ``core/replication`` decide."""

from collections.abc import Callable
from typing import Any

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import NodeEpoch, NodeId, Offset, TopicPartition
from goqueue.core.replication.epochs import EpochStart
from goqueue.core.replication.feed import (
    FeedSession,
    RequestFate,
    unknown_session,
)
from goqueue.core.replication.follower import (
    AppendFrames,
    FollowerEffect,
    GroupFollower,
    NoteEpochs,
    RestartLog,
    ShowCommitted,
    TrimLog,
    TruncateLog,
)
from goqueue.core.replication.leader import (
    GroupLeader,
    ProposeIsr,
    WaitersFailed,
    WaitersReleased,
    WatermarkMoved,
)
from goqueue.core.replication.replica import (
    FetchPosition,
    IsrAnswer,
    LogId,
    LogKey,
    ReplicaLog,
    ReplicaSet,
)
from goqueue.core.replication.session import FetchSession, SessionAnswer
from tests.core.replication.checks import Checks
from tests.core.replication.controller import Image
from tests.core.replication.disk import Frame, SimDisk
from tests.core.replication.feeding import Fed, Fetching, GroupShape, SimFeeder
from tests.core.replication.world import World

FRAME_BYTES = 16_384
TICK_MS = 200
LAG_MS = 2_000


class CrashPoint(Exception):  # noqa: N818 - it is no error of ours
    """The process ends in the middle of what it does."""


class SimNode:
    """One process of a node. A restart makes another one, on the same disk or an empty one."""

    def __init__(
        self,
        name: NodeId,
        world: World,
        checks: Checks,
        disk: SimDisk,
        shapes: dict[TopicPartition, GroupShape],
        *,
        number: int,
        disks_of: Callable[[NodeId], list[SimDisk]],
        tell: Callable[[str, Any], None],
    ) -> None:
        self.name = name
        self.disk = disk
        self.number = number
        self.is_alive = True
        self.has_lost_power = False
        self.paused_until_ms = 0
        self.sync_ms_max = 10
        self.crash_chance = 0.0
        self.node_epoch: NodeEpoch | None = None
        self.image: Image | None = None
        self.leaders: dict[TopicPartition, GroupLeader] = {}
        self.followers: dict[TopicPartition, GroupFollower] = {}
        self.acks: list[int] = []
        self._world = world
        self._checks = checks
        self._shapes = shapes
        self._disks_of = disks_of
        self._tell = tell
        self._fetches: dict[NodeId, FetchSession] = {}
        self._feeds: dict[NodeId, FeedSession] = {}
        self._node_epochs: dict[NodeId, NodeEpoch] = {}
        self._heard: dict[NodeId, int] = {}
        self._syncing: dict[LogKey, None] = {}
        self.logs: dict[LogKey, ReplicaLog] = {
            LogKey(group, log): disk.open(LogKey(group, log))
            for group, shape in shapes.items()
            for log in shape.logs
        }

    def __repr__(self) -> str:
        return f"{self.name}#{self.number}"

    # Life.

    def act(self, action: Callable[[], None]) -> None:
        """Do something, unless the process is dead, stopped or dies of it."""
        if not self.is_alive:
            return
        if self._world.now_ms < self.paused_until_ms:
            self._world.after(self.paused_until_ms - self._world.now_ms, lambda: self.act(action))
            return
        try:
            action()
        except CrashPoint:
            self._tell("crash", self)
            return
        self._perform()
        self._talk()

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._world.after(delay_ms, lambda: self.act(action))

    def start(self) -> None:
        self.act(self._tick)

    def _tick(self) -> None:
        self._tell("heartbeat", self)
        for leader in self.leaders.values():
            leader.tick(now_ms=self._world.now_ms)
        for session in self._fetches.values():
            session.tick(now_ms=self._world.now_ms)
        for key, log in self.logs.items():
            self.disk.notes[key].high_watermark = log.committed_offset
        self.later(TICK_MS, self._tick)

    def _may_crash(self) -> None:
        if self.crash_chance and self._world.random.random() < self.crash_chance:
            raise CrashPoint

    # What the controller decided.

    def learn(self, image: Image) -> None:
        """Apply an image, unless it is older than the one known or from before this process."""
        if self.image is not None and image.version <= self.image.version:
            return
        if self.node_epoch is None or image.node_epochs.get(self.name) != self.node_epoch:
            return
        self.image = image
        for group, state in image.groups.items():
            if self.name in state.replicas:
                self._change_role(group, state)

    def _change_role(self, group: TopicPartition, state: ReplicaSet) -> None:
        leader = self.leaders.get(group)
        if leader is not None and leader.epoch == state.epoch:
            leader.changed(state, now_ms=self._world.now_ms)
            return
        if leader is not None and state.epoch > leader.epoch:
            leader.close()
            self._perform()
            del self.leaders[group]
        if state.leader == self.name:
            self._lead(group, state)
        else:
            self._follow(group, state)

    def _lead(self, group: TopicPartition, state: ReplicaSet) -> None:
        logs = self._logs_of(group)
        if not all(log.epochs.may_lead(state.epoch) for log in logs.values()):
            return
        self._forget(group)
        for log_id, log in logs.items():
            key, start = LogKey(group, log_id), EpochStart(state.epoch, log.end_offset)
            self._note(key, log.end_offset, (start,))
            self._may_crash()
            self._checks.led(self.name, key, state.epoch, self.disk.logs[key])
        self.leaders[group] = GroupLeader(
            self.name,
            state,
            logs,
            heard=self._heard,
            now_ms=self._world.now_ms,
            lag_ms=LAG_MS,
        )
        for log_id in logs:
            self._begin_sync(LogKey(group, log_id))

    def _follow(self, group: TopicPartition, state: ReplicaSet) -> None:
        follower = self.followers.setdefault(group, GroupFollower(self._logs_of(group)))
        if not follower.follow(state.leader, state.epoch):
            return
        self._forget(group, but=state.leader)
        self.followers[group] = follower
        if state.leader is None:
            return
        session = self._fetches.get(state.leader)
        if session is None:
            number = (self.node_epoch or 0) << 32
            session = FetchSession(number=number, bytes_max=8 * FRAME_BYTES)
            self._fetches[state.leader] = session
        for log in self._shapes[group].logs:
            session.add(LogKey(group, log))

    def _forget(self, group: TopicPartition, but: NodeId | None = None) -> None:
        self.followers.pop(group, None)
        for leader, session in self._fetches.items():
            for log in self._shapes[group].logs:
                if leader != but:
                    session.forget(LogKey(group, log))

    def _logs_of(self, group: TopicPartition) -> dict[LogId, ReplicaLog]:
        return {log: self.logs[LogKey(group, log)] for log in self._shapes[group].logs}

    def _note(self, key: LogKey, end_offset: Offset, starts: tuple[EpochStart, ...]) -> None:
        """Make epoch starts durable: in the journal first, then in memory."""
        for epochs in (self.disk.notes[key].epochs, self.logs[key].epochs):
            epochs.truncate(end_offset)
            for start in starts:
                epochs.begin(start)

    # What clients do.

    def publish(self, key: LogKey, value: int) -> None:
        """Append, or find that it is there already; the ack waits for the high watermark."""
        leader = self.leaders.get(key.group)
        if leader is None:
            return
        log = self.disk.logs[key]
        offset = next((o for o, f in enumerate(log.frames, log.start_offset) if f[0] == value), -1)
        if offset < 0:
            try:
                leader.check_append()
            except GoQueueError:
                return
            offset = log.end_offset
            frame = Frame(value, leader.epoch)
            self._checks.wrote(key, offset, frame)
            log.frames.append(frame)
            leader.appended(key.log, log.end_offset)
            self._begin_sync(key)
            for feed in self._feeds.values():
                feed.appended(key)
        leader.wait(key.log, Offset(offset + 1), (key, value, offset))

    def trim(self, key: LogKey, share: float) -> None:
        """Retention: remove some of what is committed."""
        log = self.logs[key]
        if key.group in self.leaders:
            start = Offset(
                log.start_offset + int(share * (log.committed_offset - log.start_offset))
            )
            self._trim(key, start)
            for feed in self._feeds.values():
                feed.moved(key)

    def _trim(self, key: LogKey, start: Offset) -> None:
        if self._shapes[key.group].is_fsynced:
            self._checks.trimmed(self.name, key, self.disk.logs[key], start)
        self.disk.logs[key].trim(start)
        self.logs[key].trimmed(start)

    def fail_disk(self) -> None:
        """EIO: every leadership is given up; then the process ends."""
        for leader in self.leaders.values():
            leader.disk_failed()

    # The disk.

    def _begin_sync(self, key: LogKey) -> None:
        log = self.disk.logs[key]
        if not self._shapes[key.group].is_fsynced:
            self._synced(key, log.end_offset)
        if key not in self._syncing:
            self._syncing[key] = None
            end, cuts = log.end_offset, log.cuts
            delay = self._world.random.randint(1, self.sync_ms_max)
            self.later(delay, lambda: self._end_sync(key, end, cuts))

    def _end_sync(self, key: LogKey, end_offset: Offset, cuts: int) -> None:
        del self._syncing[key]
        log = self.disk.logs[key]
        if cuts == log.cuts:
            log.sync(end_offset)
            self._synced(key, end_offset)
        if log.synced < len(log.frames):
            self._begin_sync(key)

    def _synced(self, key: LogKey, end_offset: Offset) -> None:
        leader, follower = self.leaders.get(key.group), self.followers.get(key.group)
        if leader is not None:
            leader.synced(key.log, end_offset)
        elif follower is not None:
            self._perform_all(key, follower.synced(key.log, end_offset), [])
            for session in self._fetches.values():
                session.touch(key)
        else:
            self.logs[key].synced(end_offset)

    # Effects.

    def _perform(self) -> None:
        for group, leader in list(self.leaders.items()):
            for effect in leader.take_effects():
                match effect:
                    case ProposeIsr():
                        self._tell("propose", (self, group, effect))
                    case WatermarkMoved(log=log, high_watermark=offset):
                        self._moved(LogKey(group, log), offset)
                    case WaitersReleased(waiters=waiters):
                        for waiter in waiters:
                            self._ack(leader.state, waiter)
                    case WaitersFailed():
                        pass

    def _shown(self, key: LogKey, offset: Offset) -> None:
        role = self.leaders.get(key.group) or self.followers[key.group]
        self._checks.shown(str(self), key, role.epoch, self.disk.logs[key], offset)

    def _moved(self, key: LogKey, offset: Offset) -> None:
        if self._shapes[key.group].is_fsynced:
            self._shown(key, offset)
        for feed in self._feeds.values():
            feed.moved(key)

    def _ack(self, state: ReplicaSet, waiter: Any) -> None:
        key, value, offset = waiter
        self.acks.append(value)
        copies = [[disk.logs[key] for disk in self._disks_of(node)] for node in state.replicas]
        if self._shapes[key.group].is_fsynced:
            self._checks.ack(str(self), key, state, (value, offset), copies)
        else:
            self._checks.acked[value] = key

    def _perform_all(self, key: LogKey, effects: list[FollowerEffect], frames: list[Frame]) -> None:
        for effect in effects:
            self._may_crash()
            match effect:
                case NoteEpochs(end_offset=end, starts=starts):
                    self._note(key, end, starts)
                case AppendFrames():
                    self._append(key, effect, frames)
                case TruncateLog() | RestartLog():
                    self._cut(key, effect)
                case TrimLog(start_offset=start):
                    self._trim(key, start)
                case ShowCommitted(committed_offset=offset):
                    if self._shapes[key.group].is_fsynced:
                        self._shown(key, offset)

    def _append(self, key: LogKey, effect: AppendFrames, frames: list[Frame]) -> None:
        disk = self.disk.logs[key]
        assert effect.offset == disk.end_offset
        assert effect.end_offset - effect.offset == len(frames)
        disk.frames += frames
        self.logs[key].appended(disk.end_offset)
        self._begin_sync(key)

    def _cut(self, key: LogKey, effect: TruncateLog | RestartLog) -> None:
        """Cut the log before the notes: messages without an epoch would look like older ones."""
        disk, log, notes = self.disk.logs[key], self.logs[key], self.disk.notes[key]
        self._checks.losses += effect.is_loss
        match effect:
            case TruncateLog(end_offset=end):
                self._checks.dropped(self.name, key, disk, end)
                disk.truncate(end)
                self._may_crash()
                log.truncated(end)
                notes.epochs.truncate(end)
            case RestartLog(start_offset=start):
                self._checks.dropped(self.name, key, disk, start)
                disk.restart(start)
                self._may_crash()
                log.restarted(start)
                notes.epochs.clear()

    # Fetching.

    def _talk(self) -> None:
        """Send what is to be said to other nodes now."""
        now_ms = self._world.now_ms
        for leader, session in self._fetches.items():
            while request := session.next_request(self._position, now_ms=now_ms):
                assert self.node_epoch is not None
                self._tell("fetch", (leader, Fetching(self.name, self.node_epoch, request)))
        for node, feed in self._feeds.items():
            while feed.is_due(now_ms=now_ms):
                self._feed(node, feed)

    def _position(self, key: LogKey) -> FetchPosition:
        position = self.followers[key.group].position(key.log)
        if self._shapes[key.group].is_fsynced:
            log = self.disk.logs[key]
            self._checks.reported(self.name, key, log, position.durable_offset)
        return position

    def fed(self, fed: Fed) -> None:
        """Take an answer of a leader."""
        session = self._fetches.get(fed.node)
        if session is None:
            return
        for key, part in session.take(fed.answer, now_ms=self._world.now_ms):
            follower = self.followers.get(key.group)
            if follower is None or follower.leader != fed.node:
                continue
            self._perform_all(key, follower.take(key.log, part), fed.frames.get(key, []))
            session.touch(key)

    # Being fetched from.

    def fetch(self, fetching: Fetching) -> None:
        """Take a request of a follower, if it is the process that the controller knows."""
        node, request = fetching.node, fetching.request
        if self.image is None or self.image.node_epochs.get(node) != fetching.node_epoch:
            self._answer(node, unknown_session(request), {})
            return
        self._heard[node] = self._world.now_ms
        self._node_epochs[node] = fetching.node_epoch
        feed = self._feeds.get(node)
        if request.sequence == 0 and (feed is None or request.session > feed.number):
            feed = self._feeds[node] = FeedSession(request.session)
        source = self._feeder(node)
        now_ms = self._world.now_ms
        if feed is None or feed.take(request, source, now_ms=now_ms) is RequestFate.UNKNOWN:
            self._answer(node, unknown_session(request), {})
            return
        self.later(request.wait_ms, lambda: None)

    def _feed(self, node: NodeId, feed: FeedSession) -> None:
        source = self._feeder(node)
        plan = feed.plan(source, now_ms=self._world.now_ms)
        if plan is None:
            return
        read: dict[LogKey, Offset] = {}
        frames: dict[LogKey, list[Frame]] = {}
        for share in plan.shares:
            count = max(share.bytes_max // FRAME_BYTES, 1)
            found = self.disk.logs[share.key].tail(share.offset)[:count]
            frames[share.key] = found
            read[share.key] = Offset(share.offset + len(found))
        self._answer(node, feed.finish(plan, read, source), frames)

    def _answer(
        self, node: NodeId, answer: SessionAnswer, frames: dict[LogKey, list[Frame]]
    ) -> None:
        self._tell("feed", (node, Fed(self.name, answer, frames)))

    def answered(self, group: TopicPartition, answer: IsrAnswer) -> None:
        """Take the controller's answer to a proposal."""
        leader = self.leaders.get(group)
        if leader is not None:
            leader.answered(answer, now_ms=self._world.now_ms)

    @property
    def feeds(self) -> list[FeedSession]:
        return list(self._feeds.values())

    def _feeder(self, node: NodeId) -> SimFeeder:
        node_epoch = self._node_epochs[node]
        return SimFeeder(self.leaders, node, node_epoch, now_ms=self._world.now_ms)
