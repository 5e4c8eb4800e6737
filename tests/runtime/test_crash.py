"""A broker that dies at any operation of its life comes back with everything it promised."""

import contextlib
import itertools
import logging
from collections.abc import Iterator
from random import Random

import pytest

from goqueue.base.errors import TopicExistsError, TopicNotFoundError
from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.runtime import meta_journal
from goqueue.runtime.log import partition_snapshots
from goqueue.testing.disk import CrashError
from tests.runtime.rig import Rig, Step, run

ORDERS = TopicPartition(TopicName("orders"), PartitionId(0))
OPERATIONS_MIN = 150


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make what is rare happen in a short life: snapshots and compaction of the journal."""
    monkeypatch.setattr(partition_snapshots, "SNAPSHOT_EVERY_FRAMES", 4)
    monkeypatch.setattr(meta_journal, "JOURNAL_COMPACT_BYTES", 600)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("asyncio").setLevel(logging.NOTSET)


def values(name: str, count: int, size: int = 0) -> list[bytes]:
    return [b"%s-%d " % (name.encode(), number) + b"." * size for number in range(count)]


def create(name: str, *, partitions: int = 1, **settings: object) -> Step:
    async def step(rig: Rig) -> None:
        try:
            rig.broker.create_topic(name, partitions=partitions, settings=settings)
        except TopicExistsError:
            assert rig.broker.topic(name).settings.segment_bytes in settings.values()

    return step


def publish(
    topic: str, number: int, payloads: list[bytes], producer: str | None, *, dedup: bool = False
) -> Step:
    async def step(rig: Rig) -> None:
        await rig.publish(topic, number, payloads, producer=producer, dedup=dedup)

    return step


def configure(name: str, **settings: object) -> Step:
    async def step(rig: Rig) -> None:
        rig.broker.configure_topic(name, settings)

    return step


def delete(name: str) -> Step:
    async def step(rig: Rig) -> None:
        with contextlib.suppress(TopicNotFoundError):
            rig.broker.delete_topic(name)
        rig.checker.deleted(name)
        assert not rig.disk.exists(f"logs/{name}")
        assert not rig.disk.list_directory("deleting")

    return step


async def expire(rig: Rig) -> None:
    """Retention by size: the oldest segments of orders may go."""
    rig.checker.may_expire(ORDERS, rig.broker.topic("orders").partition(0).log.end_offset)
    rig.keep("orders")


async def renew(rig: Rig) -> None:
    rig.renew_client("a")


async def restart(rig: Rig) -> None:
    await rig.stop()
    rig.go_on_with(rig.disk.kill())
    await rig.start()


async def check_settings(rig: Rig) -> None:
    assert rig.broker.topic("orders").settings.retention_bytes == 9_000


WORKLOAD: list[Step] = [
    create("orders", partitions=2, segment_bytes=4_096),
    publish("orders", 0, values("first", 5), "a"),
    publish("orders", 0, values("rows", 3), "a"),
    publish("orders", 1, values("other", 2), "a"),
    publish("orders", 0, values("b", 6, 300), "b"),
    publish("orders", 0, values("roll", 4, 700), "a"),
    configure("orders", retention_bytes=8_000),
    configure("orders", retention_bytes=9_000),
    create("temp", segment_bytes=5_000),
    publish("temp", 0, values("temp", 2), "c"),
    publish("orders", 0, values("roll more", 5, 500), "b"),
    delete("temp"),
    create("temp", segment_bytes=6_000, dedup_window_ms="1h"),
    publish("temp", 0, values("once", 3), None, dedup=True),
    publish("temp", 0, values("once", 4), None, dedup=True),
    publish("temp", 0, values("again", 5), "a", dedup=True),
    publish("temp", 0, values("again", 6), "b", dedup=True),
    restart,
    publish("orders", 0, values("large", 1, 4_200), "a"),
    publish("orders", 0, values("after", 3), "b"),
    expire,
    check_settings,
    renew,
    publish("orders", 0, values("last", 1), "a"),
    publish("orders", 1, values("other last", 7), "b"),
]


class Run:
    """The workload, going on after every crash with the step it died in."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.at = 0

    async def live(self) -> None:
        """Start, do what is left, and look at everything."""
        await self.rig.start()
        await self.rig.audit(after_power_cut=True)
        while self.at < len(WORKLOAD):
            await WORKLOAD[self.at](self.rig)
            self.at += 1
        await self.rig.audit()

    def die_in(self, operations: int) -> bool:
        """Live until an operation; tell whether it was reached."""
        self.rig.die_in(operations)
        try:
            run(self.live())
        except CrashError:
            return True
        return False


def lives() -> Iterator[tuple[int, Run]]:
    """Yield a run dead at each operation of a whole life, one after the other."""
    for operation in itertools.count(1):
        one = Run()
        try:
            if not one.die_in(operation):
                assert operation > OPERATIONS_MIN, "the workload does what it should"
                return
            yield operation, one
        except BaseException as error:
            error.add_note(f"after a crash at operation {operation}")
            raise


@pytest.mark.parametrize("seed", [None, 1, 2, 3], ids=lambda seed: f"torn-{seed}")
def test_a_power_cut_at_every_operation_loses_nothing(seed: int | None) -> None:
    """Every acked message is there once, at its offset; what was not acked can be sent again."""
    for operation, one in lives():
        torn = None if seed is None else Random(seed * 1_000 + operation)
        one.rig.recover_with(one.rig.disk.crash(torn=torn))
        run(one.live())


def test_a_kill_at_every_operation_loses_nothing() -> None:
    """Nor does the power cut that comes after the next process has done its work."""
    for _, one in lives():
        one.rig.recover_with(one.rig.disk.kill())
        run(one.live())
        one.rig.recover_with(one.rig.disk.crash())
        run(one.live())


@pytest.mark.parametrize("seed", [None, 1], ids=lambda seed: f"torn-{seed}")
def test_a_crash_during_recovery_is_recovered_from(seed: int | None) -> None:
    """Recovery may be interrupted anywhere and begun again."""
    for operation in range(3, OPERATIONS_MIN, 7):
        for again in range(1, 20, 2):
            one = Run()
            assert one.die_in(operation)
            torn = None if seed is None else Random(operation)
            one.rig.recover_with(one.rig.disk.crash(torn=torn))
            if one.die_in(again):
                one.rig.recover_with(one.rig.disk.crash(torn=torn))
                run(one.live())


def test_the_workload_covers_what_it_should() -> None:
    """Rolls, snapshots, compaction, deletion and retention all happen in a life."""
    one = Run()
    first = one.rig.disk
    run(one.live())
    log = [*first.log, *one.rig.disk.log]
    renamed = {operation.path for operation in log if operation.kind == "rename"}
    removed = {operation.path for operation in log if operation.kind == "remove"}

    assert "meta/catalog.journal.tmp" in renamed
    assert "logs/orders/0/producers.snapshot.tmp" in renamed
    assert "logs/temp" in renamed
    assert "logs/orders/0/00000000000000000000.log" in removed
    assert one.rig.broker.topic("orders").partition(0).log.start_offset > 0
