"""Every sync fails once, under everything at a time: what was promised before holds afterwards.

A run is a seed and a number: the sync of that number fails, whatever file it is of, and the broker
goes on with what is left of it until it ends and starts again. ``GOQUEUE_EVERY_SYNC=SEEDS`` tries
every number of so many seeds; without it some of the first are tried.
"""

import asyncio
import logging
import os
from collections.abc import Iterable, Iterator

import pytest
from pyroaring import BitMap64

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.core.delivery.runs import set_of
from goqueue.core.record.message import Draft
from goqueue.core.tx.producer import ABORT, COMMIT, Identity
from goqueue.runtime import broker as broker_module
from goqueue.runtime import state_records
from goqueue.runtime.log import catalogue
from goqueue.runtime.queue.leasing import Leased
from goqueue.runtime.queue.settlements import Settlement
from goqueue.runtime.tx import finisher as tx_endings
from goqueue.testing.conservation_checker import ConservationChecker
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, run
from tests.runtime.test_consume_crash import GROUPS, Workload
from tests.runtime.test_transactions import Bank
from tests.runtime.test_transactions_pipelined import at_once

STEPS = 40
SEEDS = int(os.environ.get("GOQUEUE_EVERY_SYNC", "0"))
SHORT_NUMBERS = 24
"""How many numbers are tried where not all of them are."""


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make what is rare happen in a short life."""
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)
    monkeypatch.setattr(broker_module, "TX_STATE_PARTITIONS", 1)
    monkeypatch.setattr(catalogue, "STATE_SEGMENT_BYTES", 4096)
    monkeypatch.setattr(state_records, "SLOTS", 5)
    monkeypatch.setattr(tx_endings, "FINISH_SECONDS", 0)
    # Tasks of a broker that is gone find a dead process.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("asyncio").setLevel(logging.NOTSET)


class Checker(ConservationChecker):
    """Also knows when messages may be delivered at the earliest (P6)."""

    def __init__(self, rig: Rig) -> None:
        super().__init__()
        self._rig = rig
        self.due_us: dict[tuple[TopicPartition, int], int] = {}

    def delivered(
        self,
        group: str,
        partition: TopicPartition,
        offsets: Iterable[int],
        failures: dict[int, int],
    ) -> None:
        """Note a delivery."""
        known = list(offsets)
        for offset in known:
            if self.due_us.get((partition, offset), 0) > self._rig.clock.now_us():
                self.faults.append(f"{group} {partition}@{offset} was delivered early")
        super().delivered(group, partition, known, failures)


class Transfer:
    """One transaction: what it does, and what is known of its end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_asked = False
        """Whether anybody asked for its commit."""
        self.is_committed: bool | None = None
        self.acks: list[tuple[str, TopicPartition, BitMap64]] = []


