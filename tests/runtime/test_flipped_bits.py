"""One or two flipped bits anywhere on the disk: nothing wrong is served in silence (P10).

Each kind of file has the same chance to be hit, after a kill and after a clean stop. What is
missing or comes again must have been reported; what was never to be seen must not be seen. There
are GOQUEUE_FLIP_RUNS runs (a few by default). A failure names its number, which is its seed.
"""

import asyncio
import contextlib
import io
import json
import os
import re
from functools import cache
from random import Random

import pytest

from goqueue.base.errors import GoQueueError
from goqueue.core.delivery.runs import numbers_in
from goqueue.core.log.scan import Walk
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.runtime import broker as broker_module
from goqueue.runtime.tx import finisher as tx_endings
from goqueue.testing.clock import FakeClock
from goqueue.testing.disk import MemoryDisk
from tests.runtime.flip_world import HOUR_MS, PLACES, SCHEMA, Files, World, files_of, put_on, read
from tests.runtime.grants import PUBLISHING
from tests.runtime.test_consume import texts

RUNS = int(os.environ.get("GOQUEUE_FLIP_RUNS", "60"))
SHARES = 10
ANYWHERE_SHARE = 0.3


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)
    monkeypatch.setattr(broker_module, "TX_STATE_PARTITIONS", 1)
    monkeypatch.setattr(broker_module, "SCHEMAS_PARTITIONS", 1)
    monkeypatch.setattr(tx_endings, "FINISH_SECONDS", 0.0)


@cache
def built(*, is_clean: bool) -> tuple[World, Files]:
    """Return a world and what it left on its disk."""

    async def main() -> tuple[World, Files]:
        world = World()
        await world.fill()
        if is_clean:
            await world.rig.stop()
            return world, files_of(world.rig.disk)
        await world.abandon()
        return world, files_of(world.rig.disk.kill())

    return asyncio.run(main())


def kind_of(path: str) -> str:
    """Return what a file is, by its topic and its ending."""
    _, topic, *_ = path.split("/")
    owner = topic if topic.startswith("__") or not path.startswith("logs/") else "topic"
    return f"{owner} {re.sub('[0-9]', '', path.rpartition('/')[2])}"


def byte_of(random: Random, path: str, raw: bytes) -> int:
    """Return which byte is hit: anyone, or of a log one where most depends on it."""
    if not path.endswith(".log") or random.random() < ANYWHERE_SHARE:
        return random.randrange(len(raw))
    starts = [span.start for span in Walk(raw)]
    # The flags and checksum of a frame, or anything of the last one.
    if random.getrandbits(1):
        byte: int = random.choice((3, 3, 3, *range(8)))
        return random.choice(starts) + byte
    return random.randrange(starts[-1], len(raw))


