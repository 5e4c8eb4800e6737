"""The sticky assignor: as even as the subscriptions allow, with as few moves as can be.

Shape: calculator. Members keep what they have; what nobody has goes to whoever has least; then
partitions wander from the heavy to the light. One may reach the other through third members: A
hands a partition to B, and B one of another topic to C, which does not read A's. A pass ends when
no such chain makes two members more even; with equal subscriptions they differ by one at most.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from goqueue.base.ids import MemberId, PartitionId, TopicName, TopicPartition

_Pile = dict[MemberId | None, list[int]]


def assign_sticky(
    members: Mapping[MemberId, AbstractSet[TopicName]],
    partitions: Mapping[TopicName, int],
    current: Mapping[MemberId, AbstractSet[TopicPartition]],
) -> dict[MemberId, set[TopicPartition]]:
    """Return who shall own what, near to who owns what now."""
    held: dict[TopicName, dict[MemberId, set[int]]] = {}
    for member, owned in current.items():
        for one in owned:
            held.setdefault(one.topic, {}).setdefault(member, set()).add(one.partition)
    balance = _Balance(members)
    # All is kept before anything is given: only then is it known who has least.
    free = {
        topic: balance.keep(topic, partitions[topic], held.get(topic, {}))
        for topic in sorted(partitions)
    }
    # Topics with few readers first: the others still have a choice afterwards.
    for topic in sorted(free, key=balance.count_readers):
        balance.give(topic, free[topic])
    balance.level()
    return {member: set(balance.owned_by(member)) for member in members}


class _Balance:
    """An assignment being made even. Ties go to the smaller member id, so it is deterministic."""

    def __init__(self, members: Mapping[MemberId, AbstractSet[TopicName]]) -> None:
        self._members = sorted(members)
        self._readers: dict[TopicName, list[MemberId]] = {}
        for member in self._members:
            for topic in members[member]:
                self._readers.setdefault(topic, []).append(member)
        self._load = dict.fromkeys(self._members, 0)
        # By member, topic and who had them before: nobody, itself or another.
        self._piles: dict[MemberId, dict[TopicName, _Pile]] = {m: {} for m in self._members}

    def owned_by(self, member: MemberId) -> Iterable[TopicPartition]:
        """Yield what a member owns."""
        for topic, pile in self._piles[member].items():
            for numbers in pile.values():
                for number in numbers:
                    yield TopicPartition(topic, PartitionId(number))

    def count_readers(self, topic: TopicName) -> int:
        """Return how many members a topic's partitions may go to."""
        return len(self._readers.get(topic, ()))

    def keep(
        self, topic: TopicName, count: int, held: Mapping[MemberId, AbstractSet[int]]
    ) -> list[int]:
        """Leave a topic's partitions with their owners; return those that have none."""
        free = set(range(count))
        for member in self._readers.get(topic, ()):
            mine = free.intersection(held.get(member, ()))
            if mine:
                free -= mine
                self._piles[member][topic] = {member: sorted(mine)}
                self._load[member] += len(mine)
        return sorted(free)

    def give(self, topic: TopicName, numbers: Iterable[int]) -> None:
        """Give partitions of a topic to those of its readers that have least."""
        heap = [(self._load[member], member) for member in self._readers.get(topic, ())]
        if not heap:
            return
        heapq.heapify(heap)
        for number in numbers:
            load, member = heap[0]
            self._piles[member].setdefault(topic, {}).setdefault(None, []).append(number)
            self._load[member] = load + 1
            heapq.heapreplace(heap, (load + 1, member))

    def level(self) -> None:
        """Let partitions wander until nobody can be relieved."""
        settled: set[MemberId] = set()
        heavy = [(-load, member) for member, load in self._load.items()]
        heapq.heapify(heavy)
        while heavy:
            load, member = heapq.heappop(heavy)
            if member in settled or -load != self._load[member]:
                continue
            path = self._find_relief(member, settled)
            for giver, (topic, taker) in path:
                self._move(topic, giver, taker)
            if path:
                taker = path[-1][1][1]
                heapq.heappush(heavy, (-self._load[member], member))
                heapq.heappush(heavy, (-self._load[taker], taker))

    def _find_relief(
        self, start: MemberId, settled: set[MemberId]
    ) -> list[tuple[MemberId, tuple[TopicName, MemberId]]]:
        """Return the shortest chain of gifts to the lightest member that is two lighter or more.

        Where there is none, nobody who can be reached from here can be relieved either: a chain
        from a lighter one of them would be a chain from here. So they are all settled.
        """
        came_from: dict[MemberId, tuple[MemberId, TopicName]] = {}
        seen = {start}
        topics_seen: set[TopicName] = set()
        queue = deque([start])
        while queue:
            giver = queue.popleft()
            for topic in sorted(self._piles[giver].keys() - topics_seen):
                topics_seen.add(topic)
                reached = [one for one in self._readers[topic] if one not in seen]
                seen.update(reached)
                queue.extend(reached)
                came_from |= dict.fromkeys(reached, (giver, topic))
                light = min(reached, key=self._load.__getitem__, default=start)
                if self._load[light] <= self._load[start] - 2:
                    return _chain(start, light, came_from)
        settled |= seen
        return []

    def _move(self, topic: TopicName, giver: MemberId, taker: MemberId) -> None:
        """Hand one partition on, rather home than away, rather one that would move anyway."""
        pile = self._piles[giver][topic]
        strangers = (owner for owner in pile if owner != giver)
        owner = taker if taker in pile else next(strangers, giver)
        number = pile[owner].pop()
        if not pile[owner]:
            del pile[owner]
        if not pile:
            del self._piles[giver][topic]
        self._piles[taker].setdefault(topic, {}).setdefault(owner, []).append(number)
        self._load[giver] -= 1
        self._load[taker] += 1


def _chain(
    start: MemberId, end: MemberId, came_from: Mapping[MemberId, tuple[MemberId, TopicName]]
) -> list[tuple[MemberId, tuple[TopicName, MemberId]]]:
    """Return the gifts that lead from start to end, in this order."""
    gifts: list[tuple[MemberId, tuple[TopicName, MemberId]]] = []
    taker = end
    while taker != start:
        giver, topic = came_from[taker]
        gifts.append((giver, (topic, taker)))
        taker = giver
    return gifts[::-1]
