"""Who shall own which partition: three ways to share them out.

Shape: calculator. Every assignor gives each partition of a topic to exactly one of the members that
subscribe to it, and none to anybody else. Members are looked at in the order of their ids, so the
same members and partitions always get the same answer.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from goqueue.base.ids import MemberId, PartitionId, TopicName, TopicPartition
from goqueue.core.groups.sticky import assign_sticky

Assignment = dict[MemberId, set[TopicPartition]]
Subscriptions = Mapping[MemberId, AbstractSet[TopicName]]
Assign = Callable[
    [Subscriptions, Mapping[TopicName, int], Mapping[MemberId, AbstractSet[TopicPartition]]],
    Assignment,
]

STICKY: Final = "sticky"
RANGE: Final = "range"
ROUND_ROBIN: Final = "roundrobin"


def assign_range(
    members: Subscriptions,
    partitions: Mapping[TopicName, int],
    _current: Mapping[MemberId, AbstractSet[TopicPartition]],
) -> Assignment:
    """Give each member a run of neighbours in every topic; the first ones get one more."""
    assignment: Assignment = {member: set() for member in members}
    for topic, count in partitions.items():
        readers = sorted(member for member, topics in members.items() if topic in topics)
        start = 0
        for place, member in enumerate(readers):
            end = start + count // len(readers) + (place < count % len(readers))
            assignment[member].update(_partitions_of(topic, start, end))
            start = end
    return assignment


def assign_round_robin(
    members: Subscriptions,
    partitions: Mapping[TopicName, int],
    _current: Mapping[MemberId, AbstractSet[TopicPartition]],
) -> Assignment:
    """Deal all partitions out in turn, passing over members that do not read the topic."""
    assignment: Assignment = {member: set() for member in members}
    order = sorted(members)
    turn = 0
    for topic in sorted(partitions):
        if not any(topic in topics for topics in members.values()):
            continue
        for partition in _partitions_of(topic, 0, partitions[topic]):
            while topic not in members[order[turn % len(order)]]:
                turn += 1
            assignment[order[turn % len(order)]].add(partition)
            turn += 1
    return assignment


ASSIGNORS: Final[Mapping[str, Assign]] = {
    STICKY: assign_sticky,
    RANGE: assign_range,
    ROUND_ROBIN: assign_round_robin,
}


def _partitions_of(topic: TopicName, start: int, end: int) -> list[TopicPartition]:
    return [TopicPartition(topic, PartitionId(number)) for number in range(start, end)]
