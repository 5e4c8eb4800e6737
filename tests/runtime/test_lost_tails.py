"""A log that came back shorter than it was: new messages are never taken for old ones."""

from typing import Any

import pytest
from pyroaring import BitMap64

from goqueue.base.errors import OffsetOutOfRangeError
from goqueue.base.ids import Offset
from goqueue.core.dlq.redrive import Kind
from goqueue.runtime import broker as broker_module
from goqueue.runtime.machine import AtPlace
from goqueue.storage.log_notes import Gap
from goqueue.testing.disk import MemoryDisk
from tests.runtime.dlq_rig import numbered, publish
from tests.runtime.rig import read_all, run
from tests.runtime.test_consume import ORDERS, Shop, texts
from tests.runtime.test_redrive import begin, bury, finish, order

pytestmark = pytest.mark.usefixtures("both_places")

LOG = f"logs/orders/0/{0:020d}.log"
MESSAGES = [f"m{number}" for number in range(100)]
NEW = [f"new{number}" for number in range(20)]
LOUD = "messages at the end of a log are lost"


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


async def consume_all(shop: Shop, member: str) -> list[str]:
    found: list[str] = []
    while parts := await shop.poll(member):
        for part in parts:
            found += texts(part)
            await shop.settle("ack", part)
    return found


def size_of(disk: MemoryDisk, path: str) -> int:
    file = disk.open(path)
    size = file.size()
    file.close()
    return size


