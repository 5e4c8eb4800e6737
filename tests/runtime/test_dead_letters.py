"""Doomed messages become dead letters: once, whole, and whatever happens on the way."""

import asyncio
import itertools
import logging
from collections.abc import Iterator
from random import Random

import pytest

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.base.limits import DLQ_RETENTION_MS, HEADERS_BYTES_MAX, VALUE_BYTES_MAX
from goqueue.core.delivery.events import DEAD, GONE
from goqueue.core.delivery.ledger import OUTCOME_INDEX
from goqueue.core.dlq.names import dlq_of
from goqueue.core.dlq.record import STORY, read_story
from goqueue.core.record.message import Draft
from goqueue.core.tracing.traceparent import parse_traceparent
from goqueue.runtime import broker as broker_module
from goqueue.testing.disk import CrashError
from tests.runtime.dlq_rig import (
    Host,
    Pauses,
    dead_letters,
    messages,
    numbered,
    publish,
)
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, run
from tests.runtime.test_consume import Shop

pytestmark = pytest.mark.usefixtures("both_places")

DLQ = "orders.dlq"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("asyncio").setLevel(logging.NOTSET)


async def begin(*, count: int = 10) -> tuple[Rig, Host]:
    rig = Rig()
    await rig.start()
    rig.broker.create_topic("orders", partitions=3)
    await publish(rig, numbered(count))
    return rig, Host(rig)


def test_a_dead_letter_is_the_message_with_its_story() -> None:
    """Key, value, headers and priority stay; the story tells where, when, by whom and why."""

    async def main() -> None:
        rig, host = await begin()
        rig.clock.advance(5_000)
        await host.doom([3, 4], reason="MAX_RETRIES_EXCEEDED")
        letters = dead_letters(rig)
        letters.take(host)
        await letters.idle()
        found = await messages(rig, DLQ)
        topic = rig.broker.topic(DLQ)

        assert len(topic.partitions) == 3
        assert topic.settings.retention_ms == DLQ_RETENTION_MS
        assert [message.value for message in found] == [b"value-3", b"value-4"]
        assert [message.key for message in found] == [None, b"key-4"]
        assert [message.priority for message in found] == [3, 4]
        assert [message.partition for message in found] == [0, 0]
        assert set(found[0].headers or {}) == {"traceparent", STORY}
        assert set(found[1].headers or {}) == {STORY}
        story = read_story(found[0].headers)
        assert (story.original_topic, story.original_partition, story.original_offset) == (
            "orders",
            0,
            3,
        )
        assert story.original_timestamp_us == 1_600_000_000_000_003
        assert story.reason == "MAX_RETRIES_EXCEEDED"
        assert story.last_error == "it exploded"
        assert (story.last_group, story.last_consumer) == ("billing", "worker-1")
        assert story.delivery_attempts == 1
        # Its own header is malformed, so the trace is the one the broker made.
        assert parse_traceparent(story.trace.encode()) is not None
        assert [attempt.error for attempt in story.receipt_log] == ["it exploded"]
        assert story.dlq_time_ms == rig.clock.now_ms()
        assert host.ledger.dooms == {}
        assert host.ledger.is_settled(3)
        assert host.ledger.outcomes[OUTCOME_INDEX[DEAD]] == 2
        stats = letters.meter.stats
        assert stats.total_routed == 2
        assert stats.routes_by_topic == {"orders": 2}
        assert stats.routes_by_reason == {"MAX_RETRIES_EXCEEDED": 2}
        await rig.stop()

    run(main())


