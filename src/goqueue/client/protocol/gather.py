"""Answers of several nodes put together into the one that a single broker would give. No I/O."""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from goqueue.base.errors import StaleMetadataError
from goqueue.client.protocol.exchange import Answer, ReplyHeader, decode
from goqueue.wire import calls, delayed_calls, dlq_calls, group_calls, queue_calls
from goqueue.wire import overview_calls as seen
from goqueue.wire.schedule_calls import ScheduleList
from goqueue.wire.tx_calls import TxList

replace: Final = msgspec.structs.replace
_encode: Final = msgspec.msgpack.Encoder().encode

Item = TypeVar("Item")


class Share(NamedTuple):
    """What one node is asked for."""

    node: str
    header: calls.Call
    parts: list[int] | None = None
    """The partitions (of a settlement: the places of its parts) that it answers for."""

    def covers(self, partition: int) -> bool:
        """Return True if the node is the one to answer for a partition."""
        return self.parts is None or partition in self.parts


Given = list[tuple[Share, Answer]]


def _answer(header: calls.Call, payload: bytes = b"") -> Answer:
    return Answer(_encode(header), memoryview(payload))


def _read(given: Given, kind: type[ReplyHeader]) -> list[tuple[Share, ReplyHeader]]:
    return [(share, decode(answer.header, kind)) for share, answer in given]


def first(_: calls.Call, given: Given) -> Answer:
    """Return one of the answers: all say the same."""
    return given[0][1]


def offsets(_: calls.Call, given: Given) -> Answer:
    """Return the ranges of all partitions, in order."""
    parts = [part for _, reply in _read(given, calls.OffsetsReply) for part in reply.parts]
    return _answer(calls.OffsetsReply(sorted(parts, key=attrgetter("partition"))))


def topic_state(_: calls.Call, given: Given) -> Answer:
    """Return a topic with each partition as its leader has it."""
    replies = _read(given, calls.TopicState)
    parts = [part for own, one in replies for part in one.partitions if own.covers(part.partition)]
    if len(parts) < max(len(one.partitions) for _, one in replies):
        # Partitions were added since this client asked who leads what.
        raise StaleMetadataError("the topic has more partitions than this client knows of")
    merged = replace(replies[0][1], partitions=sorted(parts, key=attrgetter("partition")))
    return _answer(merged)


def compacted(_: calls.Call, given: Given) -> Answer:
    """Return what became of all partitions, in order."""
    parts = [part for _, reply in _read(given, calls.Compacted) for part in reply.parts]
    return _answer(calls.Compacted(sorted(parts, key=attrgetter("partition"))))


def offsets_set(_: calls.Call, given: Given) -> Answer:
    """Return where a group begins anew, everywhere."""
    found = [one for _, reply in _read(given, queue_calls.OffsetsSet) for one in reply.offsets]
    return _answer(queue_calls.OffsetsSet(sorted(found, key=attrgetter("topic", "partition"))))


def settled(header: queue_calls.Settle, given: Given) -> Answer:
    """Return what became of the parts of a settlement, in the order in which they were named."""
    parts = [queue_calls.SettledPart()] * len(header.parts)
    for share, reply in _read(given, queue_calls.Settled):
        for place, part in zip(share.parts or (), reply.parts, strict=True):
            parts[place] = part
    return _answer(queue_calls.Settled(parts))


def progress(_: calls.Call, given: Given) -> Answer:
    """Return how far a group is everywhere; of two nodes the one further on knows better."""
    replies = [reply for _, reply in _read(given, queue_calls.GroupProgress)]
    parts: dict[tuple[str, int], queue_calls.Progress] = {}
    for part in (part for reply in replies for part in reply.parts):
        place = part.topic, part.partition
        known = parts.get(place)
        if known is None or known.committed_offset < part.committed_offset:
            parts[place] = part
    generation = max(reply.generation for reply in replies)
    return _answer(queue_calls.GroupProgress(generation, [parts[one] for one in sorted(parts)]))


def groups(_: calls.Call, given: Given) -> Answer:
    """Return the groups of all coordinators by name."""
    every = [one for _, reply in _read(given, group_calls.GroupList) for one in reply.groups]
    return _answer(group_calls.GroupList(_once(every, attrgetter("name"))))


def transactions(header: Any, given: Given) -> Answer:  # noqa: ANN401 - a TxListed
    """Return the transactional producers of all coordinators in the order of their ids."""
    every = [one for _, reply in _read(given, TxList) for one in reply.producers]
    return _answer(TxList(_once(every, attrgetter("transactional_id"))[: header.limit]))


def schedules(header: Any, given: Given) -> Answer:  # noqa: ANN401 - a ListSchedules
    """Return a page of the schedules of all coordinators by name."""
    replies = [reply for _, reply in _read(given, ScheduleList)]
    every = _once((one for reply in replies for one in reply.schedules), attrgetter("name"))
    page = every[header.skip : header.skip + header.limit]
    return _answer(ScheduleList(page, sum(reply.total for reply in replies)))


