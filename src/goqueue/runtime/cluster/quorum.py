"""The embedded quorum at work: the stepper of ``core/raft`` with time, a disk and a network.

One task carries out effects, one round after the other: messages go out, the write is synced in a
thread, replies go out, entries are applied. Messages that arrive meanwhile are stepped at once and
their effects wait for the next round, so one sync serves many proposals.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from goqueue.base.cluster_limits import (
    RAFT_ENTRIES_KEPT,
    RAFT_ENTRY_BYTES_MAX,
    RAFT_JOURNAL_BYTES_COMPACT,
    RAFT_SNAPSHOT_BYTES_MAX,
)
from goqueue.base.errors import (
    ClosedError,
    DeadlineExceededError,
    DiskFullError,
    GoQueueError,
    OverloadedError,
    ProtocolError,
    TooLargeError,
)
from goqueue.core.raft.messages import (
    NO_PEER,
    ChangeKind,
    Effects,
    Entry,
    EntryKind,
    MembershipChange,
    PeerId,
    RaftMessage,
    RaftRole,
    ReadState,
    StoredState,
)
from goqueue.core.raft.raft import Raft
from goqueue.core.raft.state import RaftConfig
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.consensus import Leading, Outcome, QuorumMembers, StateMachine
from goqueue.runtime.cluster.proposals import Proposals
from goqueue.storage.raft_store import RaftStore
from goqueue.wire.raft_messages import decode_message, encode_message

log = get_logger("goqueue.cluster")

Send = Callable[[PeerId, bytes], None]
"""Hand a message to the network, which may lose, repeat or delay it. Returns at once."""

RETRY_TICKS: Final = 10
"""How long a read waits for its answer before it is asked for again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumConfig:
    """The settings of a node of the quorum."""

    peer: PeerId
    tick_ms: int = 50
    heartbeat_ticks: int = 5
    """A leader is heard of every 250 ms."""
    election_ticks: int = 20
    """Without a leader for 1 to 2 s there is an election."""
    timeout_ms: int = 5_000
    """How long a proposal, a read or a transfer waits."""
    compact_bytes: int = RAFT_JOURNAL_BYTES_COMPACT
    """The journal is replaced by a snapshot when it has grown to this."""


