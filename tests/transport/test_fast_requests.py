"""Requests answered at once and those served by a task get the same answers and write the same."""

import asyncio
import contextlib
import secrets
from collections.abc import Coroutine, Iterator
from random import Random
from typing import Any, TypeVar

import msgspec
import pytest

from goqueue.base.caller import EMBEDDED
from goqueue.base.errors import GoQueueError
from goqueue.base.ids import Position
from goqueue.core.delivery.runs import numbers_in
from goqueue.core.record.message import Draft, Priority
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.runtime import broker as broker_module
from goqueue.runtime import commit
from goqueue.service.service import Service
from goqueue.service.verb import Later, Reply, RequestContext
from goqueue.testing.disk import MemoryDisk
from goqueue.testing.sim.loop import SimLoop
from goqueue.transport.native.dispatch import Dispatch
from goqueue.wire import calls, group_calls, queue_calls
from goqueue.wire.packet import Operation
from tests.runtime.rig import Rig

Result = TypeVar("Result")
STEPS = 120
SEEDS = range(6)
MEMBER = "c-0"
UNSTEADY = ("_seconds", "_fsync_", "_bytes_read_", "_index_lookups_")
"""Metrics that depend on how quick this machine is, or on which requests share a sync or a read."""
Answer = bytes | tuple[str, str]
"""A reply as it travels, or the code and the words of an error."""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)
    # However slow this machine is just now, the quick path is taken.
    monkeypatch.setattr(commit, "INLINE_SYNC_SECONDS_MAX", 1e9)


class Road:
    """A broker whose requests take the quick path where they may, or never do."""

    def __init__(self, *, is_quick: bool) -> None:
        self.rig = Rig()
        self.answers: list[Answer] = []
        self.at_once_count = 0
        self.together_count = 0
        self.several_count = 0
        """Requests of several parts that took the quick path."""
        self._is_quick = is_quick

    async def open(self) -> None:
        service = Service(await self.rig.start())
        self._count_leases()
        self._dispatch, self._session = Dispatch(service), service.open(EMBEDDED)

    async def ask(self, operation: Operation, call: calls.Call, payload: bytes = b"") -> Any:
        """Serve a request by a task, whichever road this is."""
        context = RequestContext(memoryview(payload))
        header = msgspec.msgpack.encode(call)
        reply = await self._dispatch.serve(self._session, operation, header, context)
        return reply.header

    async def produce(self, *requests: tuple[calls.Produce, bytes]) -> None:
        """Publish requests of one moment, in their order."""
        answers: list[asyncio.Future[calls.Call]] = []
        for call, payload in requests:
            answer: asyncio.Future[calls.Call] = asyncio.get_running_loop().create_future()
            answers.append(answer)
            if not (self._is_quick and self._begin(call, payload, answer)):
                answers[-1] = asyncio.ensure_future(self.ask(Operation.PRODUCE, call, payload))
                # As on a connection: nothing overtakes a request that has not begun.
                await asyncio.sleep(0)
        for answer in answers:
            try:
                self.answers.append(msgspec.msgpack.encode(await answer))
            except GoQueueError as error:
                self.refuse(error)

    def _begin(
        self, call: calls.Produce, payload: bytes, answer: asyncio.Future[calls.Call]
    ) -> bool:
        header = msgspec.msgpack.encode(call)
        try:
            begun = self._dispatch.begin_produce(
                self._session, header, memoryview(payload), answer.set_result
            )
        except GoQueueError as error:
            answer.set_exception(error)
            return True
        if not isinstance(begun, bool):
            answer.set_result(begun)
            self.at_once_count += 1
        elif begun:
            self.together_count += 1
        self.several_count += begun is not False and len(call.parts) > 1
        return begun is not False

    async def take_jobs(self, *requests: tuple[Operation, calls.Call]) -> list[calls.Call]:
        """Settle and poll in requests of one moment; return the headers of those that went well."""
        found: list[calls.Call] = []
        begun = [await self._begin_job(operation, call) for operation, call in requests]
        for one in begun:
            try:
                reply = await one.reply() if isinstance(one, Later) else one
                if isinstance(reply, GoQueueError):
                    raise reply
            except GoQueueError as error:
                self.refuse(error)
                continue
            self.answers.append(msgspec.msgpack.encode(reply.header))
            self.answers.append(b"".join(reply.payload))
            found.append(reply.header)
        return found

    async def _begin_job(
        self, operation: Operation, call: calls.Call
    ) -> Reply | Later | GoQueueError:
        header = msgspec.msgpack.encode(call)
        context = RequestContext(memoryview(b""))
        try:
            return await self._dispatch.begin(self._session, operation, header, context)
        except GoQueueError as error:
            return error

    def _count_leases(self) -> None:
        """Count the polls that were answered at once; on the general road there are none."""
        polling = self.rig.broker.consume._polling  # noqa: SLF001 - the only way to keep it out
        lease_at_once = polling.lease_at_once

        def count(*args: Any) -> bool:
            is_done = self._is_quick and lease_at_once(*args)
            self.at_once_count += is_done
            return is_done

        polling.lease_at_once = count  # type: ignore[assignment, method-assign]
        # Numbers that do not depend on how often one was drawn for nothing.
        known = self.rig.broker.consume.ledgers._homes._homes  # noqa: SLF001 - see above
        polling._leasing._nonce = lambda: len(known) + 1  # noqa: SLF001 - see above

    def refuse(self, error: GoQueueError) -> None:
        self.answers.append((error.code, error.message))

    async def wait(self, duration_ms: int) -> None:
        """Let time pass, and the committer see that nobody else is about."""
        self.rig.clock.advance(duration_ms)
        await asyncio.sleep(duration_ms / 1_000)
        for _ in range(6):
            await asyncio.sleep(0)

    def counts(self) -> list[str]:
        """Return all metrics that both roads must count alike."""
        lines = self.rig.metrics_text().splitlines()
        own = [line for line in lines if line.startswith("goqueue_")]
        return sorted(line for line in own if not any(name in line for name in UNSTEADY))


