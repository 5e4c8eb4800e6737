"""Members lease, settle and lose messages; time and restarts change nothing that was promised."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pyroaring import BitMap64

from goqueue.base.errors import (
    PartitionNotAssignedError,
    ReceiptExpiredError,
    StaleGenerationError,
    StaleReceiptError,
    UnknownMemberError,
    UnknownReceiptError,
)
from goqueue.base.ids import Offset, PartitionId, TopicName, TopicPartition
from goqueue.core.delivery.runs import numbers_in, set_of
from goqueue.core.delivery.settle import Settled
from goqueue.core.groups.member import JoinRequest
from goqueue.core.record.message import Draft, Message
from goqueue.runtime import broker as broker_module
from goqueue.runtime.queue.leasing import Leased
from goqueue.runtime.queue.polling import PollLimits
from goqueue.runtime.queue.settlements import Settlement
from tests.runtime.grants import POLLING, PUBLISHING, SETTLING
from tests.runtime.rig import Rig, messages_in, run

pytestmark = pytest.mark.usefixtures("both_places")

ORDERS = TopicPartition(TopicName("orders"), PartitionId(0))


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


class Shop:
    """A broker with a topic and members of groups."""

    def __init__(self) -> None:
        self.rig = Rig()

    async def open(self, partitions: int = 1, **settings: object) -> "Shop":
        await self.rig.start()
        self.rig.broker.create_topic("orders", partitions=partitions, settings=settings)
        return self

    async def restart(self) -> None:
        await self.rig.stop()
        await self.rig.start()

    async def crash(self) -> None:
        self.rig.recover_with(self.rig.disk.crash())
        await self.rig.start()

    async def publish(self, *values: str, partition: int | None = 0, **fields: Any) -> None:
        drafts = [
            (
                Draft(
                    value=value.encode(),
                    key=value[0].encode(),
                    timestamp_us=self.rig.clock.now_us(),
                    **fields,
                ),
                partition,
            )
            for value in values
        ]
        for outcome in await self.rig.broker.topic("orders").publish_drafts(PUBLISHING, drafts):
            assert isinstance(outcome, tuple), outcome

    async def join(self, client: str = "a", group: str = "g", **options: object) -> str:
        request = JoinRequest(client_id=client, topics=("orders",), options=options)
        _, member = await self.rig.broker.groups.join(group, request)
        return member

    async def poll(self, member: str, limit: int = 100, group: str = "g") -> list[Leased]:
        demand = PollLimits(limit, 1_000_000, 0)
        return (await self.rig.broker.consume.poll(POLLING, group, member, None, demand)).parts

    async def values(self, member: str, limit: int = 100, group: str = "g") -> list[str]:
        return [text for part in await self.poll(member, limit, group) for text in texts(part)]

    async def settle(
        self, verb: str, part: Leased, offsets: Sequence[int] | None = None, **fields: Any
    ) -> Settled:
        chosen = set_of(part.order) if offsets is None else BitMap64(offsets)
        one = Settlement(
            partition=part.partition, nonce=part.nonce, verb=verb, offsets=chosen, **fields
        )
        (outcome,) = await self.rig.broker.consume.settle(SETTLING, "g", None, [one])
        return outcome

    def later(self, duration_ms: int) -> None:
        self.rig.clock.advance(duration_ms)
        self.rig.broker.consume.ledgers.tick()

    def committed(self, group: str = "g") -> int:
        return self.rig.broker.consume.ledgers.of(group)[ORDERS].ledger.committed


def texts(part: Leased) -> list[str]:
    found: dict[int, Message] = {
        message.offset: message
        for message in messages_in(*part.partition, memoryview(b"".join(part.frames)))
    }
    if part.apart is not None:
        rows = messages_in(*part.partition, memoryview(part.apart.frame()))
        found |= dict(zip(set_of(part.gathered), rows, strict=True))
    return [(found[offset].value or b"").decode() for offset in numbers_in(part.order).tolist()]


def test_acking_everything_is_remembered_over_a_crash() -> None:
    """What was acked never comes again (trap A2); what was not comes with its true count (A4)."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("a0", "b1", "c2")
        member = await shop.join()
        (part,) = await shop.poll(member)
        assert texts(part) == ["a0", "b1", "c2"]
        assert await shop.poll(member) == []
        await shop.settle("ack", part, [0, 2])
        assert shop.committed() == 1
        await shop.crash()
        assert await shop.poll(member) == [], "the lease of b1 lives on"
        assert shop.committed() == 1
        shop.later(30_000)
        assert await shop.poll(member) == [], "it backs off first"
        shop.later(1_000)
        (again,) = await shop.poll(member)

        assert texts(again) == ["b1"]
        assert again.failures == {1: 1}
        await shop.settle("ack", again)
        assert shop.committed() == 3
        await shop.restart()
        assert shop.committed() == 3
        assert await shop.poll(member) == []
        await shop.rig.stop()

    run(main())


