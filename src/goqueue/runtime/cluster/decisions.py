"""The controller's decisions, on an image that is ahead of what is applied by its own entries.

A leadership begins behind a barrier, when all that earlier controllers decided is applied here. It
copies the image, and each decision changes the copy at once, so that the next one does not wait for
the quorum. When an entry is lost, the copy is wrong: it is dropped, and a new one begins.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from goqueue.base.cluster_limits import RAFT_ENTRY_BYTES_MAX
from goqueue.base.errors import GoQueueError, NotLeaderError, TooLargeError
from goqueue.core.cluster.commands import Command, Proposal
from goqueue.core.cluster.events import Event, entries
from goqueue.core.cluster.replies import Reply
from goqueue.core.cluster.verbs import decide
from goqueue.runtime.clock import Clock
from goqueue.runtime.cluster.consensus import Consensus, Outcome
from goqueue.runtime.cluster.metadata import Metadata, MetadataEntry, copy_of, encode_metadata


class RefusedError(Exception):
    """A verb refused a proposal, for good: no node would decide otherwise."""

    def __init__(self, error: GoQueueError, version: int) -> None:
        super().__init__(error.message)
        self.error = error
        self.version = version


class DecidedReply(NamedTuple):
    """What was decided, and the version of the image that has it."""

    version: int
    reply: Reply


class _Lead:
    """The image of one leadership."""

    def __init__(self, metadata: Metadata, *, term: int, number: int) -> None:
        self.image = copy_of(metadata.image)
        self.term = term
        self.number = number
        self.is_lost = False
        self._pending: dict[asyncio.Task[Outcome], None] = {}

    def follow(self, task: "asyncio.Task[Outcome]") -> None:
        """Learn how an entry ends, also where its proposer waits no longer."""
        self._pending[task] = None
        task.add_done_callback(self._settled)

    async def settled(self) -> None:
        """Return when no entry is under way."""
        while self._pending:
            await asyncio.wait(self._pending)

    def _settled(self, task: "asyncio.Task[Outcome]") -> None:
        del self._pending[task]
        if task.cancelled() or task.exception() is not None or not task.result().result:
            self.is_lost = True


class Decisions:
    """Decides proposals while this node leads the quorum."""

    def __init__(self, metadata: Metadata, consensus: Consensus, clock: Clock) -> None:
        self._metadata = metadata
        self._consensus = consensus
        self._clock = clock
        self._lead: _Lead | None = None
        self._leads = 0
        # Held while an image is copied, so that one leadership has one.
        self._taking = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Decisions: {self._consensus.leading}>"

    async def decide(self, proposal: Proposal) -> DecidedReply:
        """Decide, and return when the decision is applied on this node.

        RefusedError is the answer of a verb. NotLeaderError means that nothing was decided;
        DeadlineExceededError that it may have been: the same request id finds out.
        """
        lead = await self._ready()
        try:
            decision = decide(lead.image, proposal, now_ms=self._clock.now_ms())
            packed = self._pack(lead, decision.events)
        except GoQueueError as error:
            version = await self._confirm(lead)
            raise RefusedError(error, version) from error
        if not packed:
            return DecidedReply(await self._confirm(lead), decision.reply)
        for event in decision.events:
            lead.image.apply(event)
        version = lead.image.version
        await self._append(lead, packed)
        return DecidedReply(version, decision.reply)

    async def command(self, command: Command) -> Reply:
        """Decide what the controller itself asks for, or raise what a verb raised."""
        try:
            return (await self.decide(Proposal(command=command))).reply
        except RefusedError as refused:
            raise refused.error from None

    async def add_members(self, members: dict[str, int]) -> None:
        """Give nodes their numbers in the quorum."""
        lead = await self._ready()
        entry = MetadataEntry(
            term=lead.term,
            lead=lead.number,
            version=lead.image.version,
            events=[],
            members=members,
        )
        await self._append(lead, [encode_metadata(entry)])

    def _pack(self, lead: _Lead, decided: Sequence[Event]) -> list[bytes]:
        """Return the entries of a decision, each with the version it is made for."""
        version = lead.image.version
        packed = []
        for events in entries(decided):
            entry = MetadataEntry(term=lead.term, lead=lead.number, version=version, events=events)
            data = encode_metadata(entry)
            if len(data) > RAFT_ENTRY_BYTES_MAX:
                raise TooLargeError(f"the decision has {len(data)} bytes; ask for less at once")
            packed.append(data)
            version += len(events)
        return packed

    async def _append(self, lead: _Lead, packed: Sequence[bytes]) -> None:
        """Hand entries to the quorum in their order, and wait until they are applied."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._consensus.propose(data)) for data in packed]
        for task in tasks:
            lead.follow(task)
        # Waited for together: who stops waiting does not take entries back.
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.result().result:
                raise NotLeaderError("another controller decided meanwhile")

    async def _ready(self) -> _Lead:
        """Return the image of the present leadership, or raise where another node leads."""
        async with self._taking:
            leading = self._consensus.leading
            if not leading.is_own:
                self._lead = None
                raise NotLeaderError("this node is not the controller")
            lead = self._lead
            if lead is not None and lead.term == leading.term and not lead.is_lost:
                return lead
            if lead is not None:
                await lead.settled()
            await self._consensus.barrier()
            self._check_term(leading.term)
            self._leads += 1
            self._lead = _Lead(self._metadata, term=leading.term, number=self._leads)
            return self._lead

    async def _confirm(self, lead: _Lead) -> int:
        """Return the version that was decided on, once it is applied and nothing was newer."""
        version = lead.image.version
        await lead.settled()
        await self._consensus.barrier()
        self._check_term(lead.term)
        if lead.is_lost or self._metadata.image.version < version:
            raise NotLeaderError("a decision before this one was lost")
        return version

    def _check_term(self, term: int) -> None:
        leading = self._consensus.leading
        if not leading.is_own or leading.term != term:
            raise NotLeaderError("this node is not the controller any more")