def in_virtual_time(story: Coroutine[Any, Any, Result]) -> Result:
    """Run a story in a loop that does not wait; what it leaves to be done is not done."""
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(story)


def files_of(disk: MemoryDisk, path: str) -> Iterator[tuple[str, bytes]]:
    """Return the names below a directory of a disk, and what they hold."""
    for name in disk.list_directory(path):
        below = f"{path}/{name}"
        try:
            file = disk.open(below)
        except GoQueueError:
            yield from files_of(disk, below)
        else:
            yield below, bytes(file.read(Position(0), 1 << 30))


def durable_files(road: Road) -> dict[str, bytes]:
    """Return what a power cut would leave of the logs."""
    disk = road.rig.disk.crash()
    return dict(files_of(disk, "logs"))


class Publishes:
    """Requests to publish, good ones and others, the same for the same seed."""

    def __init__(self, seed: int, stamps: list[ProducerStamp], sizes: list[int]) -> None:
        self._random = Random(seed)
        self._sizes = sizes
        self._stamps = stamps
        self._sent: list[tuple[calls.Produce, bytes]] = []

    def next(self, now_us: int) -> tuple[calls.Produce, bytes]:
        random = self._random
        if self._sent and random.random() < 0.15:
            return random.choice(self._sent)
        topic = random.choice(["orders", "orders", "orders", "unique", "none"])
        acks = random.choice(["all", "all", "all", "leader", "none", "odd"])
        if random.random() < 0.5:
            numbers = [random.choice([0, 0, 1, 1, 2])]
        else:
            numbers = random.choice([[0, 1], [1, 0], [0, 1], [0, 1, 2], [1, 1]])
        payloads = [self._frames(now_us) for _ in numbers]
        parts = [
            calls.ProducePart(number, len(payload) + (random.random() < 0.02))
            for number, payload in zip(numbers, payloads, strict=True)
        ]
        self._sent.append((calls.Produce(topic, acks, parts), b"".join(payloads)))
        return self._sent[-1]

    def _frames(self, now_us: int) -> bytes:
        """Return frames for one partition, now and then damaged."""
        random = self._random
        drafts = [self._draft(now_us) for _ in range(random.choice(self._sizes))]
        payload = frame_drafts(drafts, self._stamp(len(drafts)))
        if random.random() < 0.05:
            damaged = bytearray(payload)
            damaged[random.randrange(len(payload))] ^= 1 << random.randrange(8)
            payload = bytes(damaged)
        return payload

    def _draft(self, now_us: int) -> Draft:
        random = self._random
        return Draft(
            value=random.choice([None, b"", random.randbytes(20)]),
            key=random.choice([None, b"k", random.randbytes(3)]),
            timestamp_us=now_us - random.randrange(10**9),
            headers=random.choice([None, None, {"h": b"1"}]),
            priority=random.choice([Priority.NORMAL, Priority.NORMAL, Priority.HIGH]),
            deliver_at_us=random.choice([None] * 9 + [now_us + random.randrange(-(10**7), 10**7)]),
            dedup_id=random.choice([None, None, b"%d" % random.randrange(9)]),
        )

    def _stamp(self, count: int) -> ProducerStamp:
        """Return no stamp, or one that is next for some partition, or is behind or before it."""
        random = self._random
        if random.random() < 0.4:
            return NO_STAMP
        place = random.randrange(len(self._stamps))
        stamp = self._stamps[place]
        if random.random() < 0.7:
            self._stamps[place] = stamp.after(count)
        return stamp if random.random() < 0.9 else stamp.after(random.randrange(5))


