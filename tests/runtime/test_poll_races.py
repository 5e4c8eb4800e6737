"""Reading takes time: what changes while a poll reads is seen before it leases anything."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from goqueue.base.errors import StorageFailedError
from goqueue.base.ids import Offset, TopicName
from goqueue.core.delivery.runs import set_of
from goqueue.core.groups.member import JoinRequest
from goqueue.core.tx.producer import COMMIT
from goqueue.runtime import broker as broker_module
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.queue.leasing import Leased
from goqueue.runtime.queue.settlements import Settlement
from goqueue.runtime.state_log import STATE_TOPIC
from goqueue.storage.log_reader import Piece
from tests.runtime.grants import SETTLING
from tests.runtime.rig import run
from tests.runtime.test_consume import ORDERS, Shop, texts
from tests.runtime.test_transactions import Bank

pytestmark = pytest.mark.usefixtures("both_places")


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)
    monkeypatch.setattr(broker_module, "TX_STATE_PARTITIONS", 1)


def hold_back(partition: Partition) -> tuple[asyncio.Event, Callable[[], None]]:
    """Let reads of a partition stand still, as those of a cold page do, until they are let go."""
    reached, opened, read = asyncio.Event(), asyncio.Event(), partition.read

    async def slow(offset: Offset, **options: Any) -> Piece:
        piece = await read(offset, **options)
        reached.set()
        await opened.wait()
        return piece

    def let_go() -> None:
        partition.read = read  # type: ignore[method-assign]
        opened.set()

    partition.read = slow  # type: ignore[method-assign]
    return reached, let_go


async def poll_while(
    shop: Shop, member: str, meanwhile: Callable[[], Awaitable[object]]
) -> list[Leased]:
    """Poll, and do something while the poll reads."""
    broker = shop.rig.broker
    partition = broker.topic("orders").partition(0)
    # What an earlier poll has read ahead would not be read again.
    broker.consume._polling._leasing.forget([partition])  # noqa: SLF001 - as if it were long ago
    reached, let_go = hold_back(partition)
    polling = asyncio.create_task(shop.poll(member))
    await reached.wait()
    await meanwhile()
    let_go()
    return await polling


async def values_later(shop: Shop, member: str, *, limit: int = 100) -> list[str]:
    """Return what a patient member gets."""
    return [text for _ in range(6) for text in await shop.values(member, limit)]


async def delayed_in_the_middle(shop: Shop) -> str:
    now_us = shop.rig.clock.now_us()
    await shop.publish("a1")
    await shop.publish("b2", deliver_at_us=now_us + 5_000_000)
    await shop.publish("c3")
    return await shop.join()


def test_what_becomes_due_meanwhile_is_delivered() -> None:
    """A message passed over as delayed and due a moment later is not forgotten."""

    async def main() -> None:
        shop = await Shop().open()
        member = await delayed_in_the_middle(shop)

        async def due() -> None:
            shop.rig.clock.advance(6_000)
            shop.rig.broker.topic("orders").partition(0).queue.advance()

        for part in await poll_while(shop, member, due):
            await shop.settle("ack", part)

        assert await values_later(shop, member) == ["b2"]
        await shop.rig.stop()

    run(main())


def test_a_reset_meanwhile_begins_anew() -> None:
    """Cursors of before the reset do not hide what lies before them."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish(*[f"a{number}" for number in range(10)])
        member = await shop.join()
        for part in await shop.poll(member):
            await shop.settle("ack", part)
        await shop.publish("b0")
        consume = shop.rig.broker.consume
        parts = await poll_while(
            shop, member, lambda: consume.reset_offsets("g", {ORDERS: Offset(0)})
        )
        got = [text for part in parts for text in texts(part)] + await values_later(shop, member)

        assert sorted(got) == [*(f"a{number}" for number in range(10)), "b0"]
        await shop.rig.stop()

    run(main())


def test_a_commit_meanwhile_leaves_nothing_in_the_way() -> None:
    """What was settled while it was passed over is not picked for ever."""

    async def main() -> None:
        shop = await Shop().open()
        member = await delayed_in_the_middle(shop)
        consume = shop.rig.broker.consume
        await poll_while(
            shop, member, lambda: consume.commit_offsets("g", member, None, {ORDERS: Offset(3)})
        )
        shop.rig.clock.advance(6_000)
        shop.rig.broker.topic("orders").partition(0).queue.advance()
        await shop.publish("d4", "d5")

        assert await values_later(shop, member, limit=1) == ["d4", "d5"]
        await shop.rig.stop()

    run(main())