def test_a_poison_message_is_tried_four_times_and_then_a_dead_letter() -> None:
    """A4, A5: the true count decides; what is rejected or dead is never delivered again."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("a0", "b1", "c2")
        member = await shop.join()
        letters = shop.rig.broker.dead_letters
        (part,) = await shop.poll(member)
        await shop.settle("ack", part, [1])
        await shop.settle("reject", part, [2], reason="malformed")
        for attempt in range(1, 5):
            (part,) = await shop.poll(member) if attempt > 1 else (part,)
            await shop.settle("nack", part, [0], reason=f"no {attempt}")
            shop.later(60_000)
        await letters.idle()
        found = await messages(shop.rig, DLQ)
        stories = [read_story(message.headers) for message in found]
        await shop.restart()
        member = await shop.join()

        assert await shop.poll(member) == []
        assert shop.committed() == 3
        assert [message.value for message in found] == [b"c2", b"a0"]
        assert [story.reason for story in stories] == ["REJECTED", "MAX_RETRIES_EXCEEDED"]
        assert [story.delivery_attempts for story in stories] == [1, 4]
        errors = [attempt.error for attempt in stories[1].receipt_log]
        assert errors == ["no 1", "no 2", "no 3", "no 4"]
        assert shop.rig.broker.dead_letters.meter.stats.total_routed == 0
        assert letters.meter.stats.routes_by_reason == {"REJECTED": 1, "MAX_RETRIES_EXCEEDED": 1}
        await shop.rig.stop()

    run(main())


def test_the_largest_message_there_is_becomes_a_dead_letter() -> None:
    """16 MiB of value, 64 KiB of headers and a key: all of it is kept, the story is cut."""

    async def main() -> None:
        rig, host = await begin(count=0)
        largest = Draft(
            value=b"v" * VALUE_BYTES_MAX,
            key=b"",
            headers={f"h{number:03d}": b"x" * 57 for number in range(999)},
        )
        await publish(rig, [largest, Draft(value=None, key=b"gone")])
        await host.doom([0, 1])
        letters = dead_letters(rig)
        letters.take(host)
        await letters.idle()
        found = await messages(rig, DLQ)

        assert [message.value for message in found] == [largest.value, None]
        assert [message.key for message in found] == [b"", b"gone"]
        kept = dict(found[0].headers or {})
        assert read_story({STORY: kept.pop(STORY)}).original_offset == 0
        assert kept == largest.headers
        assert sum(len(k) + len(v) + 4 for k, v in kept.items()) > HEADERS_BYTES_MAX - 1_000
        await rig.stop()

    run(main())


def test_many_are_moved_in_batches() -> None:
    """Ten thousand dead letters take tens of syncs, not tens of thousands."""

    async def main() -> None:
        rig, host = await begin(count=0)
        drafts = [Draft(value=b"%d" % number) for number in range(5_000)]
        await publish(rig, drafts)
        for _ in range(5):
            await host.lease_all()
        await host.doom(range(5_000))
        before = rig.disk.operations
        letters = dead_letters(rig)
        letters.take(host)
        await letters.idle()
        found = await messages(rig, DLQ)

        assert [message.value for message in found] == [draft.value for draft in drafts]
        assert rig.disk.operations - before < 300
        assert host.ledger.committed == 5_000
        await rig.stop()

    run(main())


def test_dead_letters_of_dead_letters_wait() -> None:
    """A message of a ``.dlq`` topic has nowhere to go: it comes again after the longest pause."""

    async def main() -> None:
        rig, _ = await begin(count=0)
        rig.broker.create_topic(DLQ, partitions=1)
        await publish(rig, numbered(2), topic=DLQ)
        host = Host(rig, name=TopicPartition(TopicName(DLQ), PartitionId(0)))
        await host.doom([0])
        letters = dead_letters(rig)
        letters.take(host)
        await letters.idle()

        assert host.ledger.dooms == {}
        assert list(host.ledger.waiting) == [(0, rig.clock.monotonic_ms() + 60_000, 60_000)]
        assert "orders.dlq.dlq" not in rig.broker.topics
        await rig.stop()

    run(main())


def test_names_of_any_length_have_dead_letters() -> None:
    """The longest names are cut and still told apart."""
    names = ["a" * 249, "a" * 248 + "b", "a" * 246, "a" * 245]
    assert len({dlq_of(name) for name in names}) == len(names)
    assert all(len(dlq_of(name)) <= 249 for name in names)
    assert dlq_of("a" * 245) == "a" * 245 + ".dlq"


def test_a_full_disk_keeps_them_doomed_until_there_is_room() -> None:
    """The message stays, is tried again with growing pauses, and arrives once."""

    async def main() -> None:
        rig, host = await begin()
        await host.doom([1, 2])
        rig.disk.fill_up(0, path_glob="logs/orders.dlq/*")
        sleep = Pauses(rig)
        letters = dead_letters(rig, sleep)
        letters.take(host)
        await sleep.reach(9)
        assert sleep.durations_ms[:9] == [
            1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000,
        ]  # fmt: skip
        assert sorted(host.ledger.dooms) == [1, 2]
        assert letters.meter.stats.publish_errors + letters.meter.stats.create_errors >= 9
        rig.disk.make_room()
        await letters.idle()

        assert [message.value for message in await messages(rig, DLQ)] == [b"value-1", b"value-2"]
        assert host.ledger.dooms == {}
        await rig.stop()

    run(main())


def test_one_failing_topic_holds_up_nobody_else() -> None:
    """While the dead letters of one topic cannot be written, those of another are."""

    async def main() -> None:
        rig, host = await begin()
        rig.broker.create_topic("other", partitions=1)
        await publish(rig, numbered(3), topic="other")
        other = Host(rig, name=TopicPartition(TopicName("other"), PartitionId(0)))
        rig.broker.create_topic(DLQ, partitions=1)
        rig.disk.fill_up(0, path_glob="logs/orders.dlq/*")
        sleep = Pauses(rig)
        sleep.gate = asyncio.Event()
        letters = dead_letters(rig, sleep)
        await host.doom([1])
        await other.doom([2])
        letters.take(host)
        letters.take(other)
        await sleep.reach(1)
        await letters.wait_for(other)

        assert [message.value for message in await messages(rig, "other.dlq")] == [b"value-2"]
        assert sorted(host.ledger.dooms) == [1]
        await letters.stop()
        await rig.stop()

    run(main())


def test_a_failed_partition_keeps_them_doomed_and_the_next_start_moves_them_once() -> None:
    """Nobody can tell whether a failed sync kept the bytes: only the next start looks."""

    async def main() -> None:
        rig, host = await begin()
        rig.broker.create_topic(DLQ, partitions=1)
        rig.disk.fail_sync("logs/orders.dlq/0/*.log", drops_pages=False)
        await host.doom([1, 2])
        sleep = Pauses(rig)
        letters = dead_letters(rig, sleep)
        letters.take(host)
        await sleep.reach(4)
        assert sorted(host.ledger.dooms) == [1, 2]
        await letters.stop()
        await rig.stop()
        rig.recover_with(rig.disk.kill())
        await rig.start()
        host = Host(rig)
        letters = dead_letters(rig)
        letters.take(host)
        await letters.idle()

        assert [message.value for message in await messages(rig, DLQ)] == [b"value-1", b"value-2"]
        assert host.ledger.dooms == {}
        await rig.stop()

    run(main())


def test_nothing_is_written_before_the_ledger_is_sure() -> None:
    """Were the note lost and the letter kept, the next start would write it again."""

    async def main() -> None:
        rig, host = await begin()
        rig.broker.create_topic(DLQ, partitions=1)
        await host.doom([1, 2])
        rig.disk.fail_sync("logs/__consumer_offsets/*")
        sleep = Pauses(rig)
        letters = dead_letters(rig, sleep)
        letters.take(host)
        await sleep.reach(2)

        assert rig.broker.topic(DLQ).partition(0).log.end_offset == 0
        assert sorted(host.ledger.dooms) == [1, 2]
        await letters.stop()
        await rig.stop()

    run(main())


def test_a_deleted_topic_of_dead_letters_is_made_again() -> None:
    """Deleting it throws away what is in it, not what comes."""

    async def main() -> None:
        rig, host = await begin()
        letters = dead_letters(rig)
        for offset in (1, 2):
            await host.doom([offset])
            letters.take(host)
            await letters.idle()
            assert [m.value for m in await messages(rig, DLQ)] == [b"value-%d" % offset]
            rig.broker.delete_topic(DLQ)
        assert host.ledger.dooms == {}
        await rig.stop()

    run(main())


def test_what_retention_deleted_is_settled_as_gone() -> None:
    """A doomed message whose bytes are no longer there is not waited for."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        rig.broker.create_topic("orders", partitions=1, settings={"segment_bytes": 4_096})
        for time_us in (*range(9), rig.clock.now_us()):
            await publish(rig, [Draft(value=b"x" * 1_000, timestamp_us=time_us)] * 4)
        host = Host(rig)
        await host.doom([0, 39])
        rig.broker.configure_topic("orders", {"retention_ms": "1h"})
        rig.keep("orders")
        assert host.partition.log.start_offset > 0
        letters = dead_letters(rig)
        letters.take(host)
        await letters.idle()

        assert host.ledger.dooms == {}
        assert host.ledger.outcomes[OUTCOME_INDEX[GONE]] == 1
        assert len(await messages(rig, DLQ)) == 1
        await rig.stop()

    run(main())