def delayed(_: calls.Call, given: Given) -> Answer:
    """Return delayed messages in the order of partitions and offsets."""
    return _answer(_delayed(given))


def delayed_page(header: delayed_calls.ListDelayed, given: Given) -> Answer:
    """Return a page of delayed messages in the order of partitions and offsets."""
    every = _delayed(given)
    page = every.messages[header.skip : header.skip + header.limit]
    return _answer(delayed_calls.DelayedList(page, every.pending))


def _delayed(given: Given) -> delayed_calls.DelayedList:
    replies = _read(given, delayed_calls.DelayedList)
    found = [one for own, reply in replies for one in reply.messages if own.covers(one.partition)]
    pending = sum(reply.pending for _, reply in replies)
    return delayed_calls.DelayedList(sorted(found, key=attrgetter("partition", "offset")), pending)


def dead_letter_topics(_: calls.Call, given: Given) -> Answer:
    """Return every topic of dead letters with what all leaders have of it."""
    found: dict[str, dlq_calls.DlqSummary] = {}
    for one in [one for _, reply in _read(given, dlq_calls.DlqList) for one in reply.topics]:
        known = found.get(one.topic)
        if known is None:
            found[one.topic] = one
            continue
        ages = [age for age in (known.oldest_us, one.oldest_us) if age >= 0]
        found[one.topic] = replace(
            known,
            depth=known.depth + one.depth,
            oldest_us=min(ages, default=-1),
            redrive=max(known.redrive, one.redrive),
        )
    return _answer(dlq_calls.DlqList([found[name] for name in sorted(found)]))


def letters(header: dlq_calls.PeekLetters, given: Given) -> Answer:
    """Return a page of dead letters, partition by partition."""
    if header.partition is not None:
        return given[0][1]
    found: list[tuple[int, memoryview]] = []
    depth, is_cut, topic = 0, False, ""
    for (own, answer), (_, page) in zip(given, _read(given, dlq_calls.LettersPage), strict=True):
        depth, is_cut, topic = depth + page.depth, is_cut or page.is_cut, page.topic
        position = 0
        for partition, size in zip(page.partitions, page.sizes, strict=True):
            if own.covers(partition):
                found.append((partition, answer.payload[position : position + size]))
            position += size
    found.sort(key=lambda letter: letter[0])
    page_end = header.skip + header.limit
    chosen = found[header.skip : page_end]
    merged = dlq_calls.LettersPage(
        topic,
        depth,
        is_cut or len(found) > page_end,
        [partition for partition, _ in chosen],
        [len(frame) for _, frame in chosen],
    )
    return _answer(merged, b"".join(frame for _, frame in chosen))


def overview(_: calls.Call, given: Given) -> Answer:
    """Return how all nodes stand together; its clock is that of the first node."""
    replies = [reply for _, reply in _read(given, seen.Overview)]
    topics = _added((one for reply in replies for one in reply.topics), _add_topics)
    groups_ = _added((one for reply in replies for one in reply.groups), _add_groups)
    nodes = ", ".join(reply.node_id for reply in replies)
    return _answer(seen.Overview(nodes, replies[0].at_ms, replies[0].uptime_ms, topics, groups_))


def _add_topics(one: seen.TopicView, other: seen.TopicView) -> seen.TopicView:
    return replace(
        one,
        size_bytes=one.size_bytes + other.size_bytes,
        messages_in=one.messages_in + other.messages_in,
        messages_out=one.messages_out + other.messages_out,
        lanes=[mine + theirs for mine, theirs in zip(one.lanes, other.lanes, strict=True)],
        delayed=one.delayed + other.delayed,
        dead=one.dead + other.dead,
    )


def _add_groups(one: seen.GroupView, other: seen.GroupView) -> seen.GroupView:
    # The coordinator has the members; what leaders know of a group is how far it is.
    head = one if one.members >= other.members else other
    return replace(
        head,
        topics=sorted({*one.topics, *other.topics}),
        acked=one.acked + other.acked,
        lag=one.lag + other.lag,
        lag_ms=max(one.lag_ms, other.lag_ms),
        in_flight=one.in_flight + other.in_flight,
        waiting=one.waiting + other.waiting,
        dead=one.dead + other.dead,
    )


def _added(items: Iterable[Item], add: Callable[[Item, Item], Item]) -> list[Item]:
    found: dict[str, Item] = {}
    for item in items:
        name = item.name  # type: ignore[attr-defined]
        found[name] = add(found[name], item) if name in found else item
    return [found[name] for name in sorted(found)]


def _once(items: Iterable[Item], key: Callable[[Item], str]) -> list[Item]:
    found = {key(item): item for item in items}
    return [found[name] for name in sorted(found)]