def test_a_member_that_left_meanwhile_gets_nothing() -> None:
    """The next member need not wait for a lease of somebody who is gone."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("a1")
        leaver = await shop.join()
        assert (
            await poll_while(shop, leaver, lambda: shop.rig.broker.groups.leave("g", leaver)) == []
        )

        assert await shop.values(await shop.join("b")) == ["a1"]
        await shop.rig.stop()

    run(main())


def test_a_group_deleted_meanwhile_stays_deleted() -> None:
    """Neither a poll nor the end of a lease brings its ledger back, also not after a restart."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("a1", "a2")
        member = await shop.join()
        await shop.poll(member, limit=1)
        groups = shop.rig.broker.groups
        parts = await poll_while(shop, member, lambda: groups.delete("g", is_forced=True))
        assert parts == []
        shop.later(40_000)
        await shop.restart()

        assert list(shop.rig.broker.consume.ledgers) == []
        heir = await shop.join("b", auto_offset_reset="latest")
        shop.later(60_000)
        assert await values_later(shop, heir) == []
        await shop.rig.stop()

    run(main())


def test_polls_at_once_hold_no_more_than_they_may() -> None:
    """The limit of messages in flight is one for all polls of a member."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish(*["a"] * 100)
        member = await shop.join(max_in_flight=10)
        polled = await asyncio.gather(*(shop.poll(member) for _ in range(5)))

        assert sum(part.rows for parts in polled for part in parts) == 10
        await shop.rig.stop()

    run(main())


def test_a_disk_that_takes_nothing_is_not_asked_all_the_time() -> None:
    """Leases that cannot be ended are tried again after growing pauses."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("a1")
        await shop.poll(await shop.join())
        state = shop.rig.broker.topics[TopicName(STATE_TOPIC)].partitions[0]
        if shop.rig.is_beside:
            state = shop.rig.broker.topic("orders").make_state(0)
        state.log.failure = StorageFailedError("EIO")
        hosted = shop.rig.broker.consume.ledgers.of("g")[ORDERS]
        shop.later(30_000)
        pauses = []
        for _ in range(4):
            pauses.append(hosted.quiet_ms)
            shop.later(hosted.quiet_ms)

        assert pauses == [1_000, 2_000, 4_000, 8_000]

    run(main())


def test_keys_in_order_step_over_marks() -> None:
    """What is no message is settled, so that the committed offset goes on."""

    async def main() -> None:
        bank = await Bank().open()
        who = await bank.begin(await bank.init())
        await bank.publish(who, 0, "x", "y")
        await bank.tx.end(who, COMMIT)
        await bank.plain(0, "z")
        shop = Shop()
        shop.rig = bank.rig
        request = JoinRequest(client_id="a", topics=("accounts",), options={"ordering": "key"})
        _, member = await bank.rig.broker.groups.join("g", request)
        for _ in range(4):
            for part in await shop.poll(member):
                one = Settlement(
                    partition=part.partition,
                    nonce=part.nonce,
                    verb="ack",
                    offsets=set_of(part.order),
                )
                await bank.rig.broker.consume.settle(SETTLING, "g", None, [one])
        first = (await bank.rig.broker.consume.progress("g"))[0]

        assert (first.committed_offset, first.lag) == (4, 0)
        await bank.rig.stop()

    run(main())


def test_a_commit_is_carried_out_though_its_client_is_gone() -> None:
    """What was decided is told to everybody, whoever asked for it (P9)."""

    async def main() -> None:
        bank = await Bank().open()
        who = await bank.begin(await bank.init())
        await bank.publish(who, 0, "x")
        ending = asyncio.create_task(bank.tx.end(who, COMMIT))
        await asyncio.sleep(0)
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        while await bank.read(0) != ["x"]:
            bank.tx.sweep()
            await asyncio.sleep(0)
        await bank.rig.stop()

    run(main())


def test_an_init_whose_client_is_gone_does_not_block_the_next() -> None:
    """A life nobody was told of is over with the next one."""

    async def main() -> None:
        bank = await Bank().open()
        who = await bank.begin(await bank.init())
        await bank.publish(who, 0, "x")
        beginning = asyncio.create_task(bank.tx.init("t"))
        await asyncio.sleep(0)
        beginning.cancel()
        await asyncio.gather(beginning, return_exceptions=True)
        heir = await bank.begin(await bank.init())
        await bank.publish(heir, 0, "y")
        await bank.tx.end(heir, COMMIT)

        assert await bank.read(0) == ["y"]
        await bank.rig.stop()

    run(main())
