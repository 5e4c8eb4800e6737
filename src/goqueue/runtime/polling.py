"""Polling: a member of a group leases what is ready, waiting a while for something to be."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from pyroaring import BitMap64

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import GroupId, Offset, TopicName, TopicPartition
from goqueue.base.limits import LOOK_AHEAD_MESSAGES_MAX
from goqueue.core.delivery import settle
from goqueue.core.delivery.picking import Pick
from goqueue.core.delivery.runs import Runs, count_of, runs_in, set_of
from goqueue.core.delivery.terms import LeaseTerms
from goqueue.core.groups.options import GroupOptions
from goqueue.core.record.frame import Buffer
from goqueue.observability.consumer_metrics import ConsumerMetrics
from goqueue.runtime.clock import Clock
from goqueue.runtime.delivery_read import Found, PickReader, read_keys
from goqueue.runtime.fetch import BOUNDLESS, Room
from goqueue.runtime.groups import Groups
from goqueue.runtime.hosted_group import HostedGroup
from goqueue.runtime.hosted_ledger import HostedLedger
from goqueue.runtime.ledgers import Ledgers
from goqueue.runtime.state_log import StateLog
from goqueue.runtime.topic import Topic

NONCE_BYTES: Final = 8


class Leased(NamedTuple):
    """Messages of one partition under one lease."""

    partition: TopicPartition
    nonce: int
    frames: list[Buffer]
    order: Runs
    failures: dict[int, int]

    @property
    def rows(self) -> int:
        """Return how many messages there are."""
        return count_of(self.order)

    @property
    def size(self) -> int:
        """Return how many bytes the frames have."""
        return sum(map(len, self.frames))


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


def _random_nonce() -> int:
    return int.from_bytes(secrets.token_bytes(NONCE_BYTES), "big")


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
        nonce: Callable[[], int] = _random_nonce,
    ) -> None:
        self._state = state
        self._topics = topics
        self._groups = groups
        self._ledgers = ledgers
        self._clock = clock
        self._metrics = metrics
        self._nonce = nonce
        self._turns: dict[tuple[GroupId, str], int] = {}
        self._acked_ms: dict[tuple[GroupId, str], int] = {}

    def __repr__(self) -> str:
        return f"<Polling of {self._ledgers!r}>"

    def forget_member(self, group: GroupId, member: str) -> None:
        """Forget whose turn it was for a member that is gone."""
        self._turns.pop((group, member), None)
        self._acked_ms.pop((group, member), None)

    async def poll(self, group: str, member: str, generation: int | None, demand: Demand) -> Polled:
        """Lease what is ready to a member, waiting a while for something to be."""
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
                await self._wait(hosted_group, member, generation, demand, parts)
            if parts:
                await self._state.durable(group)
        except BaseException:
            # Nobody will be told of them: it is as if they had not been delivered.
            self.give_back(group, parts)
            raise
        self._metrics.polled(group, parts, seconds=time.perf_counter() - started)
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
        while not self._ledgers.is_stopped:
            ledgers = self._open_all(group, member)
            watches = [group.news()]
            mine = [(hosted, hosted.watch()) for hosted in ledgers]
            logs = [(hosted.partition, hosted.partition.watch()) for hosted in ledgers]
            watches += [watch for _, watch in mine] + [watch for _, watch in logs]
            try:
                await self._poll_once(group, member, demand, parts)
                left = deadline - loop.time()
                if parts or left <= 0:
                    return
                await asyncio.wait(watches, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            finally:
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
        options = group.options
        ledgers = self._open_all(group, member)
        held = sum(
            hosted.ledger.leases.in_flight(member)
            for hosted in self._ledgers.of(group.name).values()
        )
        limit = min(demand.limit, options.max_in_flight - held)
        bytes_left = await demand.room.take(demand.bytes_max)
        for hosted in self._in_turn(group.name, member, ledgers):
            if limit <= 0 or bytes_left <= 0:
                break
            leased = await self._lease(hosted, member, options, limit, bytes_left)
            if leased is not None:
                parts.append(leased)
                limit -= leased.rows
                bytes_left -= leased.size
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

    async def _lease(
        self, hosted: HostedLedger, member: str, options: GroupOptions, limit: int, bytes_max: int
    ) -> Leased | None:
        async with hosted.turn:
            hosted.keep_up()
            await self._look_ahead(hosted, limit)
            moment = hosted.moment()
            pick = hosted.ledger.pick(hosted.view(), limit, now_ms=moment.now_ms)
            found = await self._read(hosted, pick, bytes_max)
            lease_ms = options.visibility_timeout_ms
            # From here on nothing awaits. What was settled meanwhile is not handed out.
            kept = hosted.ledger.unsettled(found.offsets) - hosted.ledger.leases.offsets
            terms = LeaseTerms(
                self._nonce(), member, moment.now_ms + lease_ms, lease_ms, moment.at_ms
            )
            decision = hosted.ledger.lease(
                pick, kept, terms, gone=found.gone, expired=found.expired
            )
            hosted.commit(decision.events)
        if not kept:
            return None
        self._ledgers.remember(terms.nonce, hosted)
        failures = hosted.ledger.histories.counts_among(kept)
        order = pick.order if len(kept) == len(pick.offsets) else _in_order(pick.order, kept)
        return Leased(hosted.partition.name, terms.nonce, found.frames, order, failures)

    async def _read(self, hosted: HostedLedger, pick: Pick, bytes_max: int) -> Found:
        if not pick.offsets:
            return Found([], BitMap64(), BitMap64(), BitMap64())
        reader = PickReader(hosted.partition, pick.offsets, bytes_max=bytes_max)
        ttl_ms = hosted.partition.settings.message_ttl_ms
        return await reader.read(now_ms=self._clock.now_ms(), ttl_ms=ttl_ms)

    async def _look_ahead(self, hosted: HostedLedger, limit: int) -> None:
        """Where keys are in order, look at the log until there is enough to choose from."""
        keys = hosted.ledger.keys
        partition = hosted.partition
        while (
            keys is not None
            and keys.looked_offset < partition.visible_offset
            and keys.behind_count < LOOK_AHEAD_MESSAGES_MAX
            and hosted.ledger.ready_heads(hosted.view()) < limit
        ):
            offset = max(keys.looked_offset, partition.log.start_offset, hosted.ledger.committed)
            if offset >= partition.visible_offset:
                keys.looked_offset = Offset(offset)
                return
            found, following = await read_keys(partition, Offset(offset))
            if hosted.ledger.keys is not keys:
                return
            for first, names in found:
                keys.look(first, names, hosted.ledger.settled_between(first, first + len(names)))
            keys.looked_offset = Offset(max(keys.looked_offset, following, offset + 1))


def _in_order(order: Runs, kept: BitMap64) -> Runs:
    """Return an order without what is not kept."""
    line: list[int] = []
    for place in range(0, len(order), 2):
        line += [one for one in range(order[place], order[place + 1]) if one in kept]
    return runs_in(line)
