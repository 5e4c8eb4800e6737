"""A node of a cluster whose entries are ordered by an etcd that is already run.

The leader is the node that wrote the key of the leader, which goes with its lease; the revision of
that write is its term. The decision and what it rests on: docs/adr/0060.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from goqueue.base.cluster_limits import (
    ETCD_COMPACT_BATCHES,
    ETCD_COMPACT_BYTES,
    RAFT_ENTRY_BYTES_MAX,
    RAFT_UNCOMMITTED_BYTES_MAX,
)
from goqueue.base.errors import (
    ClosedError,
    DeadlineExceededError,
    GoQueueError,
    InvalidRequestError,
    NotLeaderError,
    OverloadedError,
    TooLargeError,
)
from goqueue.core.raft.messages import ChangeKind, EntryKind, MembershipChange, PeerId
from goqueue.core.raft.quorum import changed, encode_change
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.consensus import Leading, Outcome, QuorumMembers, StateMachine
from goqueue.runtime.cluster.etcd.api import (
    DeleteKeys,
    Etcd,
    EtcdError,
    ModifiedAt,
    PutKey,
    ReadKeys,
)
from goqueue.runtime.cluster.etcd.feed import EtcdFeed
from goqueue.runtime.cluster.etcd.records import (
    EtcdKeys,
    LeaderRecord,
    LogItem,
    decode_head,
    decode_node,
    encode_record,
)
from goqueue.runtime.cluster.etcd.replica import EtcdReplica
from goqueue.runtime.cluster.etcd.session import EtcdSession
from goqueue.runtime.cluster.etcd.writer import EtcdWriter

log = get_logger("goqueue.cluster")

LEASE_SECONDS: Final = 2
"""How long a leader of which nothing is heard leads; etcd gives no less by default."""
CAMPAIGN_SECONDS: Final = 0.5
"""After so long the key of the leader is tried again; the feed wakes a candidate earlier."""
CHECK_SECONDS: Final = 2.0
"""How often the feed is compared with what is in etcd."""
PAUSE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdConsensusConfig:
    """The settings of a node whose quorum is an etcd."""

    peer: PeerId
    founders: Sequence[PeerId] = ()
    """The first voters, if this node may begin the cluster; all founders name the same."""
    prefix: str = "goqueue"
    lease_seconds: int = LEASE_SECONDS
    timeout_ms: int = 5_000
    """How long a proposal, a read or a transfer waits."""
    compact_batches: int = ETCD_COMPACT_BATCHES
    compact_bytes: int = ETCD_COMPACT_BYTES


class EtcdConsensus:
    """A node that takes part through etcd: an implementation of ``Consensus``."""

    def __init__(self, config: EtcdConsensusConfig, etcd: Etcd, machine: StateMachine) -> None:
        self._config = config
        self._etcd = etcd
        self._machine = machine
        keys = self._keys = EtcdKeys(config.prefix)
        self._replica = EtcdReplica(machine)
        self._session = EtcdSession(etcd, keys.node(config.peer), config.lease_seconds, self._note)
        founders = tuple(config.founders)
        self._feed = EtcdFeed(etcd, keys, self._replica, founders, self._note)
        self._writer = EtcdWriter(
            etcd,
            keys,
            self._replica,
            self._note,
            compact_batches=config.compact_batches,
            compact_bytes=config.compact_bytes,
        )
        self._noted: Leading | None = None
        self._turned = asyncio.Event()
        """Set when something was applied or another node leads, and replaced."""
        self._tasks: list[asyncio.Task[None]] = []
        self.failure: GoQueueError | None = None
        """Why this node takes part no longer, if it is not its host who ended that."""

    def __repr__(self) -> str:
        return f"<EtcdConsensus {self._config.peer}: {self._replica!r}>"

    @property
    def leading(self) -> Leading:
        """Who leads, as far as this node knows; while it has no lease it knows of no leader."""
        replica, lease = self._replica, self._session.lease
        leader = replica.leader
        is_own = leader is not None and leader.lease == lease and self.failure is None
        known = leader.peer if leader is not None and lease else None
        if known == self._config.peer and not is_own:
            # A leader's key of an earlier process, or of a lease that was lost.
            known = None
        return Leading(leader=known, term=replica.term, is_own=is_own and known is not None)

    @property
    def members(self) -> QuorumMembers:
        """Who takes part, as far as this node has applied it. Voters are those that may lead."""
        membership = self._replica.membership
        return QuorumMembers(
            voters=membership.voters,
            learners=membership.learners,
            active=membership.nodes,
            is_by_majority=False,
        )

    @property
    def applied_index(self) -> int:
        """The last entry that is applied here."""
        return self._replica.index

    async def start(self) -> None:
        """Begin to take part. The state machine is restored as soon as etcd can be reached."""
        assert not self._tasks, "started once"
        works = (self._session.run, self._feed.run, self._writer.run, self._campaign, self._check)
        loop = asyncio.get_running_loop()
        for work in works:
            self._tasks.append(loop.create_task(self._guard(work)))

    async def stop(self) -> None:
        """Take part no longer and let another node lead at once; waits end with an error."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._end_waits(ClosedError("the quorum was stopped"))
        await self._session.stop()
        await self._etcd.close()

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except GoQueueError as error:
            await self._leave(error)
        except Exception:
            log.exception(LogEvent.QUORUM_CRASHED, peer=self._config.peer)
            await self._leave(ClosedError("the quorum ended by a mistake of its own; see the log"))

    async def _leave(self, error: GoQueueError) -> None:
        """Take part no longer: what this node has applied may not be what the others have."""
        if not isinstance(error, ClosedError):
            log.error(LogEvent.ETCD_QUORUM_FAILED, peer=self._config.peer, error=error.message)
        self.failure = error
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._end_waits(error)
        self._note()
        await self._session.stop()

    # What is asked for

    async def propose(self, data: bytes) -> Outcome:
        """Have an entry applied on all nodes."""
        if len(data) > RAFT_ENTRY_BYTES_MAX:
            raise TooLargeError(f"a proposal has {len(data)} bytes")
        return await self._propose(LogItem(EntryKind.DATA, data))

    async def add_learner(self, peer: PeerId) -> None:
        """Let a node take part that never leads, or lead no longer."""
        await self._change(ChangeKind.ADD_LEARNER, peer)

    async def promote(self, peer: PeerId) -> None:
        """Let a node lead."""
        await self._change(ChangeKind.ADD_VOTER, peer)

    async def remove(self, peer: PeerId) -> None:
        """Let a node no longer take part."""
        await self._change(ChangeKind.REMOVE, peer)

    async def _change(self, kind: ChangeKind, peer: PeerId) -> None:
        self._check_leading()
        change = MembershipChange(kind, peer)
        if self._replica.is_changing:
            raise OverloadedError("another change of the membership is under way")
        if changed(self._replica.membership, change) is None:
            raise InvalidRequestError("there would be no voter left, or too many members")
        await self._propose(LogItem(EntryKind.CHANGE, encode_change(change)))

    async def _propose(self, item: LogItem) -> Outcome:
        self._check_leading()
        size = self._replica.queued_bytes
        if size and size + len(item.data) > RAFT_UNCOMMITTED_BYTES_MAX:
            raise OverloadedError("too many proposals wait for the quorum")
        waiting = self._replica.queue(item)
        self._writer.wake()
        async with self._deadline():
            return await waiting.future

    async def barrier(self) -> int:
        """Return an index when all before it is applied here that was applied anywhere."""
        async with self._deadline():
            index = await self._head_index()
            while not self._replica.is_loaded or self._replica.index < index:
                await self._turn()
            return index

    async def _head_index(self) -> int:
        while True:
            self._check_running()
            try:
                reply = await self._etcd.range(ReadKeys(self._keys.head))
            except EtcdError:
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                return decode_head(reply.items[0].value).index if reply.items else 0

    async def transfer(self, peer: PeerId) -> None:
        """Make another voter the leader: its lease takes over the key in one step."""
        self._check_leading()
        if not self._replica.is_voter(peer):
            raise InvalidRequestError(f"node {peer} has no vote, so it cannot lead")
        term = self._replica.leader_revision
        async with self._deadline():
            while self.leading.leader != peer:
                self._check_running()
                if self._replica.leader_revision != term:
                    raise NotLeaderError("another node took the lead")
                try:
                    await self._hand_over(peer, term)
                except EtcdError:
                    await asyncio.sleep(PAUSE_SECONDS)

    async def _hand_over(self, peer: PeerId, term: int) -> None:
        turned, node_key, leader_key = self._turned, self._keys.node(peer), self._keys.leader
        found = (await self._etcd.range(ReadKeys(node_key))).items
        if found:
            lease = decode_node(found[0].value).lease
            conditions = [ModifiedAt(leader_key, term), ModifiedAt(node_key, found[0].modified_at)]
            record = encode_record(LeaderRecord(peer, lease))
            await self._etcd.txn(conditions, [PutKey(leader_key, record, lease)])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CAMPAIGN_SECONDS):
                await turned.wait()

    @contextlib.asynccontextmanager
    async def _deadline(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._config.timeout_ms / 1_000):
                yield
        except TimeoutError:
            raise DeadlineExceededError("the quorum did not answer in time") from None

    async def _turn(self) -> None:
        self._check_running()
        await self._turned.wait()
        self._check_running()

    def _check_running(self) -> None:
        if self.failure is not None:
            raise self.failure
        if not self._tasks:
            raise ClosedError("the quorum is not running")

    def _check_leading(self) -> None:
        self._check_running()
        if not self.leading.is_own:
            raise NotLeaderError("this node does not lead the quorum")

    # What is done

    def _note(self) -> None:
        """See what changed: called whenever the feed or the lease went on."""
        leading = self.leading
        before, self._noted = self._noted, leading
        if before != leading and (before is not None or leading.leader is not None):
            log.info(
                LogEvent.QUORUM_LEADER,
                peer=self._config.peer,
                leader=leading.leader,
                term=leading.term,
            )
            self._machine.leadership_changed(leading)
        self._writer.wake()
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    def _end_waits(self, error: GoQueueError) -> None:
        self._replica.end(error)
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    async def _campaign(self) -> None:
        """Become the leader when there is none; leave the lead when this node has no vote."""
        while True:
            turned = self._turned
            try:
                await self._try_to_lead()
            except EtcdError as error:
                log.debug(LogEvent.ETCD_WRITE_UNKNOWN, index=None, error=str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CAMPAIGN_SECONDS):
                    await turned.wait()

    async def _try_to_lead(self) -> None:
        replica, lease, peer = self._replica, self._session.lease, self._config.peer
        leader = replica.leader
        key, condition = self._keys.leader, ModifiedAt(self._keys.leader, replica.leader_revision)
        if not lease or not replica.is_loaded or (leader is not None and leader.peer != peer):
            return
        if not replica.is_voter(peer):
            if leader is not None:
                await self._etcd.txn([condition], [DeleteKeys(key)])
        elif leader is None or leader.lease != lease:
            record = encode_record(LeaderRecord(peer, lease))
            await self._etcd.txn([condition], [PutKey(key, record, lease)])

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self._feed.check()
            except EtcdError as error:
                log.debug(LogEvent.ETCD_READ_FAILED, error=str(error))
