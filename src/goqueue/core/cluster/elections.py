"""Who leads a partition when its leader is gone, and who is in sync with it.

Shape: calculator. The first replica in sync that is alive leads, in the order of the replicas. If
none is in sync, one of the eligible leaders does as soon as it is alive: those that left when too
few were in sync for anything to be committed since. Only where a topic allows it, and counted as
loss, does a replica lead that may lack committed messages (``unclean``).
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import NamedTuple

from goqueue.base.cluster_limits import CHANGES_PER_EVENT_MAX
from goqueue.base.ids import NodeId, TopicId
from goqueue.core.cluster.events import Event, PartChange, PartitionsChanged
from goqueue.core.cluster.image import ClusterImage, ClusterTopic
from goqueue.core.cluster.records import (
    NONE,
    NodeRecord,
    PartitionRecord,
    Replicas,
    first_of,
    place_of,
)

SHARE_PERCENT = 100


class Departure(Enum):
    """What a node that leaves the sets of replicas in sync still has of the messages."""

    WHOLE = auto()
    """Everything: it stays eligible where nothing is committed without it."""
    UNSYNCED = auto()
    """What was synced: enough where an ack waits for the disk, and nowhere else."""
    WIPED = auto()
    """Nothing: its disk is another one."""


class Rules(NamedTuple):
    """What elections have to know of a topic."""

    min_insync: int
    is_fsync: bool
    is_unclean: bool


class Standing(NamedTuple):
    """The leader and the sets of a partition as they are to be."""

    isr: int
    leader: int
    elr: int
    is_unclean: bool = False


class Electorate:
    """The nodes that may lead, as bits of each set of replicas; worked out once for each."""

    def __init__(
        self,
        nodes: Mapping[NodeId, NodeRecord],
        *,
        without: NodeId | None = None,
        plus: NodeId | None = None,
    ) -> None:
        self._alive = {one.id for one in nodes.values() if (one.may_lead or one.id == plus)} - {
            without
        }
        self._unfenced = self._alive | (
            {one.id for one in nodes.values() if not one.is_fenced} - {without}
        )
        self._bits: dict[Replicas, tuple[int, int]] = {}

    def of(self, replicas: Replicas) -> tuple[int, int]:
        """Return the bits of those that may lead, and of those that may if no other can."""
        found = self._bits.get(replicas)
        if found is None:
            alive = unfenced = 0
            for place, node in enumerate(replicas):
                alive |= (node in self._alive) << place
                unfenced |= (node in self._unfenced) << place
            found = self._bits[replicas] = (alive, unfenced)
        return found


class Changes:
    """Changes of partitions on their way into events."""

    def __init__(self) -> None:
        self.rows: list[PartChange] = []
        self.unclean: list[tuple[int, int]] = []

    def add(
        self, topic_id: TopicId, number: int, record: PartitionRecord, standing: Standing
    ) -> None:
        """Note that a partition changes."""
        isr, leader, elr, is_unclean = standing
        self.rows.append(
            (
                topic_id,
                number,
                isr,
                leader,
                record.leader_epoch + (leader != record.leader),
                record.partition_epoch + 1,
                elr,
                last_leader(record, leader),
            )
        )
        if is_unclean:
            self.unclean.append((topic_id, number))

    def events(self) -> Iterator[Event]:
        """Return the changes as events of a bounded size."""
        unclean = set(self.unclean)
        for start in range(0, len(self.rows), CHANGES_PER_EVENT_MAX):
            rows = self.rows[start : start + CHANGES_PER_EVENT_MAX]
            lost = [(row[0], row[1]) for row in rows if (row[0], row[1]) in unclean]
            yield PartitionsChanged(changes=rows, unclean=lost)


def last_leader(record: PartitionRecord, leader: int) -> int:
    """Return the leader to remember: the last one, while there is none."""
    if leader != NONE:
        return NONE
    return record.last if record.leader == NONE else record.leader


def rules_of(image: ClusterImage, topic: ClusterTopic) -> Rules:
    """Return what elections have to know of a topic."""
    return Rules(
        topic.replication.min_insync_replicas,
        image.catalog.topics[topic.name].settings.is_fsync,
        topic.replication.unclean_leader_election,
    )


def still_eligible(isr: int, elr: int, min_insync: int) -> int:
    """Return which replicas remain eligible: none once enough are in sync to commit."""
    return 0 if isr.bit_count() >= min_insync else elr & ~isr


def stand(
    record: PartitionRecord, isr: int, elr: int, *, electorate: Electorate, rules: Rules
) -> Standing:
    """Return the leader for such sets, and the sets under this leader."""
    alive, unfenced = electorate.of(record.replicas)
    if isr:
        leader = record.leader
        if leader == NONE or not isr >> leader & 1 or not unfenced >> leader & 1:
            leader = first_of(isr & alive)
            leader = first_of(isr & unfenced) if leader == NONE else leader
        return Standing(isr, leader, still_eligible(isr, elr, rules.min_insync))
    leader = first_of(elr & alive)
    if leader != NONE:
        return Standing(1 << leader, leader, still_eligible(1 << leader, elr, rules.min_insync))
    leader = _unclean_leader(record, alive, rules)
    if leader != NONE:
        return Standing(1 << leader, leader, 0, is_unclean=True)
    return Standing(0, NONE, elr)


def _unclean_leader(record: PartitionRecord, alive: int, rules: Rules) -> int:
    """Return a leader that may lack messages, if the topic puts up with that.

    A topic whose acks do not wait for the disk has accepted what a power cut takes, so its last
    leader may lead again. Replicas that are only being added have next to nothing, and never do.
    """
    last = record.last if record.leader == NONE else record.leader
    if last != NONE and alive >> last & 1 and (rules.is_unclean or not rules.is_fsync):
        return last
    return first_of(alive & ~record.adding) if rules.is_unclean else NONE


def depart(image: ClusterImage, node: NodeId, departure: Departure) -> Changes:
    """Take a node out of every set of replicas in sync; others lead where it led."""
    changes = Changes()
    electorate = Electorate(image.nodes, without=node)
    bits = {
        replicas: 1 << place
        for replicas in image.replica_sets
        if (place := place_of(replicas, node)) != NONE
    }
    # Thousands of partitions stand alike, and are judged once.
    judged: dict[tuple[Rules, Replicas, int, int, int, int, int], Standing] = {}
    for topic in image.topics.values():
        rules = rules_of(image, topic)
        is_eligible = departure is Departure.WHOLE or (
            departure is Departure.UNSYNCED and rules.is_fsync
        )
        for number, record in enumerate(topic.partitions):
            bit = bits.get(record.replicas, 0)
            if not bit & (record.isr if is_eligible else record.isr | record.elr):
                continue
            key = (
                rules,
                record.replicas,
                record.isr,
                record.leader,
                record.elr,
                record.last,
                record.adding,
            )
            standing = judged.get(key)
            if standing is None:
                isr = record.isr & ~bit
                elr = record.elr | bit if is_eligible else record.elr & ~bit
                standing = stand(record, isr, elr, electorate=electorate, rules=rules)
                judged[key] = standing
            changes.add(topic.id, number, record, standing)
    return forget_last(image, node, changes) if departure is Departure.WIPED else changes


def forget_last(image: ClusterImage, node: NodeId, changes: Changes) -> Changes:
    """Let a node whose disk is empty be the last leader of nothing."""
    noted = {(row[0], row[1]): place for place, row in enumerate(changes.rows)}
    for topic in image.topics.values():
        for number, record in enumerate(topic.partitions):
            key = (int(topic.id), number)
            row = changes.rows[noted[key]] if key in noted else None
            last = record.last if row is None else row[7]
            if last == NONE or record.replicas[last] != node:
                continue
            if row is None:
                changes.add(topic.id, number, record, Standing(record.isr, NONE, record.elr))
                row = changes.rows[-1]
                noted[key] = len(changes.rows) - 1
            changes.rows[noted[key]] = (*row[:7], NONE)
    return changes


def hand_over(image: ClusterImage, node: NodeId) -> tuple[Changes, int]:
    """Give what a node leads to others in sync; return the changes and how many must stay."""
    changes = Changes()
    electorate = Electorate(image.nodes, without=node)
    stuck = 0
    for topic, number, record in partitions_of(image):
        if record.leader_id != node:
            continue
        alive, _ = electorate.of(record.replicas)
        leader = first_of(record.isr & alive)
        if leader == NONE:
            stuck += 1
        else:
            changes.add(topic.id, number, record, Standing(record.isr, leader, record.elr))
    return changes, stuck


def elect_missing(
    image: ClusterImage, *, plus: NodeId | None = None, topics: Iterable[ClusterTopic] | None = None
) -> Changes:
    """Elect leaders where there are none and a node may lead; ``plus`` counts as alive."""
    changes = Changes()
    electorate = Electorate(image.nodes, plus=plus)
    for topic in image.topics.values() if topics is None else topics:
        rules = rules_of(image, topic)
        for number, record in enumerate(topic.partitions):
            if record.leader != NONE:
                continue
            standing = stand(record, record.isr, record.elr, electorate=electorate, rules=rules)
            if standing.leader != NONE:
                changes.add(topic.id, number, record, standing)
    return changes


def off_preferred(image: ClusterImage) -> Iterator[tuple[ClusterTopic, int, PartitionRecord]]:
    """Yield the partitions whose preferred leader could lead and does not."""
    electorate = Electorate(image.nodes)
    for topic, number, record in partitions_of(image):
        if record.leader != 0 and record.isr & 1 and electorate.of(record.replicas)[0] & 1:
            yield topic, number, record


def prefer(record: PartitionRecord) -> Standing:
    """Return how a partition stands when its first replica leads."""
    assert record.isr & 1, "the preferred leader is in sync"
    return Standing(record.isr, 0, record.elr)


def partitions_of(image: ClusterImage) -> Iterator[tuple[ClusterTopic, int, PartitionRecord]]:
    """Yield every partition, with its topic and number."""
    for topic in image.topics.values():
        for number, record in enumerate(topic.partitions):
            yield topic, number, record
