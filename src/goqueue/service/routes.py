"""Where each verb belongs in a cluster: the table that ``service/routing.py`` goes by.

A verb that is not listed is answered by the node that was asked. What may be asked again when an
answer was lost is marked: it changes nothing, or nothing the second time.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from goqueue.base.errors import (
    DelayedNotFoundError,
    GoQueueError,
    GroupNotFoundError,
    InvalidRequestError,
    NotCoordinatorError,
    TraceNotFoundError,
)
from goqueue.base.ids import NodeId
from goqueue.core.dlq.names import dlq_name
from goqueue.service.routing import Arguments, Router
from goqueue.service.summing import by_name, total
from goqueue.wire.calls import OffsetsReply, TopicList, TopicState
from goqueue.wire.delayed_calls import DelayedList
from goqueue.wire.dlq_calls import DlqList, DlqSummary
from goqueue.wire.group_calls import GroupList
from goqueue.wire.http.group_offsets import GroupOffsets
from goqueue.wire.overview_calls import Overview
from goqueue.wire.queue_calls import GroupProgress
from goqueue.wire.schedule_calls import ScheduleList
from goqueue.wire.trace_calls import SearchTraces, TraceEntry, TraceList
from goqueue.wire.tx_calls import TxList, TxListed

Answers = dict[NodeId, Any]


class Route(NamedTuple):
    """A verb of which one node knows the answer."""

    find: Callable[[Router, Arguments], NodeId]
    is_repeatable: bool = False


class Gathering(NamedTuple):
    """A verb of which each node knows a part of the answer."""

    merge: Callable[[Router, Arguments, Answers], Any]
    """Makes the answer; there is at least one part."""
    nodes: Callable[[Router, Arguments], Sequence[NodeId]] = lambda router, _: router.nodes
    paged: str = ""
    """The field of the answer that holds a page of a list, where the call asks for one."""
    expected: tuple[type[GoQueueError], ...] = ()
    """What a node raises that knows nothing of it; if all do, the first error is raised."""


def _named(path: str) -> Callable[[Router, Arguments], NodeId]:
    parameter, _, field = path.partition(".")
    read: Callable[[Any], str] = attrgetter(field) if field else str
    return lambda router, given: router.named(read(given[parameter]))


def _letters(path: str) -> Callable[[Router, Arguments], NodeId]:
    parameter, _, field = path.partition(".")
    read = attrgetter(field)
    return lambda router, given: router.named(dlq_name(read(given[parameter])))


def _producer(read: Callable[[Arguments], int]) -> Callable[[Router, Arguments], NodeId]:
    return lambda router, given: router.producer(read(given))


def _schemas(router: Router, _: Arguments) -> NodeId:
    return router.schemas()


def _page(router: Router, given: Arguments) -> NodeId:
    (part,) = given["call"].parts
    return router.leader(given["call"].topic, part.partition)


ROUTES: Final[dict[str, Route]] = {
    # Groups, at their coordinators.
    "groups.join": Route(_named("call.group")),
    "groups.heartbeat": Route(_named("call.group"), is_repeatable=True),
    "groups.leave": Route(_named("call.group")),
    "groups.revoke": Route(_named("call.group"), is_repeatable=True),
    "groups.describe": Route(_named("call.group"), is_repeatable=True),
    "groups.delete": Route(_named("call.group")),
    "groups.outline": Route(_named("group"), is_repeatable=True),
    "groups.assignment": Route(_named("group"), is_repeatable=True),
    "queue.standing": Route(_named("group"), is_repeatable=True),
    # Schedules.
    "schedules.create": Route(_named("call.name")),
    "schedules.describe": Route(_named("call.name"), is_repeatable=True),
    "schedules.pause": Route(_named("call.name"), is_repeatable=True),
    "schedules.resume": Route(_named("call.name"), is_repeatable=True),
    "schedules.trigger": Route(_named("call.name")),
    "schedules.delete": Route(_named("call.name")),
    # Jobs on dead letters.
    "dlq.begin": Route(_letters("call.topic")),
    "dlq.history": Route(_letters("call.name"), is_repeatable=True),
    "dlq.describe": Route(_letters("call.topic"), is_repeatable=True),
    "dlq.cancel": Route(_letters("call.topic"), is_repeatable=True),
    # Messages.
    "reading.page": Route(_page, is_repeatable=True),
    # Schemas, by the node that decides about them; what is cheap every node knows itself.
    "schemas.get": Route(_schemas, is_repeatable=True),
    "schemas.by_id": Route(_schemas, is_repeatable=True),
    "schemas.places": Route(_schemas, is_repeatable=True),
    "schemas.lookup": Route(_schemas, is_repeatable=True),
    "schemas.versions": Route(_schemas, is_repeatable=True),
    "schemas.referrers": Route(_schemas, is_repeatable=True),
    "schemas.names": Route(_schemas, is_repeatable=True),
    "schemas.add": Route(_schemas, is_repeatable=True),
    "schemas.delete_version": Route(_schemas),
    "schemas.delete_subject": Route(_schemas),
    "schemas.set_compatibility": Route(_schemas, is_repeatable=True),
    "schemas.lock": Route(_schemas, is_repeatable=True),
    # Transactions, at the coordinators of their producers.
    "tx.init": Route(lambda router, given: router.transactional(given["call"].transactional_id)),
    "tx.begin_named": Route(_producer(lambda given: given["call"].producer_id)),
    "tx.add_partition": Route(_producer(lambda given: given["call"].producer_id)),
    "tx.end": Route(_producer(lambda given: given["call"].who.producer_id)),
    "tx.heartbeat": Route(_producer(lambda given: given["call"].producer_id), is_repeatable=True),
    "publishing.publish_in": Route(_producer(lambda given: given["call"].producer_id)),
}  # fmt: skip
"""Verbs of which one node knows the answer."""


def _summed(_: Router, __: Arguments, answers: Answers) -> Any:  # noqa: ANN401 - as the verb says
    return total(answers.values())


def _topic_state(router: Router, given: Arguments, answers: Answers) -> TopicState:
    """Return a topic as the leaders of its partitions have it."""
    leaders = router.leaders(given["call"].name)
    first: TopicState = answers.get(router.node) or next(iter(answers.values()))
    led = {
        part.partition: part
        for node, numbers in leaders.items()
        if node in answers
        for part in answers[node].partitions
        if part.partition in numbers
    }
    parts = [led.get(part.partition, part) for part in first.partitions]
    return msgspec.structs.replace(first, partitions=parts)


def _offsets(router: Router, given: Arguments, answers: Answers) -> OffsetsReply:
    parts = [
        part
        for node, numbers in router.leaders(given["call"].topic).items()
        if node in answers
        for part in answers[node].parts
        if part.partition in numbers
    ]
    return OffsetsReply(sorted(parts, key=attrgetter("partition")))


def _progress(router: Router, _: Arguments, answers: Answers) -> GroupProgress:
    """Return how far a group is in each partition, as its leader knows."""
    found = {}
    for node, answer in answers.items():
        for part in answer.parts:
            place = (part.topic, part.partition)
            if place not in found or router.leader(*place) == node:
                found[place] = part
    generation = max(answer.generation for answer in answers.values())
    return GroupProgress(generation, [found[place] for place in sorted(found)])


def _committed(router: Router, given: Arguments, answers: Answers) -> GroupOffsets:
    topics: dict[str, dict[str, int]] = {}
    for node, answer in answers.items():
        for topic, numbers in answer.topics.items():
            for number, offset in numbers.items():
                known = topics.setdefault(topic, {})
                if number not in known or router.leader(topic, int(number)) == node:
                    known[number] = offset
    generations = [one.generation for one in answers.values() if one.generation is not None]
    updates = [one.updated_at for one in answers.values() if one.updated_at is not None]
    return GroupOffsets(
        group_id=given["name"],
        topics={topic: dict(sorted(topics[topic].items())) for topic in sorted(topics)},
        generation=max(generations, default=None),
        updated_at=max(updates, default=None),
    )


def _delayed_page(_: Router, given: Arguments, answers: Answers) -> DelayedList:
    skip, limit = given["call"].skip, given["call"].limit
    entries = [one for answer in answers.values() for one in answer.messages]
    entries.sort(key=attrgetter("partition", "offset"))
    pending = sum(answer.pending for answer in answers.values())
    return DelayedList(entries[skip : skip + limit], pending)


def _delayed(_: Router, __: Arguments, answers: Answers) -> DelayedList:
    entries = [one for answer in answers.values() for one in answer.messages]
    return DelayedList(sorted(entries, key=attrgetter("partition", "offset")))


def _delayed_at(router: Router, given: Arguments, answers: Answers) -> DelayedList:
    found = _delayed(router, given, answers)
    waiting = [one for one in found.messages if one.state == "pending"] or found.messages
    if len(waiting) > 1 and waiting[0].state == "pending":
        offset = given["offset"]
        raise InvalidRequestError(f"offset {offset} waits in several partitions: say which")
    return DelayedList(waiting[:1])


def _place_or_all(router: Router, given: Arguments) -> Sequence[NodeId]:
    call = given["call"]
    if call.delay_id is None:
        return [router.leader(call.topic, call.partition)]
    return list(router.leaders(call.topic))


def _schedule_page(_: Router, given: Arguments, answers: Answers) -> ScheduleList:
    skip, limit = given["call"].skip, given["call"].limit
    entries = {one.name: one for answer in answers.values() for one in answer.schedules}
    names = sorted(entries)[skip : skip + limit]
    return ScheduleList(
        [entries[name] for name in names], sum(one.total for one in answers.values())
    )


def _letter_topics(_: Router, __: Arguments, answers: Answers) -> DlqList:
    found: dict[str, DlqSummary] = {}
    for answer in answers.values():
        for one in answer.topics:
            known = found.get(one.topic)
            found[one.topic] = one if known is None else _both(known, one)
    return DlqList([found[name] for name in sorted(found)])


def _both(one: DlqSummary, other: DlqSummary) -> DlqSummary:
    oldest = [known.oldest_us for known in (one, other) if known.oldest_us >= 0]
    return DlqSummary(
        one.topic,
        one.source,
        one.depth + other.depth,
        min(oldest, default=-1),
        max(one.redrive, other.redrive),
    )


def _overview(_: Router, __: Arguments, answers: Answers) -> Overview:
    first: Overview = next(iter(answers.values()))
    topics = by_name(answer.topics for answer in answers.values())
    groups = by_name(answer.groups for answer in answers.values())
    return msgspec.structs.replace(first, topics=topics, groups=groups)


def _traces(_: Router, given: Arguments, answers: Answers) -> TraceList:
    call: SearchTraces = given["call"]
    found: dict[str, TraceEntry] = {}
    for answer in answers.values():
        for one in answer.traces:
            known = found.get(one.trace_id)
            found[one.trace_id] = one if known is None else _one_trace([known, one])
    latest = sorted(found.values(), key=lambda one: (-one.start_ns, one.trace_id))
    return TraceList(latest[: call.limit])


def _one_trace(entries: Sequence[TraceEntry]) -> TraceEntry:
    """Return what nodes know of one trace as one: it began with the first, and ended with one."""
    first = min(entries, key=attrgetter("start_ns"))
    last = max(entries, key=attrgetter("end_ns"))
    spans = sorted((span for one in entries for span in one.spans), key=attrgetter("timestamp_ns"))
    count = sum(one.span_count for one in entries)
    return msgspec.structs.replace(
        first, end_ns=last.end_ns, status=last.status, span_count=count, spans=spans
    )


def _transactions(_: Router, given: Arguments, answers: Answers) -> TxList:
    call: TxListed = given["call"]
    found = [one for answer in answers.values() for one in answer.producers]
    return TxList(sorted(found, key=attrgetter("producer_id"))[: call.limit])


GATHERINGS: Final[dict[str, Gathering]] = {
    "topics.list_all": Gathering(
        lambda _, __, answers: TopicList(by_name(one.topics for one in answers.values()))
    ),
    "topics.describe": Gathering(
        _topic_state, lambda router, given: [router.node, *router.leaders(given["call"].name)]
    ),
    "topics.offsets": Gathering(
        _offsets, lambda router, given: list(router.leaders(given["call"].topic))
    ),
    "groups.list_all": Gathering(
        lambda _, __, answers: GroupList(by_name(one.groups for one in answers.values()))
    ),
    "queue.progress": Gathering(
        _progress, expected=(GroupNotFoundError, NotCoordinatorError)
    ),
    "queue.committed": Gathering(_committed, expected=(NotCoordinatorError,)),
    "delayed.list_all": Gathering(
        _delayed_page, lambda router, given: list(router.leaders(given["call"].topic)), "messages"
    ),
    "delayed.find": Gathering(_delayed, _place_or_all, expected=(DelayedNotFoundError,)),
    "delayed.cancel": Gathering(_delayed, _place_or_all, expected=(DelayedNotFoundError,)),
    "delayed.reschedule": Gathering(_delayed, _place_or_all, expected=(DelayedNotFoundError,)),
    "delayed.find_offset": Gathering(
        _delayed_at,
        lambda router, given: list(router.leaders(given["topic"])),
        expected=(DelayedNotFoundError,),
    ),
    "schedules.list_here": Gathering(_schedule_page, paged="schedules"),
    "dlq.list_all": Gathering(_letter_topics),
    "stats.overview": Gathering(_overview),
    "stats.sizes": Gathering(_summed),
    "stats.delays": Gathering(_summed),
    "stats.priorities": Gathering(_summed),
    "stats.reliability": Gathering(_summed),
    "traces.find": Gathering(
        lambda _, __, answers: _one_trace(list(answers.values())), expected=(TraceNotFoundError,)
    ),
    "traces.search": Gathering(_traces),
    "traces.stats": Gathering(_summed),
    "tx.list_all": Gathering(_transactions),
    "tx.stats": Gathering(_summed),
}  # fmt: skip
"""Verbs of which each node knows a part of the answer."""

STAND_INS: Final = {"schedules.list_all": "schedules.list_here"}
"""Verbs that a node alone answers for all, and the ones that say what is there of it."""
