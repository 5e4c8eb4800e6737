"""Every assignor gives each partition to one reader of its topic; sticky also moves the fewest."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.base.ids import MemberId, PartitionId, TopicName, TopicPartition
from goqueue.core.groups.assignors import ASSIGNORS, Assignment
from goqueue.core.groups.sticky import assign_sticky

TOPICS = [TopicName(name) for name in "abc"]
MEMBERS = [MemberId(f"m{number}") for number in range(6)]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7))
subscriptions = st.dictionaries(
    st.sampled_from(MEMBERS), st.sets(st.sampled_from(TOPICS), min_size=1), min_size=1
)


def partitions_of(partitions: dict[TopicName, int]) -> set[TopicPartition]:
    return {
        TopicPartition(topic, PartitionId(number))
        for topic, count in partitions.items()
        for number in range(count)
    }


def moved(before: Assignment, after: Assignment) -> int:
    """Count the partitions that had an owner and have another."""
    owner = {one: member for member, ones in after.items() for one in ones}
    return sum(owner.get(one, member) != member for member, ones in before.items() for one in ones)


def can_be_relieved(members: dict[MemberId, set[TopicName]], assignment: Assignment) -> bool:
    """Try, naively, every chain of gifts from one member to one that is two lighter."""
    reach = {
        member: {
            other
            for other, topics in members.items()
            if any(one.topic in topics for one in assignment[member])
        }
        for member in members
    }
    for middle, start, end in itertools.product(members, repeat=3):
        if middle in reach[start] and end in reach[middle]:
            reach[start].add(end)
    return any(
        len(assignment[start]) - len(assignment[end]) >= 2
        for start in members
        for end in reach[start]
    )


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=subscriptions, partitions=counts)
def test_every_partition_has_one_owner_that_reads_its_topic(
    name: str, members: dict[MemberId, set[TopicName]], partitions: dict[TopicName, int]
) -> None:
    """Nothing somebody subscribes to is left out or given twice, over several topics (trap G4)."""
    assignment = ASSIGNORS[name](members, partitions, {})

    owners = Counter(one for ones in assignment.values() for one in ones)
    wanted = {topic for topics in members.values() for topic in topics}
    assert set(owners) == {one for one in partitions_of(partitions) if one.topic in wanted}
    assert set(owners.values()) <= {1}
    assert all(one.topic in members[member] for member, ones in assignment.items() for one in ones)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(size=st.integers(1, 6), partitions=counts)
def test_equal_subscriptions_get_equal_shares(
    name: str, size: int, partitions: dict[TopicName, int]
) -> None:
    """Shares differ by one at most: over all topics, or for range in each of them."""
    members = {member: set(TOPICS) for member in MEMBERS[:size]}
    assignment = ASSIGNORS[name](members, partitions, {})

    topics = [[topic] for topic in TOPICS] if name == "range" else [TOPICS]
    for chosen in topics:
        sizes = [sum(one.topic in chosen for one in ones) for ones in assignment.values()]
        assert max(sizes) - min(sizes) <= 1


@settings(max_examples=500)
@given(size=st.integers(1, 6), partitions=counts, owners=st.lists(st.integers(0, 6), max_size=21))
def test_sticky_moves_the_fewest_among_equals(
    size: int, partitions: dict[TopicName, int], owners: list[int]
) -> None:
    """Whatever the start, shares become even and not one partition moves that need not."""
    members = {member: set(TOPICS) for member in MEMBERS[:size]}
    everything = sorted(partitions_of(partitions))
    before: Assignment = {member: set() for member in members}
    for one, owner in zip(everything, owners, strict=False):
        if owner < size:
            before[MEMBERS[owner]].add(one)
    after = assign_sticky(members, partitions, before)

    sizes = [len(ones) for ones in after.values()]
    assert max(sizes) - min(sizes) <= 1
    # The larger shares go to those who have most, and everybody keeps what fits in their share.
    share, larger = divmod(len(everything), size)
    held = sorted((len(ones) for ones in before.values()), reverse=True)
    kept = sum(min(have, share + (place < larger)) for place, have in enumerate(held))
    assert moved(before, after) == sum(held) - kept


@given(members=subscriptions, partitions=counts, data=st.data())
def test_sticky_is_as_even_as_subscriptions_allow(
    members: dict[MemberId, set[TopicName]], partitions: dict[TopicName, int], data: st.DataObject
) -> None:
    """No chain of gifts could make it more even; and when it is even already nothing moves."""
    before: Assignment = {member: set() for member in members}
    for one in sorted(partitions_of(partitions)):
        owner = data.draw(st.sampled_from([None, *sorted(members)]))
        if owner is not None:
            before[owner].add(one)
    after = assign_sticky(members, partitions, before)

    assert not can_be_relieved(members, after)
    assert assign_sticky(members, partitions, after) == after
    assert moved(before, after) <= sum(map(len, before.values()))


@settings(max_examples=500)
@given(members=subscriptions, partitions=counts, data=st.data())
def test_sticky_leaves_others_alone_when_one_goes(
    members: dict[MemberId, set[TopicName]], partitions: dict[TopicName, int], data: st.DataObject
) -> None:
    """What a leaving member had is shared out; with equal subscriptions nothing else moves."""
    is_equal = data.draw(st.booleans())
    members = {m: set(TOPICS) for m in members} if is_equal else members
    before = assign_sticky(members, partitions, {})
    leaver = data.draw(st.sampled_from(sorted(members)))
    rest = {member: topics for member, topics in members.items() if member != leaver}
    left = {member: ones for member, ones in before.items() if member != leaver}
    after = assign_sticky(rest, partitions, left)

    if is_equal and rest:
        assert moved(left, after) == 0
    # A chain hands on one partition a step, and each that is freed begins one chain at most.
    assert moved(left, after) <= len(before[leaver]) * len(members)


def test_the_example_of_three_partitions() -> None:
    """A has three, B comes: two and one; with six, three and three (trap G1)."""
    for count, expected in ((3, [2, 1]), (6, [3, 3])):
        alone = assign_sticky({MEMBERS[0]: {TOPICS[0]}}, {TOPICS[0]: count}, {})
        both = {member: {TOPICS[0]} for member in MEMBERS[:2]}
        after = assign_sticky(both, {TOPICS[0]: count}, alone)

        assert [len(after[member]) for member in MEMBERS[:2]] == expected
        assert after[MEMBERS[0]] < alone[MEMBERS[0]]


def test_a_gift_goes_through_a_third_member() -> None:
    """A reads a, B reads a and b, C reads b: C is relieved of b by B, which relieves A of a."""
    a, b = TOPICS[:2]
    first, second, third = MEMBERS[:3]
    members = {first: {a}, second: {a, b}, third: {b}}
    a_partitions = partitions_of({a: 4})
    before = {first: set(a_partitions), second: partitions_of({b: 2}), third: set[TopicPartition]()}
    after = assign_sticky(members, {a: 4, b: 2}, before)

    assert sorted(map(len, after.values())) == [2, 2, 2]