async def publish_some(road: Road, seed: int, together_max: int) -> None:
    """Publish on a disk that fills up, and fails in the end; some requests at the same time."""
    await road.open()
    broker, disk = road.rig.broker, road.rig.disk
    broker.create_topic("orders", partitions=2, settings={"segment_bytes": 1 << 16})
    broker.create_topic("unique", partitions=2, settings={"dedup_window_ms": 60_000})
    sizes = [1, 1, 2, 3, 40, 150] if together_max == 1 else [1, 1, 1, 2, 3, 5]
    requests = Publishes(seed, [broker.init_producer() for _ in range(3)], sizes)
    random = Random(seed)
    for step in range(STEPS):
        await road.wait(random.randrange(3_000))
        match random.randrange(40):
            case 0:
                disk.fill_up()
            case 1 | 2 | 3:
                disk.make_room()
            case 4 if step > STEPS * 3 // 4 and together_max == 1:
                # Whether one of several requests is appended before a sync fails is chance.
                disk.fail_sync("logs/orders/0/*.log", drops_pages=True)
        count = random.randint(1, together_max)
        await road.produce(*[requests.next(road.rig.clock.now_us()) for _ in range(count)])


@pytest.mark.parametrize("together_max", [1, 8])
@pytest.mark.parametrize("seed", SEEDS)
def test_begin_produce_and_serve_publish_alike(seed: int, together_max: int) -> None:
    """``SmallRequests.begin`` answers, writes and counts as ``append_all``, ``acknowledge``."""

    quick, general = Road(is_quick=True), Road(is_quick=False)
    for road in (quick, general):
        in_virtual_time(publish_some(road, seed, together_max))

    assert quick.answers == general.answers
    assert quick.counts() == general.counts()
    assert durable_files(quick) == durable_files(general)
    assert quick.at_once_count > STEPS // 20
    assert quick.several_count > STEPS // 20
    assert together_max == 1 or quick.together_count > STEPS // 10


def settlements(random: Random, held: list[queue_calls.PolledPart]) -> queue_calls.Settle:
    """Return what is to become of some messages that were leased, and of some that were not."""
    parts: list[queue_calls.SettlePart] = []
    for part in random.sample(held, min(len(held), random.randrange(1, 4))):
        order = list(numbers_in(part.order))
        first = random.randrange(len(order))
        last = random.randrange(first, len(order))
        verb = random.choice((*queue_calls.VERBS, "ack", "ack", "ack"))
        parts.append(
            queue_calls.SettlePart(
                part.topic,
                part.partition if random.random() < 0.95 else 7,
                part.nonce if random.random() < 0.9 else random.randrange(1, 2**40),
                verb if random.random() < 0.98 else "odd",
                [int(order[first]), int(order[last]) + 1],
                "why",
                random.choice([None, 0, 500]),
                random.choice([None, 1_000, 5_000, 5_000]),
            )
        )
    return queue_calls.Settle("g" if random.random() < 0.95 else "nobody", MEMBER, parts)