def test_groups_do_not_disturb_one_another() -> None:
    """Two groups lease the same message at the same time (trap A3)."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("a0")
        one, other = await shop.join(group="g"), await shop.join(group="h")

        assert await shop.values(one, group="g") == ["a0"]
        assert await shop.values(other, group="h") == ["a0"]
        await shop.rig.stop()

    run(main())


def test_an_old_receipt_settles_nothing() -> None:
    """After expiry and redelivery only the newest lease counts (P4)."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("a0", "b1")
        member = await shop.join()
        (first,) = await shop.poll(member)
        shop.rig.clock.advance(30_000)
        refused = (await shop.settle("ack", first, [0])).refused
        assert isinstance(refused[0].error, ReceiptExpiredError)
        shop.later(1)
        shop.later(1_000)
        (second,) = await shop.poll(member)
        refused = (await shop.settle("ack", first, [0])).refused
        assert isinstance(refused[0].error, StaleReceiptError)
        assert (await shop.settle("ack", second, [0])).refused == []
        refused = (await shop.settle("ack", second, [0])).refused
        assert isinstance(refused[0].error, StaleReceiptError)
        forged = second._replace(nonce=second.nonce ^ 1)
        refused = (await shop.settle("ack", forged, [1])).refused

        assert isinstance(refused[0].error, StaleReceiptError)
        assert shop.committed() == 1
        refused = (await shop.settle("ack", forged, [7])).refused
        assert isinstance(refused[0].error, UnknownReceiptError)
        await shop.rig.stop()

    run(main())


def test_a_message_is_tried_four_times_and_then_doomed() -> None:
    """First delivery and three retries with growing pauses; then it is no longer delivered (P5)."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("a0")
        member = await shop.join()
        for pause_ms in (1_000, 2_000, 4_000):
            (part,) = await shop.poll(member)
            outcome = await shop.settle("nack", part, reason="no")
            assert outcome.retried == [0, 1]
            shop.later(pause_ms - 1)
            assert await shop.poll(member) == []
            shop.later(1)
        (part,) = await shop.poll(member)
        assert part.failures == {0: 3}
        outcome = await shop.settle("nack", part, reason="still no")

        assert outcome.doomed == [0, 1]
        shop.later(600_000)
        assert await shop.poll(member) == []
        await shop.rig.stop()

    run(main())


def test_members_that_leave_give_back_at_once() -> None:
    """A clean leave costs no attempt; a session that expires does."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("a0")
        leaver = await shop.join("a")
        await shop.poll(leaver)
        await shop.rig.broker.groups.leave("g", leaver)
        silent = await shop.join("b")
        (part,) = await shop.poll(silent)
        assert part.failures == {}
        shop.rig.clock.advance(30_001)
        shop.rig.broker.groups.sweep()
        shop.later(1_000)
        heir = await shop.join("c")
        (part,) = await shop.poll(heir)

        assert part.failures == {0: 1}
        with pytest.raises(UnknownMemberError):
            await shop.poll(silent)
        await shop.rig.stop()

    run(main())