class Everything(Workload):
    """Publishers, consumers of all kinds, and transactions that ack what consumers hold."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.checker: Checker = Checker(self.rig)
        self.bank = Bank()
        self.bank.rig = self.rig
        self.who: Identity | None = None
        self.transfers: list[Transfer] = []

    async def begin(self) -> None:
        await super().begin()
        if "accounts" not in self.rig.broker.topics:
            self.rig.broker.create_topic("accounts", partitions=2, settings={"segment_bytes": 4096})

    async def step(self) -> None:
        """Do something; what a failed disk refuses is left."""
        actions = [
            self.publish, self.publish, self.poll, self.poll, self.poll, self.ack, self.nack,
            self.reject, self.wait, self.leave, self.transfer, self.transfer, self.transfer,
        ]  # fmt: skip
        try:
            await self.random.choice(actions)()
        except GoQueueError:
            # Told to whoever asked: nothing was promised.
            self.rig.check_alive()
        for _ in range(10):
            await asyncio.sleep(0)
        self.compare()

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
            for _ in range(self.random.randrange(1, 8))
        ]
        results = await self.rig.broker.topic("orders").publish_drafts(
            PUBLISHING, [(draft, None) for draft in drafts]
        )
        for draft, result in zip(drafts, results, strict=True):
            if isinstance(result, tuple):
                name = TopicPartition(TopicName("orders"), PartitionId(result[0]))
                self.checker.sent(name, [result[1]])
                self.checker.due_us[name, result[1]] = draft.deliver_at_us or 0

    async def transfer(self) -> None:
        """Move something between accounts, with acks or without, in either way of asking."""
        transfer = Transfer(f"{len(self.transfers)}")
        self.transfers.append(transfer)
        try:
            if self.who is None:
                self.who = await self.bank.init()
            mine = await self.bank.begin(self.who)
            if self.random.random() < 0.3:
                transfer.is_asked = True
                transfer.is_committed = await at_once(self.bank, mine, transfer.name)
                return
            await self.bank.publish(mine, 0, f"-{transfer.name}")
            await self.hold(mine, transfer)
            await self.bank.publish(mine, 1, f"+{transfer.name}")
            outcome = self.random.choice([COMMIT, COMMIT, COMMIT, ABORT])
            transfer.is_asked = outcome == COMMIT
            await self.bank.tx.end(mine, outcome)
            transfer.is_committed = transfer.is_asked
        except GoQueueError:
            self.who = None
            raise
        finally:
            self.note_end(transfer)

    async def hold(self, mine: Identity, transfer: Transfer) -> None:
        """Let the transaction ack some of what a group has leased."""
        group = self.random.choice([one for one in GROUPS if self.leases[one]] or [None])
        if group is None:
            return
        part: Leased = self.random.choice(self.leases[group][-4:])
        held = set_of(part.order)
        one = Settlement(partition=part.partition, nonce=part.nonce, verb="ack", offsets=held)
        (outcome,) = await self.bank.tx.hold(mine, group, [one])
        refused = BitMap64(refusal.offset for refusal in outcome.refused)
        if held - refused:
            transfer.acks.append((group, part.partition, held - refused))

    def note_end(self, transfer: Transfer) -> None:
        if transfer.is_committed:
            for group, partition, offsets in transfer.acks:
                self.checker.settled(group, partition, offsets)

    # The end, and what is found afterwards.

    async def end(self, ending: int) -> None:
        """Let this life end: by a clean stop, by a kill, or with the power."""
        broker = self.rig.broker
        if ending == 0:
            await broker.stop()
        broker.consume.ledgers.stop()
        await broker.transactions.stop()
        disk = self.rig.disk
        disk.heal()
        self.rig.recover_with(disk.kill() if ending == 1 else disk.crash())
        self.who = None

    async def drain_some(self, group: str) -> None:
        """Also let the time of transactions be over that nobody ended."""
        self.rig.broker.transactions.sweep()
        await self.bank.settle_down()
        await super().drain_some(group)

    async def check_transfers(self) -> None:
        """Each transaction has both of its messages and its acks, or nothing (P9)."""
        minus, plus = [await self.bank.read(number) for number in (0, 1)]
        assert len(minus) == len(set(minus))
        assert len(plus) == len(set(plus))
        for transfer in self.transfers:
            found = (f"-{transfer.name}" in minus, f"+{transfer.name}" in plus)
            assert found[0] == found[1], f"half of {transfer.name}: {found}"
            if transfer.is_committed is not None:
                assert found[0] == transfer.is_committed, f"{transfer.name} ended otherwise"
            if not transfer.is_asked:
                assert not found[0], f"nobody asked for the commit of {transfer.name}"
            transfer.is_committed = found[0]
            self.note_end(transfer)


async def live(seed: int, number: int | None) -> int:
    """Live with a sync that fails; return how many there were."""
    work = Everything(seed)
    disk, count = work.rig.disk, 0

    def fail(path: str) -> None:
        nonlocal count
        count += 1
        if count == number:
            disk.fail_sync(path, drops_pages=number % 2 == 0)

    disk.delay_sync(fail)
    try:
        await work.begin()
        for _ in range(STEPS):
            await work.step()
    except GoQueueError:
        # A broker that could not begin has promised nothing.
        assert not work.transfers
        assert not work.checker.published
    await work.end((number or 0) // 2 % 3)
    await work.begin()
    await work.bank.settle_down()
    await work.check_transfers()
    work.compare()
    await work.drain()
    await work.check_transfers()
    await work.rig.stop()
    return count


def run_once(seed: int, number: int | None) -> int:
    """Return how many syncs a run has had."""
    counts: list[int] = []

    async def main() -> None:
        counts.append(await live(seed, number))

    run(main())
    return counts[0]


def numbers(seed: int) -> Iterator[int]:
    count = run_once(seed, None)
    return iter(range(1, count + 1, 1 if SEEDS else max(count // SHORT_NUMBERS, 1)))


@pytest.mark.parametrize("seed", range(SEEDS or 2))
def test_what_was_promised_holds_whichever_sync_fails(seed: int) -> None:
    """No ack is taken back, no message lost or early, no transaction half done (P1, P2, P6, P9)."""
    for number in numbers(seed):
        try:
            run_once(seed, number)
        except BaseException as error:
            error.add_note(f"seed {seed}, sync {number}")
            raise
