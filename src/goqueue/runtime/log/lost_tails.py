"""Logs that came back shorter than they were: offsets once given out are not given again.

A power cut takes the end of a log whose acks do not wait for the disk, and damage may take it
anywhere. What groups, schedules and jobs have of the lost messages is kept: groups, readers and
checkpoints elsewhere remember offsets, and would all take new messages for old ones. So the log
goes on behind everything that is remembered, and the offsets between are a gap like any other
damage (ADR 0028). Where a log has replicas they are holes, which are copied like messages.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from goqueue.base.ids import Offset, TopicName
from goqueue.core.dlq.names import is_dlq
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.dlq.dead_letter_index import DeadLetterIndex
from goqueue.runtime.dlq.redrive import Redrives
from goqueue.runtime.log.own_rows import append_holes
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.queue.hosted_ledger import HostedLedger
from goqueue.storage.log_notes import Gap

log = get_logger("goqueue.storage")
broker_log = get_logger("goqueue.broker")


class Memory(NamedTuple):
    """A record of messages of a partition, all of them before an offset."""

    partition: Partition
    end_offset: Offset
    owner: str


def skip_lost_tails(
    topics: Mapping[TopicName, Topic], ledgers: Iterable[HostedLedger], redrives: Redrives
) -> None:
    """Let no log assign an offset again that is recorded anywhere."""
    longest: dict[Partition, Memory] = {}
    for memory in _memories(topics, ledgers, redrives):
        known = longest.get(memory.partition)
        if known is None or known.end_offset < memory.end_offset:
            longest[memory.partition] = memory
    for memory in longest.values():
        _skip(memory)


def skip_lost_tail(
    partition: Partition, ledgers: Iterable[HostedLedger], shelf: DeadLetterIndex | None
) -> None:
    """Do the same for one partition, with what was loaded beside it."""
    memories = [
        Memory(partition, one.ledger.reached, f"group {one.group}")
        for one in ledgers
        if one.partition is partition
    ]
    memories.append(Memory(partition, partition.queue.schedule.reached, "changed delays"))
    if shelf is not None:
        memories.append(Memory(partition, shelf.ledger.reached, "dead letters"))
    _skip(max(memories, key=lambda memory: memory.end_offset))


def _skip(memory: Memory) -> None:
    own = memory.partition.log
    if memory.end_offset > own.end_offset:
        gap = Gap(own.end_offset, memory.end_offset)
        if memory.partition.leadership.replication is None:
            own.skip_to(memory.end_offset)
        else:
            append_holes(memory.partition, memory.end_offset)
        report_lost_tail(memory.partition, gap, memory.owner)


def report_repair(partition: Partition) -> None:
    """Say what was wrong with a log when it was opened."""
    recovery = partition.log.recovery
    if recovery.torn_bytes or recovery.lost_bytes or recovery.gaps:
        broker_log.warning(
            LogEvent.LOG_REPAIRED,
            partition=str(partition.name),
            torn_bytes=recovery.torn_bytes,
            lost_bytes=recovery.lost_bytes,
            unreadable=[list(gap) for gap in recovery.gaps],
        )
    if recovery.lost_tail is not None:
        report_lost_tail(partition, recovery.lost_tail, "a snapshot beside the log")


def report_lost_tail(partition: Partition, gap: Gap, owner: str) -> None:
    """Say loudly that messages are gone, who knew of them, and where the log goes on."""
    log.error(
        LogEvent.LOG_TAIL_LOST,
        topic=partition.name.topic,
        partition=partition.name.partition,
        known_to=owner,
        log_end_offset=gap.start_offset,
        next_offset=gap.end_offset,
        lost=gap.end_offset - gap.start_offset,
    )


def _memories(
    topics: Mapping[TopicName, Topic], ledgers: Iterable[HostedLedger], redrives: Redrives
) -> Iterator[Memory]:
    for hosted in ledgers:
        yield Memory(hosted.partition, hosted.ledger.reached, f"group {hosted.group}")
    for name, topic in topics.items():
        for partition in topic.partitions:
            reached = partition.queue.schedule.reached
            yield Memory(partition, reached, "changed delays")
        if is_dlq(name):
            for shelf in redrives.shelves.of(topic):
                yield Memory(shelf.partition, shelf.ledger.reached, "dead letters")
            for number, end in enumerate(redrives.ends(topic)):
                yield Memory(topic.partitions[number], Offset(end), "a redrive")
