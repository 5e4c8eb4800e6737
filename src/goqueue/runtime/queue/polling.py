"""Polling: a member of a group leases what is ready, waiting a while for something to be."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from goqueue.base.deeds import Deed
from goqueue.base.errors import GoQueueError
from goqueue.base.grant import Grant
from goqueue.base.ids import GroupId, TopicName
from goqueue.core.delivery import settle
from goqueue.core.delivery.runs import set_of
from goqueue.observability.consumer_metrics import ConsumerMetrics
from goqueue.runtime.clock import Clock
from goqueue.runtime.groups.groups import Groups
from goqueue.runtime.groups.hosted_group import HostedGroup
from goqueue.runtime.log.fetch import BOUNDLESS, Room
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import StateJournal, Waiters
from goqueue.runtime.queue.hosted_ledger import HostedLedger
from goqueue.runtime.queue.leasing import Leased, LeaseRequest, Leasing
from goqueue.runtime.queue.ledgers import Ledgers


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
        groups: Groups,
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
        self._leasing = Leasing(ledgers, clock=clock)
        self._turns: dict[tuple[GroupId, str], int] = {}
        self._acked_ms: dict[tuple[GroupId, str], int] = {}
        # Held by a member's poll while it leases: what it is told comes in the order of leases.
        self._lines: dict[tuple[GroupId, str], asyncio.Lock] = {}

    def __repr__(self) -> str:
        return f"<Polling of {self._ledgers!r}>"

    def forget_member(self, group: GroupId, member: str) -> None:
        """Forget whose turn it was for a member that is gone."""
        self._turns.pop((group, member), None)
        self._acked_ms.pop((group, member), None)
        self._lines.pop((group, member), None)

    def forget_group(self, group: GroupId) -> None:
        """Forget the members of a group that was deleted."""
        for _, member in [place for place in self._lines if place[0] == group]:
            self.forget_member(group, member)

    def forget_topic(self, topic: Topic) -> None:
        """Forget what was read of a topic that is gone."""
        self._leasing.forget(topic.partitions)

    async def poll(
        self, grant: Grant, group: str, member: str, generation: int | None, demand: PollLimits
    ) -> Polled:
        """Lease what is ready to a member, waiting a while for something to be."""
        started = time.perf_counter()
        hosted = self._enter(grant, group, member, generation)
        parts: list[Leased] = []
        try:
            await self._poll_once(hosted, member, demand, parts)
            if not parts and demand.wait_ms > 0:
                await self._wait(hosted, member, generation, demand, parts)
            if parts:
                await self._state.settle(group, is_alone=False)
        except BaseException:
            self.give_back(group, parts)
            raise
        return self._polled(hosted, parts, started)

    async def poll_ready(
        self, grant: Grant, group: str, member: str, generation: int | None, demand: PollLimits
    ) -> Polled | None:
        """Lease what is ready to a member; None if it is to wait, which is another poll then.

        For members that ask for one thing at a time, and wait for it: nothing comes meanwhile.
        """
        started = time.perf_counter()
        hosted = self._enter(grant, group, member, generation)
        parts: list[Leased] = []
        try:
            await self._poll_once(hosted, member, demand, parts)
            if not parts and demand.wait_ms > 0:
                return None
            if parts:
                await self._state.settle(group, is_alone=True)
        except BaseException:
            self.give_back(group, parts)
            raise
        return self._polled(hosted, parts, started)

    def _enter(self, grant: Grant, group: str, member: str, generation: int | None) -> HostedGroup:
        """Return the group of a member that polls, or raise; it was heard of."""
        assert grant.deed is Deed.POLL, "a grant to poll"
        hosted = self._groups.get(group)
        hosted.check_member(member, generation)
        hosted.touch(member, grant.caller.connection)
        if hosted.options.auto_commit:
            self._auto_commit(hosted, member)
        return hosted

    def _polled(self, group: HostedGroup, parts: list[Leased], started: float) -> Polled:
        # Counted when the answer has left, and before anybody else is listened to.
        seconds = time.perf_counter() - started
        asyncio.get_running_loop().call_soon(self._count, group, parts, seconds)
        return Polled(group.generation, group.options.visibility_timeout_ms, parts)

    def _count(self, group: HostedGroup, parts: Sequence[Leased], seconds: float) -> None:
        """Count a poll; what was deleted meanwhile gets no new series."""
        if group.is_deleted:
            return
        known = [part for part in parts if part.partition.topic in self._topics]
        self._metrics.polled(group.name, known, seconds)

    def _auto_commit(self, group: HostedGroup, member: str) -> None:
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

    async def _wait(
        self,
        group: HostedGroup,
        member: str,
        generation: int | None,
        demand: PollLimits,
        parts: list[Leased],
    ) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + demand.wait_ms / 1_000
        while self._ledgers.is_waited_for:
            ledgers = self._open_all(group, member)
            mine = [(waiters, waiters.watch()) for waiters in _news_of(group, ledgers)]
            logs = [(hosted.partition, hosted.partition.watch()) for hosted in ledgers]
            room = self._ledgers.watch_room(group.name, member)
            watches = [room, *(watch for _, watch in mine), *(watch for _, watch in logs)]
            try:
                await self._poll_once(group, member, demand, parts)
                left = deadline - loop.time()
                if parts or left <= 0:
                    return
                await asyncio.wait(watches, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._ledgers.unwatch_room(group.name, member, room)
                for waiters, watch in mine:
                    waiters.unwatch(watch)
                for partition, watch in logs:
                    partition.unwatch(watch)
            group.check_member(member, generation)

    def _open_all(self, group: HostedGroup, member: str) -> list[HostedLedger]:
        partitions = group.partitions_of(member)
        ledgers: list[HostedLedger] = []
        for name in partitions:
            topic = self._topics.get(name.topic)
            if topic is not None and name.partition < len(topic.partitions):
                ledgers.append(self._ledgers.open(group.name, group.options, name))
        return ledgers

    async def _poll_once(
        self, group: HostedGroup, member: str, demand: PollLimits, parts: list[Leased]
    ) -> None:
        # Nothing is remembered for one that is gone and forgotten.
        group.check_member(member)
        async with self._lines.setdefault((group.name, member), asyncio.Lock()):
            ledgers = self._open_all(group, member)
            bytes_max = await demand.room.take(demand.bytes_max)
            wish = LeaseRequest(group, member, demand.limit, bytes_max)
            wish = wish._replace(limit=self._leasing.room(wish))
            for hosted in self._in_turn(group.name, member, ledgers):
                if wish.limit <= 0 or wish.bytes_max <= 0:
                    break
                leased = await self._leasing.lease(hosted, wish)
                if leased is not None:
                    parts.append(leased)
                    wish = wish._replace(
                        limit=wish.limit - leased.rows, bytes_max=wish.bytes_max - leased.size
                    )
        demand.room.keep(sum(part.size for part in parts))

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


def _news_of(group: HostedGroup, ledgers: Sequence[HostedLedger]) -> list[Waiters]:
    """Return all who tell that more may be ready for a member."""
    return [group.waiters, *(hosted.waiters for hosted in ledgers)]
