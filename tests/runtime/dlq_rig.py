"""A broker whose ledgers are doomed by hand, and the checks that nothing is lost or doubled."""

import asyncio
from collections.abc import Iterable, Sequence

from pyroaring import BitMap64

from goqueue.base.ids import Offset, PartitionId, TopicName, TopicPartition
from goqueue.core.delivery.events import Doomed, Event
from goqueue.core.delivery.ledger import Ledger
from goqueue.core.delivery.picker import Picker
from goqueue.core.delivery.runs import runs_of
from goqueue.core.delivery.terms import LeaseTerms
from goqueue.core.delivery.view import View
from goqueue.core.record.message import Draft, Message
from goqueue.observability.dlq_metrics import DlqMeter
from goqueue.observability.metrics import Metrics
from goqueue.runtime.dlq.dead_letters import DeadLetters
from goqueue.runtime.dlq.moves import Mover
from goqueue.runtime.log.page import read_page
from goqueue.runtime.machine import MachineHost
from tests.runtime.grants import FETCHING, PUBLISHING
from tests.runtime.rig import Rig

ORDERS = TopicPartition(TopicName("orders"), PartitionId(0))


class Host:
    """Hosts one ledger, as the broker does."""

    def __init__(self, rig: Rig, group: str = "billing", name: TopicPartition = ORDERS) -> None:
        self.group = group
        self.is_closed = False
        self.ledger = Ledger(origin=Offset(0), by_key=False)
        key = f"by-hand/{group}/{name.topic}/{name.partition}"
        self._host = MachineHost[Event](rig.broker.state, key, home=group, machine=self.ledger)
        self._host.load(Event)
        self._rig = rig
        self.partition = rig.broker.topic(name.topic).partition(name.partition)
        self._nonce = 1_000 * len(rig.disk.log)

    def commit(self, events: Sequence[Event]) -> None:
        self._host.commit(events)

    def durable(self) -> asyncio.Future[None]:
        return self._host.durable()

    async def doom(self, offsets: Iterable[int], *, reason: str = "REJECTED") -> None:
        """Lease messages and let them fail for good."""
        wanted = BitMap64(offsets)
        await self.lease_all()
        for nonce, lease in list(self.ledger.leases):
            held = lease.offsets & wanted
            if held:
                self.commit(
                    [
                        Doomed(
                            offsets=runs_of(held),
                            nonce=nonce,
                            reason=reason,
                            error="it exploded",
                            at_ms=self._rig.clock.now_ms(),
                        )
                    ]
                )
                await self.durable()

    async def lease_all(self) -> None:
        log = self.partition.log
        view = View(
            log.start_offset,
            self.partition.visible_offset,
            [BitMap64() for _ in range(5)],
            BitMap64(),
            BitMap64(),
        )
        pick = Picker(now_ms=0).pick(self.ledger, view, 1_000, now_ms=0)
        self._nonce += 1
        terms = LeaseTerms(self._nonce, "worker-1", 10**9, 10**9, self._rig.clock.now_ms())
        decision = self.ledger.lease(
            pick, pick.offsets, terms, view, gone=BitMap64(), expired=BitMap64()
        )
        if decision.events:
            self.commit(decision.events)
            await self.durable()


class Pauses:
    """Sleeps without time passing; remembers for how long."""

    def __init__(self, rig: Rig, *, most: int = 1_000) -> None:
        self.rig = rig
        self.durations_ms: list[int] = []
        self._most = most
        self.gate: asyncio.Event | None = None
        self._began = asyncio.Event()

    async def reach(self, count: int) -> None:
        """Return when so many pauses have begun."""
        while len(self.durations_ms) < count:
            self._began.clear()
            await self._began.wait()

    async def __call__(self, duration_ms: int) -> None:
        self.durations_ms.append(duration_ms)
        self._began.set()
        assert len(self.durations_ms) < self._most, "it never ends"
        self.rig.check_alive()
        self.rig.clock.advance(duration_ms)
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(0)


def dead_letters(rig: Rig, sleep: Pauses | None = None) -> DeadLetters:
    """Return what takes doomed messages away, on a broker of a rig."""
    return DeadLetters(
        rig.broker,
        mover=Mover(rig.broker.topic, rig.clock),
        clock=rig.clock,
        meter=DlqMeter(Metrics()),
        sleep=sleep or Pauses(rig),
    )


def numbered(count: int, start: int = 0) -> list[Draft]:
    """Return messages that can be told apart, every third without a key."""
    return [
        Draft(
            value=b"value-%d" % number,
            key=b"key-%d" % number if number % 3 else None,
            headers={"traceparent": b"00-trace-%d" % number} if number % 2 else None,
            priority=number % 5,
            timestamp_us=1_600_000_000_000_000 + number,
        )
        for number in range(start, start + count)
    ]


async def publish(rig: Rig, drafts: Sequence[Draft], *, topic: str = "orders") -> None:
    """Publish into partition 0."""
    outcomes = await rig.broker.topic(topic).publish_drafts(
        PUBLISHING, [(draft, 0) for draft in drafts]
    )
    rig.check_alive()
    assert not any(isinstance(outcome, Exception) for outcome in outcomes), outcomes


async def messages(rig: Rig, topic: str) -> list[Message]:
    """Return everything in a topic."""
    where = rig.broker.topics.get(TopicName(topic))
    if where is None:
        return []
    found: list[Message] = []
    for partition in where.partitions:
        offset, end = partition.log.start_offset, partition.visible_offset
        while offset < end:
            number = partition.name.partition
            page = await read_page(
                FETCHING, where, number, offset=offset, count_max=10**6, bytes_max=10**8
            )
            assert not page.unreadable
            found += page.messages
            offset = page.next_offset
    return found
