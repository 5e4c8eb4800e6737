"""Consumers work while the broker dies at any operation; every message keeps its one state."""

import logging
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from pyroaring import BitMap64

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.core.delivery.events import DEAD
from goqueue.core.delivery.ledger import OUTCOME_INDEX
from goqueue.core.delivery.runs import set_of
from goqueue.core.dlq.record import read_story
from goqueue.core.groups.member import JoinRequest
from goqueue.core.record.message import Draft
from goqueue.runtime import broker as broker_module
from goqueue.runtime import state_records
from goqueue.runtime.log import catalogue, topic_states
from goqueue.runtime.queue.leasing import Leased
from goqueue.runtime.queue.polling import PollLimits
from goqueue.runtime.queue.settlements import Settlement
from goqueue.testing.conservation_checker import ConservationChecker
from goqueue.testing.disk import CrashError
from tests.runtime.dlq_rig import messages
from tests.runtime.grants import POLLING, PUBLISHING, SETTLING
from tests.runtime.rig import Rig, run

pytestmark = pytest.mark.usefixtures("both_places")

GROUPS = ("plain", "keyed", "shared")
OPTIONS: dict[str, dict[str, object]] = {
    "plain": {},
    "keyed": {"ordering": "key"},
    "shared": {"mode": "shared", "ordering": "key", "max_retries": 1},
}
STEPS = 60


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make what is rare happen in a short life."""
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)
    monkeypatch.setattr(catalogue, "STATE_SEGMENT_BYTES", 4096)
    monkeypatch.setattr(topic_states, "STATE_LOG_SEGMENT_BYTES", 4096)
    monkeypatch.setattr(state_records, "SLOTS", 5)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("asyncio").setLevel(logging.NOTSET)


class Workload:
    """Publishers and consumers that go on over any number of crashes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.rig = Rig()
        self.checker = ConservationChecker()
        self.members: dict[str, list[str]] = {group: [] for group in GROUPS}
        self.leases: dict[str, list[Leased]] = {group: [] for group in GROUPS}

    async def begin(self) -> None:
        await self.rig.start()
        if "orders" not in self.rig.broker.topics:
            self.rig.broker.create_topic("orders", partitions=2, settings={"segment_bytes": 4096})

    async def step(self) -> None:
        actions: list[Any] = [
            self.publish, self.publish, self.poll, self.poll, self.poll, self.ack, self.ack,
            self.nack, self.reject, self.wait, self.leave,
        ]  # fmt: skip
        await self.random.choice(actions)()
        self.compare()

    def compare(self) -> None:
        for hosted in self.rig.broker.consume.ledgers:
            self.checker.compare(hosted.group, hosted.partition.name, hosted.ledger, hosted.view())
        self.checker.check()

    async def publish(self) -> None:
        now_us = self.rig.clock.now_us()
        drafts = [
            Draft(
                value=b"%d" % self.random.randrange(1000),
                key=self.random.choice([None, b"a", b"b", b"c"]),
                timestamp_us=now_us,
                priority=self.random.choice([0, 2, 2, 2, 4]),
                deliver_at_us=self.random.choice([None, None, None, now_us + 3_000_000]),
            )
            for _ in range(self.random.randrange(1, 12))
        ]
        results = await self.rig.broker.topic("orders").publish_drafts(
            PUBLISHING, [(draft, None) for draft in drafts]
        )
        for result in results:
            if isinstance(result, tuple):
                name = TopicPartition(TopicName("orders"), PartitionId(result[0]))
                self.checker.sent(name, [result[1]])
        self.rig.check_alive()

    async def member(self, group: str) -> str:
        known = self.members[group]
        alive = [one for one in known if self.is_member(group, one)]
        if alive and (len(alive) == 2 or self.random.random() < 0.7):
            return self.random.choice(alive)
        request = JoinRequest(client_id="c", topics=("orders",), options=OPTIONS[group])
        _, member = await self.rig.broker.groups.join(group, request)
        self.members[group] = [*alive, member]
        return member

    def is_member(self, group: str, member: str) -> bool:
        try:
            return member in self.rig.broker.groups.get(group).members
        except GoQueueError:
            return False

    async def poll(self) -> None:
        group = self.random.choice(GROUPS)
        member = await self.member(group)
        demand = PollLimits(self.random.randrange(1, 9), self.random.choice([200, 10_000]), 0)
        polled = await self.rig.broker.consume.poll(POLLING, group, member, None, demand)
        for part in polled.parts:
            offsets = set_of(part.order)
            self.checker.delivered(group, part.partition, offsets, part.failures)
            self.leases[group].append(part)

    async def settle(self, verb: str) -> None:
        group = self.random.choice([one for one in GROUPS if self.leases[one]] or [None])
        if group is None:
            return
        part = self.random.choice(self.leases[group][-4:])
        held = list(set_of(part.order))
        chosen = BitMap64(self.random.sample(held, self.random.randrange(1, len(held) + 1)))
        one = Settlement(partition=part.partition, nonce=part.nonce, verb=verb, offsets=chosen)
        (outcome,) = await self.rig.broker.consume.settle(SETTLING, group, None, [one])
        if verb == "ack":
            refused = BitMap64(refusal.offset for refusal in outcome.refused)
            self.checker.settled(group, part.partition, chosen - refused)

    async def ack(self) -> None:
        await self.settle("ack")

    async def nack(self) -> None:
        await self.settle("nack")

    async def reject(self) -> None:
        if self.random.random() < 0.3:
            await self.settle("reject")

    async def wait(self) -> None:
        self.rig.clock.advance(self.random.choice([500, 1_500, 31_000]))
        broker = self.rig.broker
        broker.consume.ledgers.tick()
        broker.groups.sweep()
        for partition in broker.topic("orders").partitions:
            partition.queue.advance()
        self.rig.check_alive()

    async def leave(self) -> None:
        group = self.random.choice(GROUPS)
        if self.members[group] and self.is_member(group, self.members[group][0]):
            await self.rig.broker.groups.leave(group, self.members[group].pop(0))

    async def drain(self) -> None:
        """Ack everything there is; then nothing may be left."""
        for group in GROUPS:
            for _ in range(300):
                await self.drain_some(group)
                if self.is_drained(group):
                    break
        self.compare()
        assert all(self.is_drained(group) for group in GROUPS)
        await self.compare_dead_letters()

    async def compare_dead_letters(self) -> None:
        """Every message a group has lost for good is among the dead letters, once (P5)."""
        expected: Counter[str] = Counter()
        for hosted in self.rig.broker.consume.ledgers:
            expected[hosted.group] += hosted.ledger.outcomes[OUTCOME_INDEX[DEAD]]
        stories = [read_story(one.headers) for one in await messages(self.rig, "orders.dlq")]
        places = [
            (story.last_group, story.original_partition, story.original_offset) for story in stories
        ]

        assert len(places) == len(set(places))
        assert Counter(group for group, _, _ in places) == +expected

    def is_drained(self, group: str) -> bool:
        ledgers = self.rig.broker.consume.ledgers.of(group).values()
        return len(ledgers) == 2 and all(one.lag() == 0 for one in ledgers)

    async def drain_some(self, group: str) -> None:
        self.rig.clock.advance(10_000)
        self.rig.broker.groups.sweep()
        self.rig.broker.consume.ledgers.tick()
        for partition in self.rig.broker.topic("orders").partitions:
            partition.queue.advance()
        await self.rig.broker.dead_letters.idle()
        member = await self.member(group)
        demand = PollLimits(1_000, 1_000_000, 0)
        polled = await self.rig.broker.consume.poll(POLLING, group, member, None, demand)
        for part in polled.parts:
            offsets = set_of(part.order)
            self.checker.delivered(group, part.partition, offsets, part.failures)
            one = Settlement(
                partition=part.partition, nonce=part.nonce, verb="ack", offsets=offsets
            )
            (outcome,) = await self.rig.broker.consume.settle(SETTLING, group, None, [one])
            assert outcome.refused == []
            self.checker.settled(group, part.partition, offsets)

    def die(self) -> None:
        """Let the broker be gone, with what was not synced."""
        self.rig.broker.consume.ledgers.stop()
        self.rig.recover_with(self.rig.disk.crash())


async def live(seed: int, *, crashes: bool) -> None:
    work = Workload(seed)
    steps = 0
    while steps < STEPS:
        if crashes:
            work.rig.die_in(work.random.randrange(1, 250))
        try:
            await work.begin()
            work.compare()
            while steps < STEPS:
                steps += 1
                await work.step()
        except (CrashError, GoQueueError):
            if not crashes:
                raise
            work.die()
    work.die()
    await work.begin()
    await work.drain()
    await work.rig.stop()


@pytest.mark.parametrize("seed", range(4))
def test_everything_ends_once(seed: int) -> None:
    """Without faults every message is settled once for every group (P2)."""
    run(live(seed, crashes=False))


@pytest.mark.parametrize("seed", range(25))
def test_everything_ends_once_over_crashes(seed: int) -> None:
    """The broker dies again and again at any operation; nothing confirmed is taken back (P2)."""
    run(live(100 + seed, crashes=True))