def test_the_next_of_a_key_waits_for_the_one_before() -> None:
    """Settled first, leased next: over retries, in shared mode, over a restart (P7)."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("a0", "b1", "a2", "a3", "b4")
        one = await shop.join("a", mode="shared", ordering="key")
        other = await shop.join("b", mode="shared", ordering="key")
        (first,) = await shop.poll(one)
        assert texts(first) == ["a0", "b1"]
        assert await shop.poll(other) == []
        await shop.settle("nack", first, [0])
        await shop.settle("ack", first, [1])
        (second,) = await shop.poll(other)
        assert texts(second) == ["b4"]
        await shop.restart()
        assert await shop.poll(other) == []
        shop.later(1_000)
        (third,) = await shop.poll(one)
        assert texts(third) == ["a0"]
        await shop.settle("ack", third)

        assert await shop.values(one) == ["a2"]
        assert await shop.values(other) == []
        await shop.rig.stop()

    run(main())


def test_lanes_get_their_shares_and_nothing_is_lost() -> None:
    """A critical message jumps the line; the others are all delivered once (traps A1, G5)."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("n0", "n1")
        await shop.publish("c2", priority=0)
        await shop.publish("n3")
        member = await shop.join()

        assert await shop.values(member, limit=2) == ["c2", "n0"]
        assert await shop.values(member, limit=9) == ["n1", "n3"]
        await shop.rig.stop()

    run(main())


def test_shares_under_load() -> None:
    """Ten thousand deliveries divide as 50/25/15/7/3, within two points."""

    async def main() -> None:
        shop = await Shop().open()
        for lane in range(5):
            await shop.publish(*[str(lane)] * 6_000, priority=lane)
        member = await shop.join(max_in_flight=100_000)
        got: list[str] = []
        while len(got) < 10_000:
            got += await shop.values(member, limit=37)
        shares = [100 * got[:10_000].count(str(lane)) / 10_000 for lane in range(5)]

        for share, weight in zip(shares, (50, 25, 15, 7, 3), strict=True):
            assert abs(share - weight) <= 2
        await shop.rig.stop()

    run(main())


def test_a_slow_lane_is_served_after_thirty_seconds() -> None:
    """At one delivery a second, the background lane does not wait for its turn (P8)."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish(*["c"] * 100, priority=0)
        await shop.publish("b", priority=4)
        member = await shop.join(max_in_flight=1_000, visibility_timeout="1h")
        got = []
        for _ in range(35):
            got += await shop.values(member, limit=1)
            shop.later(1_000)

        assert "b" in got[:32]
        await shop.rig.stop()

    run(main())


def test_delayed_messages_are_leased_when_they_are_due() -> None:
    """A message passed over is not lost (trap A10), a cancelled one never comes (A8)."""

    async def main() -> None:
        shop = await Shop().open()
        now_us = shop.rig.clock.now_us()
        await shop.publish("d0", "e1", deliver_at_us=now_us + 60_000_000)
        await shop.publish("n2")
        member = await shop.join()
        assert await shop.values(member) == ["n2"]
        await shop.restart()
        shop.rig.clock.advance(59_000)
        assert await shop.values(member) == []
        await shop.rig.broker.delays.cancel("orders", partition=0, offset=1)
        shop.rig.clock.advance(1_000)
        shop.rig.broker.topic("orders").partition(0).queue.advance()
        (part,) = await shop.poll(member)
        assert texts(part) == ["d0"]
        await shop.settle("ack", part)

        hosted = shop.rig.broker.consume.ledgers.of("g")[ORDERS]
        assert hosted.ledger.is_settled(1)
        await shop.rig.stop()

    run(main())


def test_what_is_not_due_does_not_leave_the_broker_with_its_batch() -> None:
    """Of a batch with a delayed message the leased ones go out, never the batch as it lies."""

    async def main() -> None:
        shop = await Shop().open()
        now_us = shop.rig.clock.now_us()
        drafts = [
            Draft(
                value=b"%d" % row,
                key=b"%d" % row,
                timestamp_us=now_us,
                deliver_at_us=now_us + 60_000_000 if row == 19 else None,
            )
            for row in range(20)
        ]
        await shop.rig.broker.topic("orders").publish_drafts(
            PUBLISHING, [(one, 0) for one in drafts]
        )
        member = await shop.join(ordering="key")

        (part,) = await shop.poll(member)

        assert texts(part) == [str(row) for row in range(19)]
        assert b"19" not in b"".join(map(bytes, part.packed()))
        await shop.rig.stop()

    run(main())


def test_old_messages_expire_by_their_time_to_live() -> None:
    """A topic's ``message_ttl_ms`` keeps what is too old from being delivered."""

    async def main() -> None:
        shop = await Shop().open(message_ttl_ms=10_000)
        await shop.publish("a0", "b1")
        shop.rig.clock.advance(10_001)
        await shop.publish("c2")
        member = await shop.join()

        assert await shop.values(member) == ["c2"]
        assert shop.committed() == 2
        await shop.rig.stop()

    run(main())


