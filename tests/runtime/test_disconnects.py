"""A member whose connections ended has a grace to come back; then others have what it had."""

from dataclasses import replace
from typing import Any

import pytest

from goqueue.base.caller import EMBEDDED
from goqueue.base.deeds import Deed
from goqueue.base.errors import StaleReceiptError, UnknownMemberError
from goqueue.base.grant import Grant
from goqueue.core.delivery.runs import set_of
from goqueue.core.groups.member import JoinRequest
from goqueue.runtime import broker as broker_module
from goqueue.runtime.ballast import BALLAST_PATH
from goqueue.runtime.groups.hosted_group import HostedGroup
from goqueue.runtime.queue.leasing import Leased
from goqueue.runtime.queue.polling import PollLimits
from goqueue.runtime.queue.settlements import Settlement
from goqueue.runtime.state_log import STATE_TOPIC
from goqueue.service.gate import Gate
from tests.runtime.rig import run
from tests.runtime.test_consume import Shop, texts

GRACE_MS = 2_000


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)


def grant_of(connection: int, deed: Deed) -> Grant:
    return Gate().admit(replace(EMBEDDED, connection=connection), deed)


class Floor:
    """A shop whose members come through connections."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.groups = shop.rig.broker.groups

    @classmethod
    async def open(cls, *values: str) -> "Floor":
        shop = await Shop().open(partitions=1)
        await shop.publish(*values)
        return cls(shop)

    @property
    def group(self) -> HostedGroup:
        return self.groups.get("g")

    async def join(self, connection: int, client: str = "a", **options: Any) -> str:
        request = JoinRequest(client_id=client, topics=("orders",), options=options)
        _, member = await self.groups.join("g", request, connection=connection)
        return member

    async def poll(self, member: str, connection: int, limit: int = 100) -> list[Leased]:
        demand = PollLimits(limit, 1_000_000, 0)
        grant = grant_of(connection, Deed.POLL)
        return (await self.shop.rig.broker.consume.poll(grant, "g", member, None, demand)).parts

    def advance(self, duration_ms: int) -> None:
        """Let time pass, and the broker look at it."""
        self.shop.rig.clock.advance(duration_ms)
        self.groups.sweep()


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_leases_of_a_dead_member_come_back_at_once_and_count_once(mode: str) -> None:
    """P2, P4, P5: they are ready without a backoff, with one failed attempt, for another member."""

    async def main() -> None:
        floor = await Floor.open("a0", "b1")
        first, second = floor.groups.connect(), floor.groups.connect()
        dead = await floor.join(first, mode=mode)
        (part,) = await floor.poll(dead, first)
        other = await floor.join(second, "b")
        floor.groups.disconnect(first)
        floor.advance(GRACE_MS - 1)
        assert dead in floor.group.members
        assert await floor.poll(other, second) == []
        floor.advance(1)
        assert list(floor.group.members) == [other]
        (again,) = await floor.poll(other, second)
        assert texts(again) == ["a0", "b1"]
        assert again.failures == {0: 1, 1: 1}

        outcome = await floor.shop.settle("ack", part)
        assert {type(one.error) for one in outcome.refused} == {StaleReceiptError}
        # The end of the first lease comes later, and changes nothing.
        floor.shop.later(29_000)
        assert await floor.poll(other, second) == []
        await floor.shop.settle("ack", again)
        assert floor.shop.committed() == 2
        await floor.shop.rig.stop()

    run(main())


def test_a_message_that_kills_its_consumers_is_dead_lettered() -> None:
    """P5: every death counts; one more than the retries, and the message is not tried again."""

    async def main() -> None:
        floor = await Floor.open("poison")
        for failures in range(3):
            connection = floor.groups.connect()
            member = await floor.join(connection, max_retries=2, disconnect_grace="0s")
            (part,) = await floor.poll(member, connection)
            assert part.failures.get(0, 0) == failures
            floor.groups.disconnect(connection)
            floor.advance(0)
            assert not floor.group.members
        (hosted,) = floor.shop.rig.broker.consume.ledgers
        assert set(hosted.ledger.dooms) == {0} or hosted.ledger.committed == 1
        await floor.shop.rig.stop()

    run(main())


def test_who_comes_back_in_time_keeps_everything() -> None:
    """By any request, on another connection: a poll, a settlement, a heartbeat, a join."""

    async def main() -> None:
        floor = await Floor.open("a0", "b1", "c2")
        connection = floor.groups.connect()
        member = await floor.join(connection)
        generation = floor.group.generation
        (part,) = await floor.poll(member, connection)

        async def poll(at: int) -> object:
            return await floor.poll(member, at)

        async def settle(at: int) -> object:
            one = Settlement(
                partition=part.partition, nonce=part.nonce, verb="extend",
                offsets=set_of(part.order), extension_ms=60_000,
            )  # fmt: skip
            grant = grant_of(at, Deed.SETTLE)
            return await floor.shop.rig.broker.consume.settle(grant, "g", member, [one])

        async def beat(at: int) -> object:
            return floor.group.heartbeat(member, generation, connection=at)

        async def join(at: int) -> object:
            request = JoinRequest(client_id="a", topics=("orders",), member_id=member)
            return await floor.groups.join("g", request, connection=at)

        for come_back in (settle, poll, beat, join):
            floor.groups.disconnect(connection)
            floor.advance(GRACE_MS - 1)
            connection = floor.groups.connect()
            await come_back(connection)
            floor.advance(GRACE_MS)
        assert (list(floor.group.members), floor.group.generation) == ([member], generation)
        outcome = await floor.shop.settle("ack", part)
        assert outcome.refused == []
        await floor.shop.rig.stop()

    run(main())


def test_another_connection_stands_for_the_member() -> None:
    """Polls and heartbeats come on two: the end of one means nothing, nor that of an old one."""

    async def main() -> None:
        floor = await Floor.open()
        joined, polls = floor.groups.connect(), floor.groups.connect()
        member = await floor.join(joined)
        await floor.poll(member, polls)
        floor.groups.disconnect(joined)
        floor.advance(GRACE_MS)
        assert member in floor.group.members
        again = floor.groups.connect()
        floor.group.touch(member, again)
        floor.groups.disconnect(polls)
        floor.advance(GRACE_MS)
        assert member in floor.group.members
        # What is finished for a connection that has ended is no sign of life.
        floor.groups.disconnect(again)
        floor.group.touch(member, again)
        floor.group.attach(member, polls)
        floor.advance(GRACE_MS)
        assert not floor.group.members
        with pytest.raises(UnknownMemberError):
            floor.group.touch(member, floor.groups.connect())
        await floor.shop.rig.stop()

    run(main())


def test_who_has_left_has_nothing_to_lose() -> None:
    """The connection ends behind the leave, and nobody else is touched by it."""

    async def main() -> None:
        floor = await Floor.open("a0")
        connection, other = floor.groups.connect(), floor.groups.connect()
        member = await floor.join(connection, mode="shared")
        stays = await floor.join(other, "b")
        await floor.poll(member, connection)
        await floor.groups.leave("g", member)
        floor.groups.disconnect(connection)
        generation = floor.group.generation
        floor.advance(GRACE_MS)
        assert (list(floor.group.members), floor.group.generation) == ([stays], generation)
        (part,) = await floor.poll(stays, other)
        assert part.failures == {}
        await floor.shop.rig.stop()

    run(main())


def test_silence_and_restarts_are_for_the_session() -> None:
    """A connection that stays open says nothing, and after a start nobody has one."""

    async def main() -> None:
        floor = await Floor.open()
        connection = floor.groups.connect()
        member = await floor.join(connection)
        floor.advance(29_000)
        assert member in floor.group.members
        floor.groups.disconnect(connection)
        await floor.shop.restart()
        floor = Floor(floor.shop)
        floor.advance(29_000)
        assert member in floor.group.members
        floor.advance(1_000)
        assert not floor.group.members
        await floor.shop.rig.stop()

    run(main())


def test_a_broker_that_stops_removes_nobody() -> None:
    """It ends the connections itself, before it stops to sweep."""

    async def main() -> None:
        floor = await Floor.open()
        connection = floor.groups.connect()
        member = await floor.join(connection, disconnect_grace="0s")
        floor.shop.rig.broker.end_waits()
        floor.groups.disconnect(connection)
        floor.advance(1_000)
        assert member in floor.group.members
        await floor.shop.restart()
        assert member in floor.shop.rig.broker.groups.get("g").members
        await floor.shop.rig.stop()

    run(main())


def test_state_that_moves_away_takes_the_grace_with_it() -> None:
    """Where a group is loaded again its members have a full session, and connections anew."""

    async def main() -> None:
        floor = await Floor.open()
        connection = floor.groups.connect()
        member = await floor.join(connection)
        floor.groups.disconnect(connection)
        coordinators = floor.shop.rig.broker.coordinators
        await coordinators.unload(STATE_TOPIC, 0)
        floor.advance(GRACE_MS)
        await coordinators.load(STATE_TOPIC, 0)
        floor.advance(29_000)
        assert member in floor.group.members
        again = floor.groups.connect()
        floor.group.touch(member, again)
        floor.groups.disconnect(again)
        floor.advance(GRACE_MS)
        assert not floor.group.members
        await floor.shop.rig.stop()

    run(main())


def test_a_removal_that_cannot_be_written_is_tried_again() -> None:
    """On a full disk the member stays; the sweep removes it when there is room."""

    async def main() -> None:
        floor = await Floor.open()
        connection = floor.groups.connect()
        member = await floor.join(connection)
        floor.shop.rig.disk.remove(BALLAST_PATH)
        floor.shop.rig.disk.fill_up()
        floor.groups.disconnect(connection)
        floor.advance(GRACE_MS)
        assert list(floor.group.members) == [member]
        floor.shop.rig.disk.make_room()
        floor.advance(1_000)
        assert not floor.group.members
        await floor.shop.rig.stop()

    run(main())
