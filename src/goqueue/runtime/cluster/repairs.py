"""Repairing damaged logs of this node from other replicas, and answering nodes that repair theirs.

A message is known by its epoch and its offset, so any replica that has both has the message: a
leader is repaired from its followers as well as a follower from its leader. Damage is found when
it is read, when it is copied, when state is loaded, and by a slow walk over everything.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from goqueue.base.cluster_limits import REPAIR_BYTES_MAX
from goqueue.base.errors import CorruptFrameError, GoQueueError
from goqueue.base.ids import NodeId, Offset, TopicPartition
from goqueue.base.limits import FETCH_BYTES_MAX
from goqueue.base.units import SECOND_MS
from goqueue.core.log.rewrite import cut_to
from goqueue.core.replication.epochs import EpochStart
from goqueue.core.replication.replica import LogKey
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.group_log import GroupLog
from goqueue.runtime.cluster.image_source import ImageSource
from goqueue.runtime.cluster.isr_proposals import find_topic
from goqueue.runtime.cluster.links import Handler, Links, PeerReply
from goqueue.runtime.cluster.replica_group import ReplicaGroup
from goqueue.runtime.log.leadership import Mending
from goqueue.runtime.log.mending import Mended, SegmentMender
from goqueue.runtime.log.replica import check_stored
from goqueue.storage.disk import Disk
from goqueue.storage.log_notes import Gap
from goqueue.wire.packet import Buffer
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation
from goqueue.wire.repair_calls import (
    RepairFetch,
    RepairFetched,
    RepairOutcome,
    decode_repair_fetch,
    decode_repair_fetched,
)
from goqueue.wire.replica_calls import key_of, name_of

ASK_SECONDS: Final = 3.0
"""How long one replica may take to answer."""

WAIT_SECONDS: Final = 5.0
"""How long a reader waits for a repair; it goes on meanwhile."""

LATER_MS: Final = SECOND_MS
"""Pause before replicas are asked again that could not be reached."""

ABSENT_MS: Final = 5 * SECOND_MS
"""Pause where those that must have it do not, and another replica could not be reached."""

LOST_MS: Final = 60 * SECOND_MS
"""Pause before replicas are asked again when all of them have said that they do not have it."""

LOOK_SECONDS: Final = 1.0
"""How often known damage is looked for."""

log = get_logger("goqueue.replicas")


class RepairHost(Protocol):
    """What repairs need of their node."""

    @property
    def node(self) -> NodeId:
        """The name of this node."""
        ...

    @property
    def groups(self) -> Mapping[TopicPartition, ReplicaGroup]:
        """The replica groups of this node."""
        ...

    def now_ms(self) -> int:
        """Return steady milliseconds."""
        ...


class _Missing(NamedTuple):
    """What a repair could not get, and until when that is believed."""

    gaps: tuple[Gap, ...]
    outcome: Mending
    until_ms: int
    is_lost: bool = False
    """Whether every replica has answered."""


class Repairs:
    """One repair of a log at a time; readers that meet the same damage wait for it together."""

    def __init__(self, host: RepairHost, source: ImageSource, links: Links, disk: Disk) -> None:
        self._host, self._source, self._links = host, source, links
        self._mender = SegmentMender(disk)
        self._under_way: dict[LogKey, asyncio.Task[Mending]] = {}
        self._missing: dict[LogKey, _Missing] = {}
        self._looking: asyncio.Task[None] | None = None
        self.messages_repaired = 0
        self.frames_given = 0

    def __repr__(self) -> str:
        return f"<Repairs: {self.messages_repaired} messages, {len(self._under_way)} under way>"

    # Life.

    def start(self) -> None:
        """Repair what is known to be damaged, and whatever becomes known."""
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def stop(self) -> None:
        """Begin no more and end what is under way; a crash in between would do no harm either."""
        if self._looking is not None:
            self._looking.cancel()
        tasks = [*self._under_way.values(), *filter(None, [self._looking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def handlers(self) -> Mapping[PeerOperation, Handler]:
        """Return what answers the requests of peers."""
        return {PeerOperation.REPAIR: self._answer}

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for one in self._logs():
                gaps = [] if one.partition is None else list(one.partition.log.recovery.gaps)
                for gap in gaps:
                    if self._known_missing(one.key, gap) is None:
                        await self.mend(one.key, gap)

    def _logs(self) -> Iterable[GroupLog]:
        return [one for group in list(self._host.groups.values()) for one in group.logs.values()]

    # Repairing.

    async def mend(self, key: LogKey, gap: Gap) -> Mending:
        """Repair the segment that a gap begins in; say what became of the gap."""
        known = self._known_missing(key, gap)
        if known is not None:
            return known.outcome
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._mend(key, gap))
            self._under_way[key] = task
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        await asyncio.wait([task], timeout=WAIT_SECONDS)
        if not task.done() or task.cancelled():
            return Mending.LATER
        return task.result()

    def _known_missing(self, key: LogKey, gap: Gap) -> _Missing | None:
        known = self._missing.get(key)
        if known is None or known.until_ms <= self._host.now_ms():
            return None
        overlaps = any(
            one.start_offset < gap.end_offset and gap.start_offset < one.end_offset
            for one in known.gaps
        )
        return known if overlaps else None

    async def _mend(self, key: LogKey, gap: Gap) -> Mending:
        try:
            one = self._find(key)
            if one is None:
                return Mending.LATER
            source = _Source(self, one)
            assert one.partition is not None, "found"
            assert one.replica is not None, "found"
            mended = await self._mender.mend(
                one.partition, gap.start_offset, source.fetch, one.replica.note
            )
        except GoQueueError as error:
            self._failed(key, gap, error)
            return Mending.LATER
        except Exception:
            log.exception(LogEvent.REPAIR_CRASHED, partition=str(key))
            self._missing[key] = self._until((gap,), Mending.LOST)
            return Mending.LATER
        return self._finished(one, gap, mended, source)

    def _failed(self, key: LogKey, gap: Gap, error: GoQueueError) -> None:
        self._missing[key] = self._until((gap,), Mending.LATER)
        log.warning(
            LogEvent.REPAIR_FAILED,
            partition=str(key),
            error=error.message,
            retry_in_ms=LATER_MS,
        )

    def _finished(self, one: GroupLog, gap: Gap, mended: Mended, source: "_Source") -> Mending:
        assert one.partition is not None, "found"
        for done in mended.repaired:
            self.messages_repaired += done.end_offset - done.start_offset
            log.warning(
                LogEvent.MESSAGES_REPAIRED,
                partition=str(one.key),
                offsets=list(done),
                sources=sorted(source.used),
            )
        if not mended.left:
            self._missing.pop(one.key, None)
            return Mending.DONE
        outcome = Mending.LATER if source.is_blocked else Mending.LOST
        missing = self._until(mended.left, outcome, is_lost=not source.unreachable)
        self._missing[one.key] = missing
        log.error(
            LogEvent.MESSAGES_NOT_REPAIRED,
            partition=str(one.key),
            offsets=[list(left) for left in mended.left],
            unreachable=sorted(source.unreachable),
            retry_in_ms=missing.until_ms - self._host.now_ms(),
        )
        if outcome is Mending.LOST:
            for left in mended.left:
                one.partition.snapshots.now_known(left)
        found = self._known_missing(one.key, gap)
        return Mending.DONE if found is None else outcome

    def _until(self, gaps: tuple[Gap, ...], outcome: Mending, *, is_lost: bool = False) -> _Missing:
        pause_ms = LATER_MS if outcome is Mending.LATER else ABSENT_MS
        until_ms = self._host.now_ms() + (LOST_MS if is_lost else pause_ms)
        return _Missing(gaps, outcome, until_ms, is_lost=is_lost)

    def _find(self, key: LogKey) -> GroupLog | None:
        group = self._host.groups.get(key.group)
        one = None if group is None else group.logs.get(key.log)
        return None if one is None or one.partition is None else one

    # Asking.

    def is_lost(self, key: LogKey, gap: Gap) -> bool:
        """Return True if every replica has said that it does not have the messages either."""
        known = self._known_missing(key, gap)
        return known is not None and known.is_lost

    def replicas_of(self, key: LogKey) -> tuple[list[NodeId], set[NodeId]]:
        """Return the other replicas, likeliest first, and those that have all that is committed."""
        topic = find_topic(self._source.image, key.group.topic)
        if topic is None or key.group.partition >= len(topic.partitions):
            return [], set()
        record = topic.partitions[key.group.partition]
        sure = {*record.isr_ids, *record.elr_ids} - {self._host.node}
        order = [record.leader_id, *record.isr_ids, *record.elr_ids, *record.replicas]
        others = [node for node in dict.fromkeys(order) if node not in (None, self._host.node)]
        return [node for node in others if node is not None], sure

    async def ask(self, node: NodeId, one: GroupLog, gap: Gap) -> bytes | None:
        """Return frames that a node has from the start of a gap on; None if it has not the first.

        Raises if it could not be asked. What it says is checked as if it were a stranger's.
        """
        topic = find_topic(self._source.image, one.key.group.topic)
        if topic is None:
            raise GoQueueError(f"{one.key} is gone")
        starts = one.own.epochs.between(start_offset=gap.start_offset, end_offset=gap.end_offset)
        call = RepairFetch(
            topic.id,
            name_of(one.key),
            gap.start_offset,
            gap.end_offset,
            [(start.epoch, start.start_offset) for start in starts],
            FETCH_BYTES_MAX,
        )
        packet = await self._links.request(node, PeerOperation.REPAIR, call, timeout_s=ASK_SECONDS)
        fetched = decode_repair_fetched(packet.header)
        if fetched.outcome is RepairOutcome.NOT_READY:
            raise GoQueueError(f"{node} does not know {one.key} yet")
        if fetched.outcome is RepairOutcome.MISSING:
            return None
        frames = memoryview(bytes(packet.payload))
        spans = check_stored(frames, end_offset=gap.start_offset)
        if spans[-1].end_offset > gap.end_offset:
            raise CorruptFrameError(f"{node} sent more of {one.key} than was asked for")
        assert one.partition is not None, "found"
        # What compaction has removed here does not come back.
        empty = one.partition.queue.empty
        return cut_to(frames, start_offset=gap.start_offset, end_offset=gap.end_offset, empty=empty)

    # Answering.

    async def _answer(self, _: PeerIdentity, header: Buffer, __: memoryview) -> PeerReply:
        call = decode_repair_fetch(memoryview(header))
        key = key_of(call.name)
        topic = find_topic(self._source.image, key.group.topic)
        if topic is None or topic.id != call.topic_id or key.group not in self._host.groups:
            return PeerReply(RepairFetched(RepairOutcome.NOT_READY, 0))
        one = self._find(key)
        frames = b"" if one is None else await self._read(one, call)
        if not frames:
            return PeerReply(RepairFetched(RepairOutcome.MISSING, 0))
        self.frames_given += 1
        end = check_stored(memoryview(frames), end_offset=Offset(call.start_offset))[-1].end_offset
        return PeerReply(RepairFetched(RepairOutcome.FOUND, end), (frames,))

    @staticmethod
    async def _read(one: GroupLog, call: RepairFetch) -> bytes:
        """Return frames of a range as they lie here, as far as they are the same messages."""
        partition, start = one.partition, Offset(call.start_offset)
        assert partition is not None, "found"
        end = Offset(min(call.end_offset, partition.log.end_offset))
        if not partition.log.start_offset <= start < end:
            return b""
        starts = [EpochStart(epoch, offset) for epoch, offset in call.epochs]  # type: ignore[arg-type]
        end = one.own.epochs.agreed_end(starts, start_offset=start, end_offset=end)
        if end <= start:
            return b""
        piece = await partition.read(
            start,
            end_offset=end,
            bytes_max=min(call.bytes_max, REPAIR_BYTES_MAX),
            is_copy=True,
            is_own=False,
        )
        nothing = type(partition.queue.empty)()
        return cut_to(piece.frames, start_offset=start, end_offset=end, empty=nothing)


class _Source:
    """The other replicas of one log, asked in turn for one repair."""

    def __init__(self, repairs: Repairs, one: GroupLog) -> None:
        self._repairs = repairs
        self._one = one
        self.used: set[NodeId] = set()
        self.unreachable: set[NodeId] = set()
        self.is_blocked = False
        """Whether a replica could not be asked that has everything that is committed."""

    async def fetch(self, gap: Gap) -> bytes:
        """Return frames from the start of a gap on, as many as the others have together."""
        parts: list[bytes] = []
        reached, size = gap.start_offset, 0
        while reached < gap.end_offset and size < REPAIR_BYTES_MAX:
            frames = await self._ask_all(Gap(reached, gap.end_offset))
            if not frames:
                break
            parts.append(frames)
            size += len(frames)
            reached = check_stored(memoryview(frames), end_offset=reached)[-1].end_offset
        return b"".join(parts)

    async def _ask_all(self, gap: Gap) -> bytes | None:
        others, sure = self._repairs.replicas_of(self._one.key)
        for node in others:
            try:
                frames = await self._repairs.ask(node, self._one, gap)
            except GoQueueError as error:
                self.unreachable.add(node)
                self.is_blocked |= node in sure
                log.info(
                    LogEvent.REPAIR_NOT_ANSWERED,
                    partition=str(self._one.key),
                    node=node,
                    error=error.message,
                )
                continue
            if frames:
                self.used.add(node)
                return frames
        return None
