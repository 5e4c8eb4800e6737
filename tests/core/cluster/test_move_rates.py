"""How fast what moves is copied between each pair of nodes."""

from goqueue.base.ids import NodeId, PartitionId, TopicName, TopicPartition
from goqueue.core.cluster import commands
from goqueue.core.cluster.move_rates import copies_of
from goqueue.core.cluster.rebalance import evacuate
from tests.core.cluster.world import World, founded

RATE = 1_000


def moving(world: World, *moves: tuple[int, list[str]]) -> str:
    """Begin to move partitions of ``orders``; return the id of the reassignment."""
    parts = [commands.PartMove(topic="orders", partition=part, new=new) for part, new in moves]
    command = commands.StartReassignment(parts=parts, throttle_bytes=RATE)
    return world.propose(command).id  # type: ignore[union-attr]


def placed(world: World, *replicas: list[str]) -> None:
    """Make the topic ``orders`` with its replicas on these nodes."""
    assignments = dict(enumerate(replicas))
    world.propose(
        commands.CreateTopic(name="orders", partitions=len(replicas), assignments=assignments)
    )


def place(number: int) -> TopicPartition:
    return TopicPartition(TopicName("orders"), PartitionId(number))


def test_neither_end_takes_more_than_the_throttle() -> None:
    """One that sends to two halves its rate, and so does one that receives from two."""
    world = founded("a", "b", "c", "d")
    placed(world, ["a"], ["b"])
    moving(world, (0, ["c", "d"]), (1, ["c"]))
    first, second = copies_of(world.image, NodeId("a")), copies_of(world.image, NodeId("b"))

    assert first.rates == {"c": RATE // 2, "d": RATE // 2}
    assert second.rates == {"c": RATE // 2}
    assert first.sent == {place(0): {"c", "d"}}
    assert second.sent == {place(1): {"c"}}
    assert not copies_of(world.image, NodeId("c")).sent


def test_what_is_paused_is_not_copied_and_takes_no_share() -> None:
    """Only the nodes that would receive it wait."""
    world = founded("a", "b", "c", "d")
    placed(world, ["a"], ["b"])
    paused = moving(world, (0, ["c"]))
    moving(world, (1, ["c"]))
    world.propose(commands.PauseReassignment(id=paused))

    assert copies_of(world.image, NodeId("c")).paused == {place(0)}
    assert not copies_of(world.image, NodeId("a")).sent
    assert copies_of(world.image, NodeId("b")).rates == {"c": RATE}
    world.propose(commands.ResumeReassignment(id=paused))
    assert not copies_of(world.image, NodeId("c")).paused
    assert copies_of(world.image, NodeId("b")).rates == {"c": RATE // 2}


def test_a_node_is_emptied_and_nothing_else_is_touched() -> None:
    """What no other node can take is counted, and the rest is in the plan."""
    world = founded("a", "b", "c")
    placed(world, ["a", "b"], ["b", "c"])
    world.propose(commands.CreateTopic(name="all", partitions=1))
    plan = evacuate(world.image, NodeId("a"))

    assert [(one.topic, one.new) for one in plan.moves] == [("orders", ("c", "b"))]
    assert plan.stuck == 1
    assert plan.is_whole
    world.propose(commands.StartReassignment(parts=[one.command() for one in plan.moves]))