def test_offsets_are_committed_by_the_owner_of_this_generation() -> None:
    """A stale generation or a foreign partition changes nothing (trap G3)."""

    async def main() -> None:
        shop = await Shop().open(partitions=2)
        await shop.publish("a0", "b1", "c2")
        consume = shop.rig.broker.consume
        one = await shop.join("a")
        group = shop.rig.broker.groups.get("g")
        with pytest.raises(StaleGenerationError):
            await consume.commit_offsets("g", one, group.generation - 1, {ORDERS: Offset(2)})
        await consume.commit_offsets("g", one, group.generation, {ORDERS: Offset(2)})
        assert await shop.values(one) == ["c2"]
        other = await shop.join("b")
        foreign = next(m for m in (one, other) if not group.owns(m, ORDERS))
        with pytest.raises(PartitionNotAssignedError):
            await consume.commit_offsets("g", foreign, group.generation, {ORDERS: Offset(3)})

        assert shop.committed() == 2
        await consume.reset_offsets("g", consume.resolve("orders", to="earliest"))
        assert shop.committed() == 0
        await shop.rig.stop()

    run(main())


def test_a_poll_waits_for_what_is_published() -> None:
    """A long poll is woken by a publish, by a due retry and by an ack that frees a place."""

    async def main() -> None:
        shop = await Shop().open()
        member = await shop.join(max_in_flight=1)
        consume = shop.rig.broker.consume
        waiting = asyncio.create_task(
            consume.poll(POLLING, "g", member, None, PollLimits(10, 1_000, 30_000))
        )
        await asyncio.sleep(0.01)
        await shop.publish("a0", "b1")
        (part,) = (await waiting).parts
        assert texts(part) == ["a0"]
        waiting = asyncio.create_task(
            consume.poll(POLLING, "g", member, None, PollLimits(10, 1_000, 30_000))
        )
        await asyncio.sleep(0.01)
        await shop.settle("ack", part)

        (part,) = (await waiting).parts
        assert texts(part) == ["b1"]
        await shop.rig.stop()

    run(main())


def test_auto_commit_settles_what_earlier_polls_handed_out() -> None:
    """Every interval, and when a member leaves; what the last poll gave is not settled before."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("a0", "b1", "c2")
        member = await shop.join(auto_commit=True, auto_commit_interval="5s")
        assert await shop.values(member, limit=1) == ["a0"]
        shop.later(4_999)
        assert await shop.values(member, limit=1) == ["b1"]
        assert shop.committed() == 0
        shop.later(1)
        assert await shop.values(member, limit=1) == ["c2"]
        assert shop.committed() == 2
        await shop.rig.broker.groups.leave("g", member)

        assert shop.committed() == 3
        await shop.rig.stop()

    run(main())
