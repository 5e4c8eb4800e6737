"""Replicas on their way to other nodes: grow, catch up, and shrink when all are in sync.

Shape: decider. A partition gets the union of its old and new replicas; the event that brings the
last new one into sync takes the old ones away. Done means in sync, which its leader says (trap
C10). Where a reassignment stands is in the image, so another controller goes on with it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from goqueue.base.cluster_limits import MOVES_MAX, REASSIGNMENTS_MAX
from goqueue.base.errors import InvalidRequestError, OperationActiveError, OverloadedError
from goqueue.base.ids import NodeId, PartitionEpoch, TopicId
from goqueue.core.cluster import commands, events
from goqueue.core.cluster.elections import Electorate, Rules, rules_of, stand
from goqueue.core.cluster.events import Event
from goqueue.core.cluster.image import ClusterImage, ClusterTopic
from goqueue.core.cluster.placement import check_assignment
from goqueue.core.cluster.records import (
    NONE,
    PartitionRecord,
    Reassignment,
    ReplicaMove,
    Replicas,
    bits_of,
    place_of,
)
from goqueue.core.cluster.replies import Done, ReassignmentReply
from goqueue.core.cluster.states import MoveState, ReassignmentState
from goqueue.core.decision import Decision

Verdict = Decision[Event, ReassignmentReply]
Key = tuple[TopicId, int]
replace = msgspec.structs.replace


def open_moves(image: ClusterImage) -> Iterator[ReplicaMove]:
    """Yield the moves that are not over."""
    for topic_id, partition in image.moving:
        move = image.move_of(topic_id, partition)
        assert move is not None, "it is moving"
        yield move


def grown(record: PartitionRecord, new: Replicas) -> PartitionRecord:
    """Return a partition with the union of its replicas and the new ones."""
    replicas = (*record.replicas, *(node for node in new if node not in record.replicas))
    return replace(
        record,
        replicas=replicas,
        partition_epoch=PartitionEpoch(record.partition_epoch + 1),
        adding=bits_of(replicas, set(new) - set(record.replicas)),
        removing=bits_of(replicas, set(record.replicas) - set(new)),
    )


def shrunk(
    record: PartitionRecord, replicas: Replicas, *, electorate: Electorate, rules: Rules
) -> PartitionRecord:
    """Return a partition with some of its replicas only, led by one of them."""
    moved = replace(
        record,
        replicas=replicas,
        isr=bits_of(replicas, record.isr_ids),
        elr=bits_of(replicas, record.elr_ids),
        leader=place_of(replicas, record.leader_id),
        last=place_of(replicas, None if record.last == NONE else record.replicas[record.last]),
        adding=0,
        removing=0,
    )
    standing = stand(moved, moved.isr, moved.elr, electorate=electorate, rules=rules)
    assert not standing.is_unclean, "one that has everything stays"
    leader = None if standing.leader == NONE else replicas[standing.leader]
    has_changed = leader != record.leader_id
    return replace(
        moved,
        isr=standing.isr,
        elr=standing.elr,
        leader=standing.leader,
        last=moved.last if standing.leader == NONE else NONE,
        leader_epoch=record.leader_epoch + has_changed,
        partition_epoch=record.partition_epoch + 1,
    )


def has_arrived(record: PartitionRecord, move: ReplicaMove) -> bool:
    """Return True if all new replicas are in sync."""
    return set(move.new) <= set(record.isr_ids)


def may_revert(record: PartitionRecord, old: Replicas) -> bool:
    """Return True if the old replicas alone have everything that is committed."""
    if record.isr:
        return bool(set(record.isr_ids) & set(old))
    return not record.elr or bool(set(record.elr_ids) & set(old))


def start(image: ClusterImage, command: commands.StartReassignment, now_ms: int) -> Verdict:
    """Note which replicas are to move, and begin with as many as may move at once."""
    if len(image.moving) + len(command.parts) > MOVES_MAX:
        raise OverloadedError(f"{len(image.moving)} partitions are moving; wait for some")
    if sum(one.is_open for one in image.reassignments.values()) >= REASSIGNMENTS_MAX:
        raise OverloadedError(f"{REASSIGNMENTS_MAX} reassignments are running; wait for one")
    moves: dict[Key, ReplicaMove] = {}
    for part in command.parts:
        move = _checked_move(image, part)
        key = (move.topic_id, move.partition)
        if key in moves or key in image.moving:
            raise OperationActiveError(f"{move.topic}/{move.partition} is moving already")
        moves[key] = move
    reassignment = Reassignment(
        number=image.next_reassignment,
        started_ms=now_ms,
        throttle_bytes=command.throttle_bytes,
        timeout_ms=command.timeout_ms,
    )
    begun = events.ReassignmentBegun(reassignment=reassignment, moves=list(moves.values()))
    steps = _begin(image, reassignment, moves.values(), command.moves_per_node, now_ms)
    reply = ReassignmentReply(id=reassignment.id, moves=len(moves))
    states = {(one.topic_id, one.partition): one.state for one in steps}
    return Decision((begun, *steps, *ending(image, reassignment, moves, states, now_ms)), reply)


def _checked_move(image: ClusterImage, part: commands.PartMove) -> ReplicaMove:
    topic = image.topic(part.topic)
    record = image.partition(topic, part.partition)
    new = check_assignment(part.new, image.nodes)
    if part.old and tuple(part.old) != record.replicas:
        raise InvalidRequestError(
            f"old_replicas: {topic.name}/{part.partition} has {', '.join(record.replicas)}"
        )
    if len(new) < topic.replication.min_insync_replicas:
        raise InvalidRequestError(
            f"new_replicas: {topic.name} needs {topic.replication.min_insync_replicas} in sync"
        )
    return ReplicaMove(
        topic_id=topic.id,
        topic=topic.name,
        partition=part.partition,
        old=record.replicas,
        new=new,
    )


def _begin(
    image: ClusterImage,
    reassignment: Reassignment,
    moves: Iterable[ReplicaMove],
    moves_per_node: int,
    now_ms: int,
    busy: Counter[NodeId] | None = None,
) -> list[events.MoveStepped]:
    """Begin moves whose nodes do not receive too many others."""
    steps: list[events.MoveStepped] = []
    electorate = Electorate(image.nodes)
    if busy is None:
        busy = _busy(image)
    for move in moves:
        topic = image.topics[move.topic_id]
        record = topic.partitions[move.partition]
        arriving = [node for node in move.new if node not in record.replicas]
        if any(busy[node] >= moves_per_node for node in arriving):
            continue
        busy.update(arriving)
        has_ended = has_arrived(record, move)
        state = MoveState.COMPLETED if has_ended else MoveState.CATCHING_UP
        after = (
            shrunk(record, move.new, electorate=electorate, rules=rules_of(image, topic))
            if has_ended
            else grown(record, move.new)
        )
        steps.append(_step(reassignment.number, move, state, now_ms, record=after))
    return steps


def _busy(image: ClusterImage) -> Counter[NodeId]:
    """Return how many partitions each node receives now."""
    busy: Counter[NodeId] = Counter()
    for move in open_moves(image):
        if move.state is MoveState.CATCHING_UP:
            busy.update(node for node in move.new if node not in move.old)
    return busy


def _step(
    number: int,
    move: ReplicaMove,
    state: MoveState,
    now_ms: int,
    *,
    record: PartitionRecord | None = None,
    error: str = "",
) -> events.MoveStepped:
    return events.MoveStepped(
        number=number,
        topic_id=move.topic_id,
        partition=move.partition,
        state=state,
        at_ms=now_ms,
        record=record,
        error=error,
    )


def arrive(
    image: ClusterImage, move: ReplicaMove, record: PartitionRecord, now_ms: int
) -> events.MoveStepped:
    """Shrink a partition whose new replicas are all in sync in ``record``."""
    topic = image.topics[move.topic_id]
    after = shrunk(
        record, move.new, electorate=Electorate(image.nodes), rules=rules_of(image, topic)
    )
    number = image.moving[move.topic_id, move.partition]
    # The change that brought them into sync is the same one: it counts once.
    epoch = PartitionEpoch(topic.partitions[move.partition].partition_epoch + 1)
    return _step(
        number,
        move,
        MoveState.COMPLETED,
        now_ms,
        record=replace(after, partition_epoch=epoch),
    )


def ending(
    image: ClusterImage,
    reassignment: Reassignment,
    moves: Mapping[Key, ReplicaMove],
    states: Mapping[Key, MoveState],
    now_ms: int,
) -> list[Event]:
    """Return the end of a reassignment, if these new states leave no move open."""
    after = [replace(move, state=states.get(key, move.state)) for key, move in moves.items()]
    if any(move.is_open for move in after):
        return []
    ended = {move.state for move in after}
    state = ReassignmentState.CANCELED
    if MoveState.FAILED in ended:
        state = ReassignmentState.FAILED
    elif MoveState.COMPLETED in ended:
        state = ReassignmentState.COMPLETED
    turned = events.ReassignmentTurned(number=reassignment.number, state=state, at_ms=now_ms)
    return [*_new_factors(image, after, now_ms), turned]


def _new_factors(image: ClusterImage, moves: Iterable[ReplicaMove], now_ms: int) -> Iterator[Event]:
    """Yield new settings of topics whose partitions now all have another number of replicas."""
    sizes: dict[TopicId, dict[int, int]] = {}
    for move in moves:
        if move.state is MoveState.COMPLETED and move.topic_id in image.topics:
            sizes.setdefault(move.topic_id, {})[move.partition] = len(move.new)
    for topic_id, moved in sizes.items():
        topic = image.topics[topic_id]
        found = {
            moved.get(number, len(record.replicas))
            for number, record in enumerate(topic.partitions)
        }
        if len(found) == 1 and found != {topic.replication.replication_factor}:
            yield events.TopicSet(
                topic_id=topic_id,
                settings=image.catalog.topics[topic.name].settings,
                replication=replace(topic.replication, replication_factor=found.pop()),
                at_ms=now_ms,
            )


def endings(
    image: ClusterImage, steps: Iterable[events.MoveStepped], now_ms: int
) -> Iterator[Event]:
    """Yield the ends of the reassignments that these steps finish."""
    states: dict[int, dict[Key, MoveState]] = {}
    for step in steps:
        states.setdefault(step.number, {})[step.topic_id, step.partition] = step.state
    for number, found in states.items():
        moves = {(one.topic_id, one.partition): one for one in image.moves_of(number)}
        yield from ending(image, image.reassignments[number], moves, found, now_ms)


def advance(
    image: ClusterImage, command: commands.AdvanceMoves, now_ms: int
) -> Decision[Event, Done]:
    """Begin moves that wait, end those that have arrived, take back those that took too long.

    The leader that brings the last new replica into sync ends a move; an election that does so
    leaves it to this.
    """
    steps: list[events.MoveStepped] = []
    busy = _busy(image)
    for reassignment in image.reassignments.values():
        if reassignment.state is not ReassignmentState.IN_PROGRESS:
            continue
        moves = image.moves_of(reassignment.number)
        for move in [one for one in moves if one.state is MoveState.CATCHING_UP]:
            record = image.topics[move.topic_id].partitions[move.partition]
            if has_arrived(record, move):
                steps.append(arrive(image, move, record, now_ms))
            elif now_ms - move.started_ms > reassignment.timeout_ms:
                steps += _revert(
                    image, reassignment.number, move, MoveState.FAILED, now_ms, error="timed out"
                )
        pending = [move for move in moves if move.state is MoveState.PENDING]
        steps += _begin(image, reassignment, pending, command.moves_per_node, now_ms, busy)
    return Decision((*steps, *endings(image, steps, now_ms)), Done(changed=len(steps)))


def _revert(
    image: ClusterImage,
    number: int,
    move: ReplicaMove,
    state: MoveState,
    now_ms: int,
    *,
    error: str = "",
) -> list[events.MoveStepped]:
    """Give a partition its old replicas back, unless only new ones have everything."""
    if move.state is MoveState.PENDING:
        return [_step(number, move, state, now_ms, error=error)]
    topic = image.topics[move.topic_id]
    record = topic.partitions[move.partition]
    if not may_revert(record, move.old):
        return []
    # Going back never elects a leader that lacks messages.
    rules = rules_of(image, topic)._replace(is_fsync=True, is_unclean=False)
    after = shrunk(record, move.old, electorate=Electorate(image.nodes), rules=rules)
    return [_step(number, move, state, now_ms, record=after, error=error)]


def _turn(image: ClusterImage, name: str, state: ReassignmentState, now_ms: int) -> Verdict:
    reassignment = image.reassignment(name)
    left = sum(move.is_open for move in image.moves_of(reassignment.number))
    reply = ReassignmentReply(id=reassignment.id, moves=left)
    if reassignment.state is state:
        return Decision((), reply)
    if not reassignment.is_open:
        raise InvalidRequestError(f"{reassignment.id} is {reassignment.state}")
    turned = events.ReassignmentTurned(number=reassignment.number, state=state, at_ms=now_ms)
    return Decision((turned,), reply)


def pause(image: ClusterImage, command: commands.PauseReassignment, now_ms: int) -> Verdict:
    """Begin no more moves, and copy nothing for those that began."""
    return _turn(image, command.id, ReassignmentState.PAUSED, now_ms)


def resume(image: ClusterImage, command: commands.ResumeReassignment, now_ms: int) -> Verdict:
    """Go on."""
    return _turn(image, command.id, ReassignmentState.IN_PROGRESS, now_ms)


def cancel(image: ClusterImage, command: commands.CancelReassignment, now_ms: int) -> Verdict:
    """Take back what is not finished; what only new replicas have in full goes on."""
    reassignment = image.reassignment(command.id)
    steps: list[events.MoveStepped] = []
    left = [move for move in image.moves_of(reassignment.number) if move.is_open]
    for move in left:
        steps += _revert(image, reassignment.number, move, MoveState.CANCELED, now_ms)
    reply = ReassignmentReply(
        id=reassignment.id, moves=len(left) - len(steps), refused=len(left) - len(steps)
    )
    return Decision((*steps, *endings(image, steps, now_ms)), reply)


def drop_moves(image: ClusterImage, topic: ClusterTopic, now_ms: int) -> list[Event]:
    """End the moves of a topic that is deleted."""
    steps = [
        _step(number, move, MoveState.CANCELED, now_ms, error="the topic was deleted")
        for (topic_id, partition), number in image.moving.items()
        if topic_id == topic.id and (move := image.move_of(topic_id, partition)) is not None
    ]
    return [*steps, *endings(image, steps, now_ms)]


def catchup_percent(
    *, durable_offset: int, high_watermark_start: int, high_watermark: int
) -> float:
    """Return how much of the leader's committed messages a replica has synced.

    Measured against the leader, at the start and now; never against the replica's own log.
    """
    goal = max(high_watermark_start, high_watermark)
    return 100.0 if goal <= 0 else round(100.0 * min(max(durable_offset, 0), goal) / goal, 1)
