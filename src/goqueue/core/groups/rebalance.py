"""What a change of members or topics means for who owns what.

Shape: calculator. Eager: everybody has the new assignment at once. Cooperative: a partition that
moves stays with its owner until that one has given it up; nothing else is touched.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from goqueue.base.ids import Generation, MemberId, PartitionId, TopicName, TopicPartition
from goqueue.core.groups.assignors import ASSIGNORS, Assignment
from goqueue.core.groups.events import Event, Layout, RebalanceBegun, RebalanceCompleted

EAGER: Final = "eager"
COOPERATIVE: Final = "cooperative"
PROTOCOLS: Final = (EAGER, COOPERATIVE)

MEMBER_JOINED: Final = "member_joined"
MEMBER_LEFT: Final = "member_left"
MEMBER_EXPIRED: Final = "member_expired"
MEMBER_DISCONNECTED: Final = "member_disconnected"
SUBSCRIPTION_CHANGED: Final = "subscription_changed"
TOPICS_CHANGED: Final = "topics_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The group as it will be, and the assignment it comes from."""

    generation: Generation
    reason: str
    subscriptions: Mapping[MemberId, AbstractSet[TopicName]]
    partitions: Mapping[TopicName, int]
    owned: Mapping[MemberId, AbstractSet[TopicPartition]]
    protocol: str
    assignor: str


def plan(change: Change) -> list[Event]:
    """Return the events of a rebalance; it is completed at once if nobody has to give up."""
    owned = {
        member: {one for one in change.owned.get(member, ()) if _is_there(one, topics, change)}
        for member, topics in change.subscriptions.items()
    }
    target = ASSIGNORS[change.assignor](change.subscriptions, change.partitions, owned)
    begun = RebalanceBegun(
        generation=change.generation, reason=change.reason, target=layout_of(target)
    )
    completed = RebalanceCompleted(generation=change.generation)
    if change.protocol == EAGER or all(owned[member] <= target[member] for member in owned):
        return [begun, completed]
    taken = set[TopicPartition]().union(*owned.values())
    until_then = {member: owned[member] | (target[member] - taken) for member in owned}
    return [
        RebalanceBegun(
            generation=change.generation,
            reason=change.reason,
            target=begun.target,
            owned=layout_of(until_then),
        )
    ]


def _is_there(one: TopicPartition, topics: AbstractSet[TopicName], change: Change) -> bool:
    return one.topic in topics and one.partition < change.partitions.get(one.topic, 0)


def layout_of(assignment: Mapping[MemberId, Iterable[TopicPartition]]) -> Layout:
    """Return an assignment as it travels and rests."""
    return {member: by_topic(partitions) for member, partitions in assignment.items()}


def by_topic(partitions: Iterable[TopicPartition]) -> dict[TopicName, list[int]]:
    """Return partitions by topic, in order."""
    topics: dict[TopicName, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics


def flat(topics: Mapping[TopicName, Iterable[int]]) -> set[TopicPartition]:
    """Return partitions by topic as a set."""
    return {
        TopicPartition(topic, PartitionId(number))
        for topic, numbers in topics.items()
        for number in numbers
    }


def assignment_of(layout: Layout) -> Assignment:
    """Return a layout as sets."""
    return {member: flat(topics) for member, topics in layout.items()}
