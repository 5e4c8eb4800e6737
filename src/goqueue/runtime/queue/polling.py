"""Polling: a member of a group leases what is ready, waiting a while for something to be."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple

from goqueue.base.deeds import Deed
from goqueue.base.errors import GoQueueError, NotLeaderError
from goqueue.base.fast_path import fast_path
from goqueue.base.grant import Grant
from goqueue.base.ids import GroupId, TopicName, TopicPartition
from goqueue.base.started import Started
from goqueue.core.delivery import settle
from goqueue.core.delivery.events import Acked
from goqueue.core.delivery.runs import count_of, set_of
from goqueue.observability.consumer_metrics import ConsumerMetrics
from goqueue.runtime.clock import Clock
from goqueue.runtime.groups.at_work import GroupAtWork, GroupSource
from goqueue.runtime.log.fetch import BOUNDLESS, Room
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import StateJournal
from goqueue.runtime.queue.hosted_ledger import Change, HostedLedger, commit_together
from goqueue.runtime.queue.leasing import Leased, LeaseRequest, Leasing
from goqueue.runtime.queue.ledgers import Ledgers
from goqueue.runtime.queue.waiting_polls import PendingPoll, WaitingPolls

_POLLING: Final = (Deed.POLL, Deed.NEXT)


class Polled(NamedTuple):
    """What a member was given."""

    generation: int
    lease_ms: int
    parts: list[Leased]


class PollLimits(NamedTuple):
    """What a member asks for, and the memory there is for it."""

    limit: int
    bytes_max: int
    wait_ms: int
    room: Room = BOUNDLESS


class Polling:
    """Answers polls."""

    def __init__(
        self,
        state: StateJournal,
        topics: Mapping[TopicName, Topic],
        groups: GroupSource,
        ledgers: Ledgers,
        *,
        clock: Clock,
        metrics: ConsumerMetrics,
    ) -> None:
        self._state = state
        self._topics = topics
        self._groups = groups
        self._ledgers = ledgers
        self._clock = clock
        self._metrics = metrics
        self.leasing = self._leasing = Leasing(ledgers, clock=clock)
        self._turns: dict[tuple[GroupId, str], int] = {}
        self._acked_ms: dict[tuple[GroupId, str], int] = {}
        # Held by a member's poll while it leases: what it is told comes in the order of leases.
        self._opened: dict[
            tuple[GroupId, str], tuple[list[TopicPartition], list[HostedLedger]]
        ] = {}
        """The ledgers of each member, as long as it has the same partitions."""
        self._lines: dict[tuple[GroupId, str], asyncio.Lock] = {}
        self._waiting = WaitingPolls(
            ledgers,
            ledgers_of=self._open_all,
            attempt=self._try_again,
            awaits_disk=self._awaits_disk,
            durable=state.durable_at,
            give_back=self.give_back,
        )

    def __repr__(self) -> str:
        return f"<Polling of {self._ledgers!r}>"

    def forget_member(self, group: GroupId, member: str) -> None:
        """Forget whose turn it was for a member that is gone."""
        self._turns.pop((group, member), None)
        self._acked_ms.pop((group, member), None)
        self._lines.pop((group, member), None)
        self._opened.pop((group, member), None)

    def forget_group(self, group: GroupId) -> None:
        """Forget the members of a group that was deleted."""
        for _, member in [place for place in self._lines if place[0] == group]:
            self.forget_member(group, member)

    def note_places(self) -> None:
        """Take note that other partitions are led here than before; polls that wait look again."""
        self._opened.clear()
        self._leasing.note_places()
        self._ledgers.places.wake()

    def forget_topic(self, topic: Topic) -> None:
        """Forget what was read of a topic that is gone."""
        self._leasing.forget(topic.partitions)

    async def poll(
        self, grant: Grant, group: str, member: str, generation: int | None, demand: PollLimits
    ) -> Polled:
        """Lease what is ready to a member, waiting a while for something to be."""
        poll = await self.begin(grant, group, member, generation, demand)
        if poll.ready is not None:
            try:
                await poll.ready
            except BaseException:
                self.give_back(group, poll.parts)
                raise
        return self.finish(poll)

    def begin(
        self,
        grant: Grant,
        group: str,
        member: str,
        generation: int | None,
        demand: PollLimits,
        *,
        seen: int = 0,
    ) -> Coroutine[Any, Any, PendingPoll]:
        """Lease what is ready to a member; where nothing is, the poll waits without a task.

        Nobody may be told before the poll is ready. Who gives it up gives back what it leased. A
        member that has seen a later generation than this node is not served by what it knows.
        """
        seen = generation or seen
        if not self._groups.is_near and not self._groups.is_ready(group, member, seen):
            return self._begin_later(grant, group, member, generation, demand, seen)
        hosted = self.enter(grant, group, member, generation)
        poll = pending(hosted, member, generation, demand)
        return self.lease(poll, wait_ms=demand.wait_ms)

    async def _begin_later(
        self,
        grant: Grant,
        group: str,
        member: str,
        generation: int | None,
        demand: PollLimits,
        seen: int,
    ) -> PendingPoll:
        """Do the same when the coordinator of the group was asked about it."""
        await self._groups.prepare(group, member, seen)
        hosted = self.enter(grant, group, member, generation)
        poll = pending(hosted, member, generation, demand)
        return await self.lease(poll, wait_ms=demand.wait_ms)

    async def lease(self, poll: PendingPoll, *, wait_ms: int) -> PendingPoll:
        """Do the same for a poll that was admitted; return it."""
        is_tried = self.lease_at_once(poll)
        try:
            if not is_tried:
                attempt = Started(self._poll_once(poll))
                is_tried = attempt.is_done
                if not is_tried:
                    await attempt
            if poll.parts:
                self.await_disk(poll)
            elif wait_ms > 0 and self._ledgers.is_waited_for:
                self._waiting.add(poll, wait_ms=wait_ms, is_tried=is_tried)
        except BaseException:
            self.give_back(poll.group.name, poll.parts)
            raise
        return poll

    @fast_path(of="Polling._poll_once", bench="jobs", test="tests/transport/test_fast_requests.py")
    def lease_at_once(self, poll: PendingPoll, before: Sequence[Change] = ()) -> bool:
        """Lease one message that is at hand, behind other changes of the group, in one write.

        Return False if nothing was done: it is one for the general way.
        """
        group, member = poll.group, poll.member
        wish = LeaseRequest(group, member, 1, poll.bytes_max)
        ledgers = self._open_all(group, member)
        if not ledgers or not self._is_plain(poll, wish, before):
            return False
        turn = self._turns.get((group.name, member), 0) if len(ledgers) > 1 else 0
        for place in range(turn, turn + len(ledgers)):
            hosted = ledgers[place % len(ledgers)]
            found = self._leasing.find_one(hosted)
            if found is True:
                continue
            if found is False or not hosted.has_room() or not _is_together(hosted, before):
                return False
            poll.parts.append(self._leasing.lease_one(hosted, found, wish, before))
            poll.room.keep(poll.parts[0].size)
            break
        else:
            if before:
                commit_together(before)
        if len(ledgers) > 1:
            self._turns[group.name, member] = turn % len(ledgers) + 1
        return True

    def await_disk(self, poll: PendingPoll) -> None:
        """Let a poll be answered when what was written for it is durable, where that matters."""
        try:
            if self._awaits_disk(poll):
                poll.ready = self._state.durable_at(poll.group.name, poll.parts)
        except GoQueueError:
            self.give_back(poll.group.name, poll.parts)
            raise

    def _awaits_disk(self, poll: PendingPoll) -> bool:
        """Return True if a poll is answered when its leases are durable."""
        ledgers = self._ledgers.of(poll.group.name)
        found = [ledgers.get(part.partition) for part in poll.parts]
        return any(hosted is None or hosted.awaits_disk for hosted in found)

    def _is_plain(self, poll: PendingPoll, wish: LeaseRequest, before: Sequence[Change]) -> bool:
        """Return True if a poll for one message has to wait for nothing else."""
        line = self._lines.get((poll.group.name, poll.member))
        if poll.limit != 1 or line is None or line.locked() or not poll.room.is_free:
            return False
        return self._leasing.room(wish) > 0 or _freed_by(before, poll.member) > 0

    async def poll_ready(
        self, grant: Grant, group: str, member: str, generation: int | None, demand: PollLimits
    ) -> Polled | None:
        """Lease what is ready to a member; None if it is to wait, which is another poll then.

        For members that ask for one thing at a time, and wait for it: nothing comes meanwhile.
        """
        if not self._groups.is_near:
            await self._groups.prepare(group, member, generation or 0)
        hosted = self.enter(grant, group, member, generation)
        poll = pending(hosted, member, generation, demand)
        try:
            await self._poll_once(poll)
            if not poll.parts and demand.wait_ms > 0:
                return None
            if self._awaits_disk(poll):
                await self._state.settle_at(group, poll.parts, is_alone=True)
        except BaseException:
            self.give_back(group, poll.parts)
            raise
        return self.finish(poll)

    def enter(self, grant: Grant, group: str, member: str, generation: int | None) -> GroupAtWork:
        """Return the group of a member that polls, or raise; it was heard of."""
        assert grant.deed in _POLLING, "a grant to poll"
        hosted = self._groups.get(group)
        hosted.check_member(member, generation)
        hosted.touch(member, grant.caller.connection)
        if hosted.options.auto_commit:
            self._auto_commit(hosted, member)
        return hosted

    def finish(self, poll: PendingPoll) -> Polled:
        """Return what a poll brought, once it is ready."""
        # Counted when the answer has left, and before anybody else is listened to.
        seconds = time.perf_counter() - poll.started_s
        group = poll.group
        asyncio.get_running_loop().call_soon(self._count, group, poll.parts, seconds)
        return Polled(group.generation, group.options.visibility_timeout_ms, poll.parts)

    def _count(self, group: GroupAtWork, parts: Sequence[Leased], seconds: float) -> None:
        """Count a poll; what was deleted meanwhile gets no new series."""
        if group.is_deleted:
            return
        known = [part for part in parts if part.partition.topic in self._topics]
        self._metrics.polled(group.name, known, seconds)

    def _auto_commit(self, group: GroupAtWork, member: str) -> None:
        """Settle what earlier polls handed out, not more often than the group's interval."""
        now_ms = self._clock.monotonic_ms()
        place = (group.name, member)
        since_ms = now_ms - self._acked_ms.setdefault(place, now_ms)
        if since_ms < group.options.auto_commit_interval_ms:
            return
        self._acked_ms[place] = now_ms
        for hosted in self._ledgers.of(group.name).values():
            hosted.commit(settle.ack_member(hosted.ledger, member, now_ms=now_ms).events)

    def give_back(self, group: str, parts: Sequence[Leased]) -> None:
        """Release what nobody will be told of, as if it had not been delivered.

        What fails expires by itself.
        """
        for part in parts:
            with contextlib.suppress(GoQueueError):
                hosted = self._ledgers.of(group).get(part.partition)
                if hosted is None:
                    continue
                claim = settle.Claim(part.nonce, set_of(part.order))
                hosted.commit(settle.release(hosted.ledger, claim, hosted.moment()).events)
                hosted.wake()

    def _open_all(self, group: GroupAtWork, member: str) -> list[HostedLedger]:
        partitions = group.partitions_of(member)
        known = self._opened.get((group.name, member))
        if known is not None and known[0] is partitions and not _has_closed(known[1]):
            return known[1]
        ledgers: list[HostedLedger] = []
        is_elsewhere = False
        for name in partitions:
            topic = self._topics.get(name.topic)
            is_there = topic is not None and name.partition < len(topic.partitions)
            if is_there and self._state.is_loaded(name):
                ledgers.append(self._ledgers.open(group.name, group.options, name))
            elif is_there:
                is_elsewhere = True
        if is_elsewhere and not ledgers:
            raise NotLeaderError("none of the member's partitions is led here; ask again")
        if (group.name, member) in self._lines:
            self._opened[group.name, member] = partitions, ledgers
        return ledgers

    async def _try_again(self, poll: PendingPoll, spent: set[HostedLedger]) -> None:
        """Lease what news may have brought to a poll that waits."""
        if not self.lease_at_once(poll):
            await self._poll_once(poll, spent)
        elif not poll.parts:
            spent.update(poll.watched)

    async def _poll_once(self, poll: PendingPoll, spent: set[HostedLedger] | None = None) -> None:
        """Lease what is ready; ``spent`` are ledgers known to be empty, and learns of others."""
        group, member = poll.group, poll.member
        # Nothing is remembered for one that is gone and forgotten.
        group.check_member(member)
        line = self._lines.get((group.name, member))
        if line is None:
            line = self._lines[group.name, member] = asyncio.Lock()
        async with line:
            ledgers = self._open_all(group, member)
            bytes_max = await poll.room.take(poll.bytes_max)
            wish = LeaseRequest(group, member, poll.limit, bytes_max)
            wish = wish._replace(limit=self._leasing.room(wish))
            for hosted in self._in_turn(group.name, member, ledgers):
                if wish.limit <= 0 or wish.bytes_max <= 0:
                    break
                if spent is not None and hosted in spent:
                    continue
                leased = await self._leasing.lease(hosted, wish)
                if leased is not None:
                    poll.parts.append(leased)
                    wish = wish._replace(
                        limit=wish.limit - leased.rows, bytes_max=wish.bytes_max - leased.size
                    )
                elif spent is not None:
                    spent.add(hosted)
        poll.room.keep(sum([part.size for part in poll.parts]))

    def _in_turn(
        self, group: GroupId, member: str, ledgers: list[HostedLedger]
    ) -> list[HostedLedger]:
        """Begin with another partition each time, so that none is left behind."""
        if len(ledgers) < 2:  # noqa: PLR2004 - a single one is always first
            return ledgers
        turn = self._turns.get((group, member), 0) % len(ledgers)
        if (group, member) in self._lines:
            self._turns[(group, member)] = turn + 1
        return ledgers[turn:] + ledgers[:turn]


def _has_closed(ledgers: Sequence[HostedLedger]) -> bool:
    return any(hosted.is_closed for hosted in ledgers)


def _is_together(hosted: HostedLedger, before: Sequence[Change]) -> bool:
    """Return True if a change of a ledger and those before it are one write."""
    return not before or before[0][0].host.home == hosted.host.home


def _freed_by(changes: Sequence[Change], member: str) -> int:
    """Return how many messages a member will hold no more."""
    count = 0
    for hosted, found in changes:
        for event in found:
            if isinstance(event, Acked):
                lease = hosted.ledger.leases.get(event.nonce)
                is_own = lease is not None and lease.member == member
                count += count_of(event.offsets) if is_own else 0
    return count


def pending(
    group: GroupAtWork, member: str, generation: int | None, demand: PollLimits
) -> PendingPoll:
    """Return a poll that has leased nothing yet."""
    limit, bytes_max, _, room = demand
    return PendingPoll(group, member, generation, limit=limit, bytes_max=bytes_max, room=room)
