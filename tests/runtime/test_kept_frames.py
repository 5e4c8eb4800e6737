"""Frames that a client keeps: sent once, named afterwards, and never more than was to be seen."""

import pytest

from goqueue.base.ids import Offset, PartitionId, TopicName, TopicPartition
from goqueue.base.limits import SHELF_BYTES_MAX
from goqueue.core.delivery.runs import count_of, numbers_in
from goqueue.core.record.message import Draft
from goqueue.runtime import broker as broker_module
from goqueue.runtime.kept_frames import KEPT_SHARE, KeptFrame, KeptFrames, Spot
from goqueue.runtime.leasing import Leased
from goqueue.runtime.polling import Demand, Polled
from goqueue.storage.segment import Segment
from goqueue.testing.disk import MemoryDisk
from tests.runtime.rig import messages_in, run
from tests.runtime.test_consume import Shop

ORDERS = TopicPartition(TopicName("orders"), PartitionId(0))
ROWS = 120
KEYS = 12


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


class Till(Shop):
    """A shop whose members keep frames."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = KeptFrames()
        self.frames: dict[int, bytes] = {}

    async def fill(self, keys: int = KEYS) -> None:
        await self.publish(*(f"{chr(65 + row % keys)}{row}" for row in range(ROWS)))

    async def take(self, member: str, limit: int = 100) -> list[Leased]:
        demand = Demand(limit, 1_000_000, 0, kept=self.kept)
        return (await self.rig.broker.consume.poll("g", member, None, demand)).parts

    def texts(self, part: Leased) -> tuple[list[str], int]:
        """Send a part; return its messages, and how many frames had to go out."""
        numbers, fresh = self.kept.send(part.kept)
        for number, frame in zip(numbers[len(numbers) - len(fresh) :], fresh, strict=True):
            self.frames[number] = bytes(frame)
        sent = b"".join(self.frames[number] for number in numbers)
        found = {one.offset: one for one in messages_in(*ORDERS, memoryview(sent))}
        values = [(found[offset].value or b"").decode() for offset in numbers_in(part.order)]
        return values, len(fresh)


def test_a_frame_is_sent_once() -> None:
    """Poll after poll names rows of it, until nothing of it is left."""

    async def scenario() -> None:
        till = Till()
        await till.open()
        await till.fill()
        member = await till.join(ordering="key")
        seen: list[str] = []
        sent = []
        for _ in range(ROWS // KEYS):
            (part,) = await till.take(member)
            assert not part.frames
            assert part.apart is None
            values, fresh = till.texts(part)
            seen += values
            sent.append(fresh)
            await till.settle("ack", part)

        assert seen == [f"{chr(65 + row % KEYS)}{row}" for row in range(ROWS)]
        assert sent == [1] + [0] * (ROWS // KEYS - 1)
        assert till.committed() == ROWS
        assert await till.take(member) == []

    run(scenario())


def test_what_was_sent_takes_no_room() -> None:
    """A frame that is only named counts nothing of what a reply may hold."""

    async def scenario() -> None:
        till = Till()
        await till.open()
        await till.fill()
        member = await till.join(ordering="key")
        (first,) = await till.take(member)
        assert first.size == sum(len(one.frame) for one in first.kept) > 0
        till.texts(first)
        await till.settle("ack", first)

        (second,) = await till.take(member)

        assert second.size == 0
        assert 0 < second.message_bytes == first.message_bytes < first.size

    run(scenario())


def test_who_was_never_answered_is_sent_it_again() -> None:
    """What was read for a reply that did not go out is not taken for sent."""

    async def scenario() -> None:
        till = Till()
        await till.open()
        await till.fill()
        member = await till.join(ordering="key")
        (lost,) = await till.take(member)
        till.rig.broker.consume.give_back("g", Polled(1, 30_000, [lost]))

        (part,) = await till.take(member)

        assert till.texts(part) == ([f"{chr(65 + row)}{row}" for row in range(KEYS)], 1)

    run(scenario())


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"ordering": "none"}, KEYS),
        ({"ordering": "key", "mode": "shared"}, KEYS),
        # So few that the frame would be sent for next to nothing.
        ({"ordering": "key"}, ROWS // KEPT_SHARE // 2),
        # All of it at once: nobody will want it again.
        ({"ordering": "key"}, ROWS),
    ],
)
def test_what_is_not_worth_keeping(options: dict[str, str], keys: int) -> None:
    """Other groups, and frames of which little or everything is leased, go as they always went."""

    async def scenario() -> None:
        till = Till()
        await till.open()
        await till.fill(keys)
        member = await till.join(**options)

        (part,) = await till.take(member, ROWS)

        assert not part.kept
        assert part.packed()
        assert count_of(part.order) == (keys if options["ordering"] == "key" else ROWS)

    run(scenario())


def test_what_is_not_due_does_not_leave_the_broker() -> None:
    """A frame that holds a delayed message is never sent whole."""

    async def scenario() -> None:
        till = Till()
        await till.open()
        now_us = till.rig.clock.now_us()
        drafts = [
            Draft(
                value=b"%d" % row,
                key=b"%d" % (row % KEYS),
                timestamp_us=now_us,
                deliver_at_us=now_us + 60_000_000 if row == ROWS - 1 else None,
            )
            for row in range(ROWS)
        ]
        await till.rig.broker.topic("orders").publish_drafts([(one, 0) for one in drafts])
        member = await till.join(ordering="key")

        (part,) = await till.take(member)

        assert not part.kept
        assert b"%d" % (ROWS - 1) not in b"".join(map(bytes, part.packed()))

    run(scenario())


def _segment() -> Segment:
    return Segment(MemoryDisk(), "topics/orders/0", Offset(0))


def test_frames_get_numbers_as_they_go_out() -> None:
    """One that left the shelf is sent again, under another number."""
    kept = KeptFrames()
    room, segment = SHELF_BYTES_MAX // 2, _segment()
    one, two, three = (
        KeptFrame(Spot(segment, place), b"%d" % place, room, is_new=True) for place in range(3)
    )

    assert kept.send([one, two]) == ([0, 1], [b"0", b"1"])
    assert kept.send([two, one]) == ([1, 0], [])
    assert kept.send([one, three]) == ([0, 2], [b"2"])
    assert one.spot not in kept
    assert kept.send([one]) == ([3], [b"0"])


def test_a_frame_of_another_segment_is_another_frame() -> None:
    """A compacted segment has the same offsets and other frames."""
    kept = KeptFrames()
    kept.send([KeptFrame(Spot(_segment(), 7), b"before", 6, is_new=True)])

    assert kept.send([KeptFrame(Spot(_segment(), 7), b"after", 5, is_new=True)]) == (
        [1],
        [b"after"],
    )