async def work_some(road: Road, seed: int, together_max: int) -> list[object]:
    """Publish, lease and settle, one message at a time or more; return what ledgers hold."""
    random = Random(seed)
    await road.open()
    broker, disk = road.rig.broker, road.rig.disk
    broker.create_topic("orders", partitions=3)
    options: dict[str, str | int | bool] = {
        "visibility_timeout_ms": 10_000,
        "mode": "shared",
        "max_in_flight": random.choice([1, 5, 1_000]),
        "ordering": random.choice(["none", "none", "key"]),
    }
    join = group_calls.JoinGroup("g", "c", ["orders"], options=options)
    await road.ask(Operation.JOIN_GROUP, join)
    held: list[queue_calls.PolledPart] = []
    for step in range(2 * STEPS):
        await road.wait(random.randrange(1_000))
        if step % 20 == 0:
            await publish_jobs(road, random)
        if random.random() < 0.03:
            disk.fill_up()
        elif random.random() < 0.2:
            disk.make_room()
        if random.random() < 0.01 and step > STEPS and together_max == 1:
            disk.fail_sync("logs/__consumer_offsets/*/*.log", drops_pages=True)
        for answer in await road.take_jobs(*jobs(random, held, together_max)):
            if isinstance(answer, queue_calls.Polled):
                held = (held + answer.parts)[-8:]
    return [list(hosted.ledger.snapshot()) for hosted in broker.consume.ledgers]


async def publish_jobs(road: Road, random: Random) -> None:
    """Publish some messages, plain ones and others, in one frame or in several."""
    now_us = road.rig.clock.now_us()
    is_plain = random.random() < 0.7
    drafts = [
        Draft(
            value=random.choice([None, b"", b"%d" % number]),
            key=random.choice([None, b"", b"k%d" % random.randrange(5)]),
            timestamp_us=now_us,
            headers=None if is_plain else random.choice([None, {"h": b"1"}]),
            priority=Priority.NORMAL
            if is_plain
            else random.choice([Priority.NORMAL, Priority.LOW]),
            deliver_at_us=None if is_plain else random.choice([None, now_us + 10**7]),
        )
        for number in range(random.choice([1, 2, 3, 40]))
    ]
    frames = frame_drafts(drafts)
    part = calls.ProducePart(random.randrange(3), len(frames))
    with contextlib.suppress(GoQueueError):
        await road.ask(Operation.PRODUCE, calls.Produce("orders", "all", [part]), frames)


def jobs(
    random: Random, held: list[queue_calls.PolledPart], together_max: int
) -> list[tuple[Operation, calls.Call]]:
    """Return requests of one moment: mostly an ack and a poll for one message in one of them."""
    found: list[tuple[Operation, calls.Call]] = []
    for _ in range(random.randint(1, together_max)):
        limit = random.choice([1, 1, 1, 1, 2, 30])
        about = ("g" if random.random() < 0.98 else "nobody", MEMBER, 0, limit, 1 << 20, 0)
        if not held or random.random() < 0.2:
            found.append((Operation.POLL, queue_calls.Poll(*about)))
        elif random.random() < 0.2:
            found.append((Operation.SETTLE, settlements(random, held)))
        elif random.random() < 0.3:
            parts = settlements(random, held).parts
            found.append((Operation.NEXT, queue_calls.Next(*about, parts)))
        else:
            part = held.pop(random.randrange(len(held)))
            ack = queue_calls.SettlePart(part.topic, part.partition, part.nonce, "ack", part.order)
            found.append((Operation.NEXT, queue_calls.Next(*about, [ack])))
    return found


@pytest.mark.parametrize("together_max", [1, 6])
@pytest.mark.parametrize("seed", range(12))
def test_lease_at_once_and_poll_once_lease_alike(
    seed: int, together_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same answers, the same ledgers, the same bytes in the log of the state."""

    quick, general = Road(is_quick=True), Road(is_quick=False)
    ledgers: list[object] = []
    for road in (quick, general):
        monkeypatch.setattr(secrets, "token_hex", lambda _: "0")
        ledgers.append(in_virtual_time(work_some(road, seed, together_max)))

    assert quick.answers == general.answers
    assert ledgers[0] == ledgers[1]
    assert quick.counts() == general.counts()
    assert durable_files(quick) == durable_files(general)
    assert quick.at_once_count > 0 or general.rig.broker.groups.get("g").options.is_by_key