def test_an_identity_cannot_be_forged() -> None:
    """A producer cannot make the broker believe that a message has been moved."""

    async def main() -> None:
        rig, _ = await begin()
        forged = Draft(value=b"x", headers={"__origin": b"0" * 16})
        (outcome,) = await rig.broker.topic("orders").publish_drafts(PUBLISHING, [(forged, 0)])
        assert isinstance(outcome, GoQueueError)
        await rig.stop()

    run(main())


class Life:
    """Dooms come in three rounds; the process may die at any operation and goes on."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.doomed: set[int] = set()
        self.asked: set[int] = set()

    async def live(self) -> None:
        rig = self.rig
        await rig.start()
        if TopicName("orders") not in rig.broker.topics:
            rig.broker.create_topic("orders", partitions=1)
        missing = 12 - rig.broker.topic("orders").partition(0).log.end_offset
        if missing:
            await publish(rig, numbered(missing, 12 - missing))
        host = Host(rig)
        letters = dead_letters(rig)
        letters.take(host)
        for offsets in ([2, 3, 5], [0], [7, 8, 9, 10]):
            wanted = set(offsets) - self.doomed
            self.asked |= wanted
            await host.doom(wanted)
            rig.check_alive()
            self.doomed |= wanted
            letters.take(host)
            await letters.idle()
            rig.check_alive()
        await self.check(host)
        await rig.stop()

    async def check(self, host: Host) -> None:
        found = await messages(self.rig, DLQ)
        numbers = [read_story(message.headers).original_offset for message in found]
        assert len(numbers) == len(set(numbers)), f"twice: {sorted(numbers)}"
        assert set(numbers) == self.doomed == {0, 2, 3, 5, 7, 8, 9, 10}
        for message, number in zip(found, numbers, strict=True):
            assert message.value == b"value-%d" % number
        assert host.ledger.dooms == {}
        assert all(host.ledger.is_settled(number) for number in numbers)
        assert host.ledger.outcomes[OUTCOME_INDEX[DEAD]] == 8

    def die_in(self, operations: int) -> bool:
        self.rig.die_in(operations)
        try:
            run(self.live())
        except (CrashError, GoQueueError):
            with pytest.raises(CrashError):
                self.rig.check_alive()
            return True
        return False


def deaths(first: int = 1) -> Iterator[tuple[int, Life]]:
    for operation in itertools.count(first):
        life = Life()
        if not life.die_in(operation):
            assert operation > 60
            return
        yield operation, life


@pytest.mark.parametrize("seed", [None, 1, 2], ids=lambda seed: f"torn-{seed}")
def test_a_power_cut_at_every_operation_loses_and_doubles_nothing(seed: int | None) -> None:
    """P5: a doomed message is among the dead letters once, whenever the power fails."""
    for operation, life in deaths():
        torn = None if seed is None else Random(seed * 1_000 + operation)
        life.rig.recover_with(life.rig.disk.crash(torn=torn))
        run(life.live())


def test_a_kill_at_every_operation_loses_and_doubles_nothing() -> None:
    """P5: nor when the process dies and the system keeps what it wrote."""
    for _, life in deaths():
        life.rig.recover_with(life.rig.disk.kill())
        run(life.live())


def test_two_deaths_lose_and_double_nothing() -> None:
    """P5: nor when the next process dies while it looks what became of the moves."""
    for _, life in deaths(40):
        for again in (9, 17, 23, 31):
            life.rig.recover_with(life.rig.disk.crash(torn=Random(again)))
            if not life.die_in(again):
                break
        else:
            life.rig.recover_with(life.rig.disk.crash())
            run(life.live())