class Run:
    """A broker on a disk with flipped bits, compared with the world it was."""

    def __init__(self, world: World, files: Files) -> None:
        self.was = world
        self.now = World()
        self.now.rig.clock = FakeClock(world.rig.clock.now_ms())
        self.now.member = world.member
        self.disk: MemoryDisk = self.now.rig.disk
        put_on(self.disk, files)
        self.printed = io.StringIO()
        self.faults: list[str] = []
        self.gaps: set[tuple[str, int, int]] = set()

    def flip(self, random: Random, files: Files, count: int) -> list[str]:
        """Flip bits in files of one kind, or two; return where."""
        kinds: dict[str, list[str]] = {}
        for path, raw in files.items():
            if raw:
                kinds.setdefault(kind_of(path), []).append(path)
        flipped = []
        for _ in range(count):
            path = random.choice(kinds[random.choice(sorted(kinds))])
            byte, bit = byte_of(random, path, files[path]), random.randrange(8)
            self.disk.flip_bits(path, [byte], mask=1 << bit)
            flipped.append(f"{path} byte {byte} bit {bit}")
        return flipped

    @property
    def loud(self) -> list[str]:
        """What was logged that somebody would look at."""
        lines = [json.loads(line) for line in self.printed.getvalue().splitlines() if line]
        return [one["event"] for one in lines if one["level"] in ("warning", "error", "critical")]

    def blame(self, text: str, *, unless_loud: bool = True) -> None:
        if not unless_loud or not self.loud:
            self.faults.append(text)

    async def check(self) -> None:
        with contextlib.redirect_stderr(self.printed):
            try:
                await self.now.rig.start()
            except GoQueueError:
                # It says why it does not start, so nothing wrong is served.
                return
            try:
                await self._compare()
            finally:
                with contextlib.suppress(GoQueueError):
                    await self.now.rig.stop()

    async def _compare(self) -> None:
        for place in PLACES:
            if place[0] not in self.now.rig.broker.topics:
                self.blame(f"{place[0]} is gone")
                continue
            await self._compare_messages(place)
        for step in (
            self._compare_group,
            self._repeat_known,
            self._repeat_idempotent,
            self._publish_new,
            self._compare_delays,
            self._compare_schemas,
        ):
            try:
                await step()
            except GoQueueError as error:
                # Whoever asked is told; nothing is taken for granted that is not so.
                self.blame(f"{step.__name__}: {error!r}")

    async def _compare_messages(self, place: tuple[str, int]) -> None:
        truth = self.was.truth[place]
        found, gaps = await read(self.now, *place)
        self.gaps |= {(*place, at) for at in gaps}
        for at, got in found.items():
            if at not in truth:
                is_aborted = (got[1] or b"").startswith(b"abort")
                self.blame(f"{place} shows offset {at}: {got}", unless_loud=not is_aborted)
            elif truth[at] != got:
                self.blame(f"{place} has {got} at {at}, not {truth[at]}", unless_loud=False)
        missing = truth.keys() - found.keys() - gaps
        if missing:
            self.blame(f"{place} misses {sorted(missing)}")

    async def _compare_group(self) -> None:
        truth = self.was.truth["orders", 0]
        found: set[int] = set()
        for _ in range(3):
            # What was leased comes back when its time is over, and again after its pause.
            self.now.shop.later(120_000)
            found |= await self._take_all()
        wanted = truth.keys() - set(self.was.settled)
        if found - wanted:
            self.blame(f"the group gets again {sorted(found - wanted)}")
        told = {at for topic, _, at in self.gaps if topic == "orders"}
        if wanted - found - told:
            self.blame(f"the group misses {sorted(wanted - found - told)}")

    async def _take_all(self) -> set[int]:
        truth = self.was.truth["orders", 0]
        found: set[int] = set()
        while parts := await self.now.shop.poll(self.now.member):
            for part in parts:
                for at, text in zip(numbers_in(part.order).tolist(), texts(part), strict=True):
                    found.add(at)
                    if at not in truth or (truth[at][1] or b"").decode() != text:
                        self.blame(f"the group gets {text} at {at}", unless_loud=False)
                await self.now.shop.settle("ack", part)
        return found

    async def _repeat_known(self) -> None:
        offsets = await self.now.send("once", *self.was.dedup_drafts())
        if offsets != [0, 1, 2]:
            self.blame(f"repeats are published again at {offsets}")

    async def _repeat_idempotent(self) -> None:
        stamp = self.was.rig.clients["p"].stamp
        drafts = [Draft(value=b"by a producer", timestamp_us=self.now.rig.clock.now_us())]
        frames = memoryview(frame_drafts(drafts, stamp))
        published = await self.now.rig.broker.topic("orders").publish(PUBLISHING, 0, frames)
        if published.base_offset != 60:
            self.blame(f"a repeat is published again at {published.base_offset}")

    async def _publish_new(self) -> None:
        for topic, number in PLACES:
            if number:
                continue
            draft = Draft(value=b"new", key=b"new", timestamp_us=self.now.rig.clock.now_us())
            (offset,) = await self.now.send(topic, draft)
            if offset < self.was.ends[topic, number]:
                self.blame(f"{topic} gives offset {offset} again", unless_loud=False)
            found, _ = await read(self.now, topic, number)
            if found.get(offset, (None, None))[1] != b"new":
                self.blame(f"{topic} does not show what was just published", unless_loud=False)
        parts = await self.now.shop.poll(self.now.member)
        if "new" not in [text for part in parts for text in texts(part)]:
            self.blame("the group does not get what was just published", unless_loud=False)

    async def _compare_delays(self) -> None:
        partition = self.now.rig.broker.topic("later").partition(0)
        for hours, wanted in ((2, {b"due"}), (4, {b"due", b"moved"})):
            self.now.rig.clock.advance(2 * HOUR_MS)
            partition.queue.advance()
            found, gaps = await read(self.now, "later", 0)
            seen = {got[1] for at, got in found.items() if at < self.was.ends["later", 0]}
            if seen - wanted or (wanted - seen and not gaps):
                self.blame(f"after {hours} hours {seen} are seen, not {wanted}")

    async def _compare_schemas(self) -> None:
        stored = self.now.rig.broker.schemas.registry.get("subject", None)
        if stored.schema != SCHEMA:
            self.blame(f"the registry has {stored}", unless_loud=False)


@pytest.mark.parametrize("is_clean", [False, True])
def test_without_flips_nothing_is_reported(*, is_clean: bool) -> None:
    """The comparison itself has nothing to complain about, and the broker has not either."""
    world, files = built(is_clean=is_clean)
    run = Run(world, files)
    asyncio.run(run.check())

    assert run.faults == []
    assert run.loud == []
    assert {kind_of(path) for path in files} >= {
        "topic .log", "topic .index", "topic .timeindex", "__consumer_offsets .log",
    }  # fmt: skip


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("is_clean", [False, True])
def test_nothing_wrong_is_served_in_silence(share: int, *, is_clean: bool) -> None:
    """Whatever bit it is: the broker says so, or it makes no difference."""
    world, files = built(is_clean=is_clean)
    for number in range(share, RUNS // 2, SHARES):
        random = Random(number)
        run = Run(world, files)
        flipped = run.flip(random, files, random.choice((1, 2)))
        try:
            asyncio.run(run.check())
        except Exception as error:  # noqa: BLE001 - whatever it is, its seed is named
            run.faults.append(repr(error))

        assert run.faults == [], f"run {number}, flipped {flipped}, said {run.loud}"
