"""Requests that several nodes answer together: who is asked for what. No I/O.

What came back is put together by ``gather``. All of these may safely be made twice.
"""

from collections.abc import Callable, Collection, Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec

from goqueue.base.errors import (
    DelayedNotFoundError,
    GoQueueError,
    GroupNotFoundError,
    TopicNotFoundError,
)
from goqueue.base.limits import DELAYED_PAGE_MAX, SCHEDULES_PAGE_MAX
from goqueue.client.protocol import gather
from goqueue.client.protocol.cluster_view import ClusterView
from goqueue.client.protocol.exchange import Answer
from goqueue.client.protocol.gather import Share
from goqueue.core.dlq.names import dlq_name
from goqueue.wire.calls import Call
from goqueue.wire.dlq_calls import LETTERS_MAX
from goqueue.wire.packet import Operation as Op

replace: Final = msgspec.structs.replace

Split = Callable[[ClusterView, Any], list[Share]]
"""Says who is asked for what; raises LeaderNotAvailableError while that is not known."""


class Scattered(NamedTuple):
    """How an operation is asked of several nodes."""

    split: Split
    merge: Callable[[Any, list[tuple[Share, Answer]]], Answer]
    nothing: tuple[type[GoQueueError], ...] = ()
    """With these a node says that it has nothing of it; only if all say so it is told."""


def plan_of(operation: Op, header: Call) -> Scattered | None:
    """Return how a request is asked of several nodes, None if it is for one."""
    if operation in _BY_PLACE and getattr(header, _BY_PLACE[operation]) is None:
        return _PLANS_OF_ALL[operation]
    return _PLANS.get(operation)


def topic_of(operation: Op, header: Call) -> str | None:
    """Return the topic whose leaders a scattered request is for, if it is for those of one."""
    name: str | None = getattr(header, "topic", None)
    if operation in {Op.DESCRIBE_TOPIC, Op.COMPACT_TOPIC}:
        name = getattr(header, "name", None)
    return dlq_name(name) if name and operation is Op.PEEK_DLQ else name


def _all_nodes(view: ClusterView, header: Call) -> list[Share]:
    return [Share(node, header) for node in sorted(view.nodes)]


def _leaders(view: ClusterView, header: Any) -> list[Share]:  # noqa: ANN401 - names a topic
    topic = header.name if hasattr(header, "name") else header.topic
    return [Share(node, header, parts) for node, parts in view.leaders_of(topic).items()]


def _offsets(view: ClusterView, header: Any) -> list[Share]:  # noqa: ANN401
    asked = header.partitions
    return [
        Share(node, replace(header, partitions=chosen), chosen)
        for node, parts in _chosen(view, header.topic, asked).items()
        for chosen in [parts]
    ]


def _resets(view: ClusterView, header: Any) -> list[Share]:  # noqa: ANN401
    shares = _chosen(view, header.topic, header.partitions)
    return [Share(node, replace(header, partitions=own), own) for node, own in shares.items()]


def _compactions(view: ClusterView, header: Any) -> list[Share]:  # noqa: ANN401
    shares = _chosen(view, header.name, header.partitions)
    return [Share(node, replace(header, partitions=own), own) for node, own in shares.items()]


def _chosen(
    view: ClusterView, topic: str, asked: Collection[int] | None
) -> Mapping[str, list[int]]:
    """Return partitions of a topic by leader: all of them, or those that are asked for."""
    if asked is None:
        return view.leaders_of(topic)
    places = sorted((view.need_leader(topic, one), one) for one in asked)
    return {node: [one for _, one in own] for node, own in groupby(places, key=lambda at: at[0])}


def _commits(view: ClusterView, header: Any) -> list[Share]:  # noqa: ANN401
    owners: dict[str, list[Any]] = {}
    for one in header.offsets:
        owners.setdefault(view.need_leader(one.topic, one.partition), []).append(one)
    return [Share(node, replace(header, offsets=own)) for node, own in owners.items()]


def _settlements(view: ClusterView, header: Any) -> list[Share]:  # noqa: ANN401
    owners: dict[str, list[int]] = {}
    for place, part in enumerate(header.parts):
        owners.setdefault(view.need_leader(part.topic, part.partition), []).append(place)
    return [
        Share(node, replace(header, parts=[header.parts[one] for one in places]), places)
        for node, places in owners.items()
    ]


def _delayed_page(view: ClusterView, header: Any) -> list[Share]:  # noqa: ANN401
    limit = min(header.skip + header.limit, DELAYED_PAGE_MAX)
    return _leaders(view, replace(header, skip=0, limit=limit))


def _schedule_page(view: ClusterView, header: Any) -> list[Share]:  # noqa: ANN401
    limit = min(header.skip + header.limit, SCHEDULES_PAGE_MAX)
    return _all_nodes(view, replace(header, skip=0, limit=limit))


def _letters(view: ClusterView, header: Any) -> list[Share]:  # noqa: ANN401
    topic = dlq_name(header.topic)
    if header.partition is not None:
        return [Share(view.need_leader(topic, header.partition), header)]
    asked = replace(header, skip=0, limit=min(header.skip + header.limit, LETTERS_MAX))
    return [Share(node, asked, parts) for node, parts in view.leaders_of(topic).items()]


_BY_PLACE: Final = {
    Op.FIND_DELAYED: "delay_id",
    Op.CANCEL_DELAYED: "delay_id",
    Op.RESCHEDULE_DELAYED: "delay_id",
}
"""Without a name these are about one place, which has a leader."""

_PLANS_OF_ALL: Final[Mapping[Op, Scattered | None]] = dict.fromkeys(_BY_PLACE)

_NAMED: Final = Scattered(_leaders, gather.delayed, (DelayedNotFoundError,))

_PLANS: Final[Mapping[Op, Scattered]] = {
    Op.OFFSETS: Scattered(_offsets, gather.offsets),
    Op.DESCRIBE_TOPIC: Scattered(_leaders, gather.topic_state),
    Op.COMPACT_TOPIC: Scattered(_compactions, gather.compacted),
    Op.COMMIT_OFFSETS: Scattered(_commits, gather.first),
    Op.RESET_OFFSETS: Scattered(_resets, gather.offsets_set),
    Op.SETTLE: Scattered(_settlements, gather.settled),
    Op.GROUP_PROGRESS: Scattered(_all_nodes, gather.progress, (GroupNotFoundError,)),
    Op.LIST_GROUPS: Scattered(_all_nodes, gather.groups),
    Op.TX_LIST: Scattered(_all_nodes, gather.transactions),
    Op.LIST_SCHEDULES: Scattered(_schedule_page, gather.schedules),
    Op.LIST_DELAYED: Scattered(_delayed_page, gather.delayed_page),
    Op.FIND_DELAYED: _NAMED,
    Op.CANCEL_DELAYED: _NAMED,
    Op.RESCHEDULE_DELAYED: _NAMED,
    Op.LIST_DLQ: Scattered(_all_nodes, gather.dead_letter_topics),
    Op.PEEK_DLQ: Scattered(_letters, gather.letters, (TopicNotFoundError,)),
    Op.OVERVIEW: Scattered(_all_nodes, gather.overview),
}