@pytest.mark.parametrize("options", [{}, {"ordering": "key"}, {"mode": "shared"}])
def test_groups_get_what_comes_after_a_power_cut(
    options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk has the state of the group and lost all messages; it goes on with what is new."""

    async def main() -> None:
        shop = await Shop().open(durability="os")
        await shop.publish(*MESSAGES)
        member = await shop.join(**options)
        await consume_all(shop, member)
        assert shop.committed() == 100
        await shop.rig.broker.consume.durable("g", [AtPlace(ORDERS)])
        await shop.crash()
        await shop.publish(*NEW)

        assert await consume_all(shop, member) == NEW
        assert shop.rig.broker.topic("orders").partition(0).log.end_offset == 120
        printed = capsys.readouterr()
        assert LOUD in printed.out + printed.err

    run(main())


def test_what_was_leased_or_not_yet_looked_at_is_reported_and_let_go() -> None:
    """Nothing of the lost messages stays in flight for ever, and readers are told of them."""

    async def main() -> None:
        shop = await Shop().open(durability="os")
        await shop.publish(*MESSAGES)
        member = await shop.join()
        await shop.poll(member, 40)
        await shop.rig.broker.consume.durable("g", [AtPlace(ORDERS)])
        await shop.crash()
        await shop.publish(*NEW)
        shop.later(60_000)

        assert await shop.values(member) == NEW
        topic = shop.rig.broker.topic("orders")
        found, gaps = await read_all(topic, 0)
        assert [one.offset for one in found] == list(range(100, 120))
        assert gaps == [Gap(Offset(0), Offset(100))]

    run(main())


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("back", [1, 12, 60])
def test_a_flip_in_the_last_frame_costs_its_messages_and_no_others(
    back: int, *, is_clean: bool
) -> None:
    """Its offsets are not given again, so readers and checkpoints elsewhere stay right."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish(*MESSAGES[:10])
        await shop.publish(*MESSAGES[10:20])
        member = await shop.join()
        assert len(await shop.values(member)) == 20
        if is_clean:
            await shop.rig.stop()
            shop.rig.recover_with(shop.rig.disk.reopen())
        else:
            shop.rig.recover_with(shop.rig.disk.kill())
        shop.rig.disk.flip_bits(LOG, [size_of(shop.rig.disk, LOG) - back])
        await shop.rig.start()
        topic = shop.rig.broker.topic("orders")
        await shop.publish(*NEW)
        found, gaps = await read_all(topic, 0)

        assert [one.offset for one in found] == [*range(10), *range(20, 40)]
        assert gaps == [Gap(Offset(10), Offset(20))]
        assert [one.value for one in (await read_all(topic, 0, offset=20))[0]] == [
            value.encode() for value in NEW
        ]

    run(main())


def test_a_flip_in_a_size_of_the_last_frame_is_no_torn_write() -> None:
    """The frame would be good but for that bit, so it was written and its offset is known."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("first")
        size = size_of(shop.rig.disk, LOG)
        await shop.publish("second")
        shop.rig.recover_with(shop.rig.disk.kill())
        shop.rig.disk.flip_bits(LOG, [size + 30], mask=0x01)
        whole = size_of(shop.rig.disk, LOG)
        await shop.rig.start()
        log = shop.rig.broker.topic("orders").partition(0).log

        assert log.end_offset > 1
        assert log.recovery.gaps[0].start_offset == 1
        assert size_of(shop.rig.disk, LOG) == whole

    run(main())


def test_a_log_that_lost_its_file_goes_on_behind_its_snapshots() -> None:
    """After a clean stop the snapshots beside the log know how far it went, groups or not."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish(*MESSAGES)
        await shop.rig.stop()
        for name in shop.rig.disk.list_directory("logs/orders/0"):
            if not name.endswith(".snapshot"):
                shop.rig.disk.open(f"logs/orders/0/{name}").truncate(0)
        await shop.rig.start()
        topic = shop.rig.broker.topic("orders")
        await shop.publish(*NEW)

        found, gaps = await read_all(topic, 0)
        assert [one.offset for one in found] == list(range(100, 120))
        assert gaps == [Gap(Offset(0), Offset(100))]
        with pytest.raises(OffsetOutOfRangeError):
            topic.partition(0).check_offset(Offset(121))
        await shop.restart()
        assert (await read_all(shop.rig.broker.topic("orders"), 0))[0] == found

    run(main())


def test_a_flip_in_the_offset_of_a_snapshot_moves_nothing() -> None:
    """All of the offset is covered by the snapshot's checksum."""

    async def main(bit: int, name: str) -> None:
        shop = await Shop().open()
        await shop.publish(*MESSAGES)
        await shop.rig.stop()
        shop.rig.disk.flip_bits(f"logs/orders/0/{name}", [4 + bit // 8], mask=1 << bit % 8)
        await shop.rig.start()
        assert shop.rig.broker.topic("orders").partition(0).log.end_offset == 100

    for bit in range(64):
        run(main(bit, "producers.snapshot"))
        run(main(bit, "queue.snapshot"))


def test_a_cancelled_message_that_was_lost_cancels_no_other() -> None:
    """A cancellation is of one message, not of whichever comes to its place."""

    async def main() -> None:
        shop = await Shop().open(durability="os")
        due_us = shop.rig.clock.now_us() + 60_000_000
        await shop.publish("first", deliver_at_us=due_us)
        await shop.rig.broker.delays.cancel("orders", 0, 0)
        shop.rig.recover_with(shop.rig.disk.kill())
        shop.rig.disk.open(LOG).truncate(0)
        await shop.rig.start()
        await shop.publish("second", deliver_at_us=due_us)
        shop.rig.clock.advance(61_000)
        shop.rig.broker.topic("orders").partition(0).queue.advance()

        assert await shop.values(await shop.join(auto_offset_reset="earliest")) == ["second"]

    run(main())


def test_dead_letters_that_were_lost_hide_no_others() -> None:
    """What was purged is purged; letters that come later are there."""

    async def main() -> None:
        rig, redrives = await begin(count=3, partitions=1)
        await finish(redrives, order(Kind.PURGE))
        rig.recover_with(rig.disk.kill())
        rig.disk.open(f"logs/orders.dlq/0/{0:020d}.log").truncate(0)
        await rig.start()
        await publish(rig, numbered(2, start=3))
        await bury(rig, [3, 4])
        (shelf,) = rig.broker.redrives.shelves.of(rig.broker.topic("orders.dlq"))

        assert shelf.left() == BitMap64([3, 4])

    run(main())
