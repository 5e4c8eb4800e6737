"""A broker with something of everything on its disk, and what must be true of it ever after."""

from collections.abc import Mapping

from pyroaring import BitMap64

from goqueue.base.errors import StorageFailedError
from goqueue.base.ids import Position
from goqueue.core.delivery.runs import set_of
from goqueue.core.record.message import Draft, Message
from goqueue.core.schemas.schema import Schema, SchemaType
from goqueue.core.tx.producer import ABORT, COMMIT
from goqueue.runtime.ballast import BALLAST_PATH
from goqueue.runtime.log.fetch import Fetched, FetchPart, fetch
from goqueue.testing.disk import MemoryDisk
from tests.runtime.grants import FETCHING, PUBLISHING
from tests.runtime.rig import messages_in
from tests.runtime.test_consume import Shop
from tests.runtime.test_transactions import Bank

HOUR_MS = 3_600_000
PLACES = [
    ("orders", 0), ("accounts", 0), ("accounts", 1), ("later", 0), ("table", 0), ("once", 0),
    ("orders.dlq", 0),
]  # fmt: skip
SCHEMA = Schema(text='{"type": "string"}', type=SchemaType.JSON)
OFFSETS_TOLD_MAX = 10_000

Content = tuple[bytes | None, bytes | None, Mapping[str, bytes] | None, int]
Files = dict[str, bytes]


def content(message: Message) -> Content:
    return message.key, message.value, message.headers, message.priority


class World(Bank):
    """Something of everything: published, leased, settled, rejected, delayed, compacted, ended."""

    def __init__(self) -> None:
        super().__init__()
        self.shop = Shop()
        self.shop.rig = self.rig
        self.member = ""
        self.settled = BitMap64()
        self.truth: dict[tuple[str, int], dict[int, Content]] = {}
        self.ends: dict[tuple[str, int], int] = {}

    async def fill(self) -> None:
        await self.open()
        make = self.rig.broker.create_topic
        make("orders", partitions=1, settings={"segment_bytes": 4096})
        make("later", partitions=1)
        make("table", partitions=1, settings={"cleanup_policy": "compact"})
        make("once", partitions=1, settings={"dedup_window_ms": HOUR_MS})
        await self._order()
        await self._transact()
        await self._delay()
        await self.send("table", *[self._draft(b"%d" % n, key=b"k%d" % (n % 3)) for n in range(6)])
        await self.rig.broker.compactor.compact(self.rig.broker.topic("table"))
        await self.send("table", self._draft(b"last", key=b"k0"))
        await self.send("once", *self.dedup_drafts())
        await self.rig.publish("orders", 0, [b"by a producer"], producer="p")
        await self.rig.broker.schemas.register("subject", SCHEMA)
        for place in PLACES:
            self.truth[place] = (await read(self, *place))[0]
            self.ends[place] = self.rig.broker.topic(place[0]).partition(place[1]).log.end_offset

    def _draft(self, value: bytes | None, *, key: bytes | None = None) -> Draft:
        return Draft(value=value, key=key, timestamp_us=self.rig.clock.now_us())

    def dedup_drafts(self) -> list[Draft]:
        """Return messages that are published once, however often they are sent."""
        now_us = self.rig.clock.now_us()
        return [Draft(value=b"%d" % n, dedup_id=b"id%d" % n, timestamp_us=now_us) for n in range(3)]

    async def send(self, topic: str, *drafts: Draft) -> list[int]:
        """Publish into partition 0; return the offsets."""
        where = self.rig.broker.topic(topic)
        offsets: list[int] = []
        for outcome in await where.publish_drafts(PUBLISHING, [(draft, 0) for draft in drafts]):
            if not isinstance(outcome, tuple):
                raise outcome
            offsets.append(outcome[1])
        return offsets

    async def _order(self) -> None:
        now_us = self.rig.clock.now_us()
        drafts = [
            Draft(
                value=(b"order %d" % n, b"", None, b"o" * 300)[n % 4],
                key=b"key %d" % (n % 7) if n % 3 else None,
                headers={"n": b"%d" % n} if n % 6 == 0 else None,
                priority=n % 5,
                timestamp_us=now_us,
            )
            for n in range(60)
        ]
        for n in range(0, 30, 2):
            await self.send("orders", *drafts[n : n + 2])
        await self.send("orders", *drafts[30:])
        self.member = await self.shop.join()
        for part in await self.shop.poll(self.member, 30):
            offsets = sorted(set_of(part.order))
            await self.shop.settle("ack", part, offsets[:20])
            await self.shop.settle("reject", part, offsets[20:22], reason="bad")
            self.settled |= BitMap64(offsets[:22])
        await self.rig.broker.dead_letters.idle()

    async def _transact(self) -> None:
        who = await self.init()
        for number, outcome in enumerate([COMMIT, ABORT, COMMIT, ABORT, COMMIT]):
            mine = await self.begin(who)
            for partition in (0, 1):
                await self.publish(mine, partition, f"{outcome} {number} in {partition}")
            assert await self.tx.end(mine, outcome)
            await self.plain(number % 2, f"plain {number}")
        await self.settle_down()

    async def _delay(self) -> None:
        now_us = self.rig.clock.now_us()
        due_us = now_us + HOUR_MS * 1_000
        for value in (b"due", b"cancelled", b"moved"):
            await self.send("later", Draft(value=value, deliver_at_us=due_us, timestamp_us=now_us))
        later_ms = due_us // 1_000 + 2 * HOUR_MS
        await self.rig.broker.delays.cancel("later", 0, 1)
        await self.rig.broker.delays.reschedule("later", 0, 2, due_ms=later_ms)


async def read(world: Bank, topic: str, number: int) -> tuple[dict[int, Content], set[int]]:
    """Return what a reader gets of a partition, and the offsets it is told are damaged."""
    where = world.rig.broker.topic(topic)
    at = where.partition(number).log.start_offset
    found: dict[int, Content] = {}
    gaps: set[int] = set()
    while True:
        parts = [FetchPart(partition=number, offset=at)]
        (outcome,) = await fetch(FETCHING, where, parts, bytes_max=20_000, wait_ms=0)
        assert isinstance(outcome, Fetched), outcome
        messages = messages_in(topic, number, outcome.frames)
        found |= {one.offset: content(one) for one in messages if one.offset >= at}
        for start, end in outcome.gaps:
            gaps.update(range(start, min(end, start + OFFSETS_TOLD_MAX)))
        if outcome.next_offset == at:
            return found, gaps
        at = outcome.next_offset


def files_of(disk: MemoryDisk, folder: str = "") -> Files:
    """Return every file of a disk but the one that only takes room."""
    found: Files = {}
    for name in disk.list_directory(folder):
        path = f"{folder}/{name}".lstrip("/")
        try:
            file = disk.open(path)
        except StorageFailedError:
            found |= files_of(disk, path)
            continue
        found[path] = file.read(Position(0), file.size())
    return {path: raw for path, raw in found.items() if path != BALLAST_PATH}


def put_on(disk: MemoryDisk, files: Files) -> None:
    """Write files to a new disk, durably."""
    for path, raw in files.items():
        folder = path.rpartition("/")[0]
        disk.make_directory(folder)
        file = disk.open(path, create=True)
        file.append([raw])
        file.sync()
        disk.sync_directory(folder)
