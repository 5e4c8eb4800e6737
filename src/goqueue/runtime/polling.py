"""Polling: a member of a group leases what is ready, waiting a while for something to be."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import GroupId, TopicName
from goqueue.core.delivery import settle
from goqueue.core.delivery.runs import set_of
from goqueue.observability.consumer_metrics import ConsumerMetrics
from goqueue.runtime.clock import Clock
from goqueue.runtime.fetch import BOUNDLESS, Room
from goqueue.runtime.groups import Groups
from goqueue.runtime.hosted_group import HostedGroup
from goqueue.runtime.hosted_ledger import HostedLedger
from goqueue.runtime.kept_frames import Keeping, KeptFrames
from goqueue.runtime.leasing import Leased, Leasing, Wish
from goqueue.runtime.ledgers import Ledgers
from goqueue.runtime.state_log import StateLog
from goqueue.runtime.topic import Topic


class Polled(NamedTuple):
    """What a member was given."""

    generation: int
    lease_ms: int
    parts: list[Leased]


class Demand(NamedTuple):
    """What a member asks for, and the memory there is for it."""

    limit: int
    bytes_max: int
    wait_ms: int
    room: Room = BOUNDLESS
    kept: KeptFrames | None = None
    """Where the client keeps frames, those it has."""


class Polling:
    """Answers polls."""

    def __init__(
        self,
        state: StateLog,
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

    async def poll(self, group: str, member: str, generation: int | None, demand: Demand) -> Polled:
        """Lease what is ready to a member, waiting a while for something to be."""
        polled = await self._poll(group, member, generation, demand, is_waiting=True)
        assert polled is not None, "whoever waits is told that there was nothing"
        return polled

    async def poll_ready(
        self, group: str, member: str, generation: int | None, demand: Demand
    ) -> Polled | None:
        """Lease what is ready to a member; None if it is to wait, which is another poll then.

        For members that ask for one thing at a time, and wait for it: nothing comes meanwhile.
        """
        return await self._poll(group, member, generation, demand, is_waiting=False)

    async def _poll(
        self,
        group: str,
        member: str,
        generation: int | None,
        demand: Demand,
        *,
        is_waiting: bool,
    ) -> Polled | None:
        started = time.perf_counter()
        hosted_group = self._groups.get(group)
        hosted_group.check_member(member, generation)
        hosted_group.touch(member)
        if hosted_group.options.auto_commit:
            self._auto_commit(hosted_group, member)
        parts: list[Leased] = []
        try:
            await self._poll_once(hosted_group, member, demand, parts)
            if not parts and demand.wait_ms > 0:
                if not is_waiting:
                    return None
                await self._wait(hosted_group, member, generation, demand, parts)
            if parts:
                await self._state.settle(group, is_alone=not is_waiting)
        except BaseException:
            # Nobody will be told of them: it is as if they had not been delivered.
            self.give_back(group, parts)
            raise
        # Counted when the answer has left, and before anybody else is listened to.
        seconds = time.perf_counter() - started
        asyncio.get_running_loop().call_soon(self._metrics.polled, group, parts, seconds)
        options = hosted_group.options
        return Polled(hosted_group.generation, options.visibility_timeout_ms, parts)

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
        """Release what was leased for somebody who is gone; what fails expires by itself."""
        for part in parts:
            hosted = self._ledgers.of(group).get(part.partition)
            if hosted is None:
                continue
            claim = settle.Claim(part.nonce, set_of(part.order))
            with contextlib.suppress(GoQueueError):
                hosted.commit(settle.release(hosted.ledger, claim, hosted.moment()).events)
                hosted.wake()

    async def _wait(
        self,
        group: HostedGroup,
        member: str,
        generation: int | None,
        demand: Demand,
        parts: list[Leased],
    ) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + demand.wait_ms / 1_000
        while self._ledgers.is_waited_for:
            ledgers = self._open_all(group, member)
            watches = [group.news()]
            mine = [(hosted, hosted.watch()) for hosted in ledgers]
            logs = [(hosted.partition, hosted.partition.watch()) for hosted in ledgers]
            room = self._ledgers.watch_room(group.name, member)
            watches += [room, *(watch for _, watch in mine), *(watch for _, watch in logs)]
            try:
                await self._poll_once(group, member, demand, parts)
                left = deadline - loop.time()
                if parts or left <= 0:
                    return
                await asyncio.wait(watches, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._ledgers.unwatch_room(group.name, member, room)
                for hosted, watch in mine:
                    hosted.unwatch(watch)
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
        self, group: HostedGroup, member: str, demand: Demand, parts: list[Leased]
    ) -> None:
        async with self._lines.setdefault((group.name, member), asyncio.Lock()):
            ledgers = self._open_all(group, member)
            bytes_max = await demand.room.take(demand.bytes_max)
            keeping = None
            if demand.kept is not None and ledgers and not group.options.is_shared:
                # Who shares a partition is leased a part of each frame only.
                keeping = Keeping(demand.kept, len(ledgers))
            wish = Wish(group, member, demand.limit, bytes_max, keeping)
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
        self._turns[(group, member)] = turn + 1
        return ledgers[turn:] + ledgers[:turn]