class Quorum:
    """A node of the embedded quorum: an implementation of ``Consensus``."""

    def __init__(
        self, config: QuorumConfig, store: RaftStore, machine: StateMachine, send: Send
    ) -> None:
        assert store.restored is not None, "founded, joined, or found on the disk"
        self._config = config
        self._store = store
        self._machine = machine
        self._send = send
        raft_config = RaftConfig(
            node=config.peer,
            election_ticks=config.election_ticks,
            heartbeat_ticks=config.heartbeat_ticks,
        )
        self._raft = Raft(raft_config, store.restored, _draw)
        self._proposals = Proposals()
        self._reads: dict[int, asyncio.Future[int]] = {}
        self._read_number = 0
        self._wake = asyncio.Event()
        self._turned = asyncio.Event()
        """Set at the end of each round of effects, and replaced."""
        self._task: asyncio.Task[None] | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._compact_bytes = config.compact_bytes
        self._is_stopping = False
        self.failure: GoQueueError | None = None
        """Why this node takes part no longer, if it is not its host who ended that."""
        self.failed = asyncio.Event()
        """Set when there is a failure."""

    def __repr__(self) -> str:
        return f"<Quorum: {self._raft!r}>"

    @property
    def leading(self) -> Leading:
        """Who leads, as far as this node knows."""
        state = self._raft.leadership
        is_heard = state.leader != NO_PEER and self.failure is None
        return Leading(
            leader=state.leader if is_heard else None,
            term=state.term,
            is_own=is_heard and state.role is RaftRole.LEADER,
        )

    @property
    def members(self) -> QuorumMembers:
        """Who takes part, as far as this node has applied it."""
        membership = self._raft.membership
        return QuorumMembers(
            voters=membership.voters,
            learners=membership.learners,
            recovering=membership.recovering,
            active=self._raft.active,
        )

    @property
    def is_quarantined(self) -> bool:
        """Return True while this node has no vote because it lost data."""
        return self._raft.is_quarantined

    @property
    def applied_index(self) -> int:
        """The last entry that is applied here."""
        return self._raft.log.applied

    async def start(self) -> None:
        """Restore the state machine and begin to take part."""
        assert self._task is None, "started once"
        self._machine.restore(self._raft.log.snapshot.data)
        if self._raft.is_quarantined:
            log.error(LogEvent.QUORUM_DATA_LOST, peer=self._config.peer)
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._tick()

    async def stop(self) -> None:
        """Take part no longer, once the write under way is over; waits end with an error."""
        self._is_stopping = True
        if self._ticker is not None:
            self._ticker.cancel()
        task, self._task = self._task, None
        if task is not None:
            self._wake.set()
            await task
        self._end_waits(ClosedError("the quorum was stopped"))
        self._store.close()

    def receive(self, raw: bytes | memoryview) -> None:
        """Take a message of another node; what makes no sense raises ProtocolError."""
        message = decode_message(raw)
        if message.to != self._config.peer:
            raise ProtocolError(f"a message for member {message.to} came to {self._config.peer}")
        if self._task is not None and self.failure is None:
            self._raft.step(message)
            self._wake.set()

    def unreachable(self, peer: PeerId) -> None:
        """Note that messages to a node were lost, so that fewer are sent ahead."""
        self._raft.unreachable(peer)

    # What is asked for

    async def propose(self, data: bytes) -> Outcome:
        """Have an entry applied on all nodes."""
        if len(data) > RAFT_ENTRY_BYTES_MAX:
            raise TooLargeError(f"a proposal has {len(data)} bytes")
        self._check_running()
        return await self._applied(self._raft.propose([data]))

    async def add_learner(self, peer: PeerId) -> None:
        """Let a node take part without a vote, or take its vote."""
        await self._change(ChangeKind.ADD_LEARNER, peer)

    async def promote(self, peer: PeerId) -> None:
        """Give a node a vote."""
        await self._change(ChangeKind.ADD_VOTER, peer)

    async def remove(self, peer: PeerId) -> None:
        """Let a node no longer take part."""
        await self._change(ChangeKind.REMOVE, peer)

    async def _change(self, kind: ChangeKind, peer: PeerId) -> None:
        self._check_running()
        await self._applied(self._raft.propose_change(MembershipChange(kind, peer)))

    async def _applied(self, index: int) -> Outcome:
        future = self._proposals.add(index, self._raft.term)
        self._wake.set()
        async with self._deadline():
            return await future

    async def barrier(self) -> int:
        """Return an index when all before it is applied here that was applied anywhere."""
        async with self._deadline():
            index = await self._read_index()
            while self._raft.log.applied < index:
                self._check_running()
                await self._turned.wait()
            return index

    async def _read_index(self) -> int:
        seconds = RETRY_TICKS * self._config.tick_ms / 1_000
        while True:
            self._check_running()
            self._read_number += 1
            number = self._read_number
            if not self._raft.read(number):
                await self._turned.wait()
                continue
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._reads[number] = future
            self._wake.set()
            try:
                await asyncio.wait((future,), timeout=seconds)
            finally:
                del self._reads[number]
            if future.done():
                return future.result()

    async def transfer(self, peer: PeerId) -> None:
        """Make another voter the leader."""
        self._check_running()
        self._raft.transfer(peer)
        self._wake.set()
        async with self._deadline():
            while self.leading.leader != peer:
                self._check_running()
                await self._turned.wait()

    @contextlib.asynccontextmanager
    async def _deadline(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._config.timeout_ms / 1_000):
                yield
        except TimeoutError:
            raise DeadlineExceededError("the quorum did not answer in time") from None

    def _check_running(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._task is None:
            raise ClosedError("the quorum is not running")

    # What is done

    def _tick(self) -> None:
        """Let time pass in ticks. After a stall of the loop it is one tick, not many."""
        loop = asyncio.get_running_loop()
        self._ticker = loop.call_later(self._config.tick_ms / 1_000, self._tick)
        if self.failure is None:
            self._raft.tick()
            self._wake.set()

    async def _run(self) -> None:
        try:
            while not self._is_stopping:
                await self._wake.wait()
                self._wake.clear()
                while self._raft.has_effects and not self._is_stopping:
                    await self._carry_out(self._raft.take_effects())
                    self._end_round()
                self._end_round()
        except GoQueueError as error:
            self._leave(error)
        except Exception:
            log.exception(LogEvent.QUORUM_CRASHED, peer=self._config.peer)
            self._leave(ClosedError("the quorum ended by a mistake of its own; see the log"))

    def _leave(self, error: GoQueueError) -> None:
        """Take part no longer: what this node says next might contradict what it said before."""
        if not isinstance(error, ClosedError):
            log.error(LogEvent.QUORUM_FAILED, peer=self._config.peer, error=error.message)
        self.failure = error
        self._end_waits(error)
        if not self._is_stopping:
            # Its host knows nothing new from now on: not who leads, not what was decided.
            self._note_leadership()
            self.failed.set()

    async def _carry_out(self, effects: Effects) -> None:
        self._post(effects.messages)
        if effects.must_persist:
            await self._persist(effects)
        self._raft.persisted(effects)
        self._post(effects.replies)
        if effects.snapshot is not None:
            self._machine.restore(effects.snapshot.data)
            self._proposals.passed(effects.snapshot.index)
        for entry in effects.committed:
            self._apply(entry)
        self._raft.applied(effects)
        self._answer_reads(effects.reads)
        if effects.leadership is not None:
            self._note_leadership()
        await self._compact()

    def _answer_reads(self, reads: Sequence[ReadState]) -> None:
        for read in reads:
            waiting = self._reads.get(read.context)
            if waiting is not None and not waiting.done():
                waiting.set_result(read.index)

    def _post(self, messages: Sequence[RaftMessage]) -> None:
        for message in messages:
            self._send(message.to, encode_message(message))

    def _apply(self, entry: Entry) -> None:
        is_data = entry.kind is EntryKind.DATA
        result = self._machine.apply(entry.index, entry.data) if is_data else None
        self._proposals.applied(entry, result)

    def _note_leadership(self) -> None:
        leading = self.leading
        log.info(
            LogEvent.QUORUM_LEADER, peer=self._config.peer, leader=leading.leader, term=leading.term
        )
        self._machine.leadership_changed(leading)

    async def _persist(self, effects: Effects) -> None:
        """Make a vote, entries or a snapshot durable. A full disk is waited for."""
        while not self._is_stopping:
            try:
                await asyncio.to_thread(self._write, effects)
            except (DiskFullError, OverloadedError) as error:
                log.warning(LogEvent.QUORUM_WAITS, peer=self._config.peer, error=error.message)
                await asyncio.sleep(self._config.tick_ms / 1_000)
            else:
                return
        raise ClosedError("the quorum is stopping")

    def _write(self, effects: Effects) -> None:
        assert effects.hard_state is not None, "there is something to write"
        snapshot = effects.snapshot
        if snapshot is None:
            self._store.save(effects.hard_state, effects.entries)
            return
        state = StoredState(
            hard_state=effects.hard_state,
            snapshot=snapshot,
            boundary=(snapshot.index, snapshot.term),
            entries=effects.entries,
        )
        self._store.save_snapshot(state)

    async def _compact(self) -> None:
        """Replace a journal that has grown by a snapshot; between two rounds, so nothing waits."""
        raft = self._raft
        if self._store.size_bytes < self._compact_bytes or raft.log.received is not None:
            return
        data = self._machine.snapshot()
        self._compact_bytes *= 2
        if len(data) > RAFT_SNAPSHOT_BYTES_MAX:
            error = f"a snapshot of {len(data)} bytes is too large to be sent"
            log.warning(LogEvent.QUORUM_WAITS, peer=self._config.peer, error=error)
            return
        snapshot = raft.compact(data, keep=RAFT_ENTRIES_KEPT)
        state = StoredState(
            hard_state=raft.hard_state,
            snapshot=snapshot,
            boundary=(raft.log.boundary_index, raft.log.boundary_term),
            entries=list(raft.log.entries),
        )
        try:
            await asyncio.to_thread(self._store.save_snapshot, state)
        except (DiskFullError, OverloadedError) as error:
            log.warning(LogEvent.QUORUM_WAITS, peer=self._config.peer, error=error.message)
        self._compact_bytes = max(self._config.compact_bytes, 2 * self._store.size_bytes)

    def _end_round(self) -> None:
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    def _end_waits(self, error: GoQueueError) -> None:
        self._proposals.end(error)
        for waiting in self._reads.values():
            if not waiting.done():
                waiting.set_exception(error)
        self._end_round()


def _draw(count: int) -> int:
    """Return a number below ``count``; its tiny bias does not matter to elections."""
    return secrets.randbits(32) % count
