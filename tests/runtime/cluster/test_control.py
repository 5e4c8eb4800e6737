"""Control planes as they should be: founding, failures of every kind, refusals, proposals once."""

import asyncio
from itertools import permutations

import pytest

from goqueue.base.errors import NodeFencedError, NodeRefusedError, TopicExistsError
from goqueue.base.ids import NodeId
from goqueue.core.cluster.commands import AllocateIds, CreateTopic, DeleteTopic
from goqueue.core.cluster.replies import IdsReply
from goqueue.runtime.cluster.internal_topics import INTERNAL_TOPICS
from goqueue.testing.disk import MemoryDisk
from tests.runtime.cluster.control_fleet import FAST, NAMES, ControlFleet, run_control

C = NodeId("c")


async def founded(fleet: ControlFleet) -> None:
    """Start all nodes and wait for the internal topics."""
    for name in fleet.places:
        fleet.start(name)
    await fleet.all_alive()
    await fleet.until(
        lambda: all(len(one.metadata.image.topics) == len(INTERNAL_TOPICS) for one in fleet.running)
    )


def others_of(name: str) -> list[str]:
    return [one for one in NAMES if one != name]


@pytest.mark.parametrize("order", list(permutations(NAMES)))
def test_a_cluster_is_founded_in_any_order_of_starts(order: tuple[str, ...]) -> None:
    """Nodes wait for each other without ending (trap C1), and are one cluster in the end."""

    async def scenario(fleet: ControlFleet) -> None:
        for name in order:
            fleet.start(name)
            await asyncio.sleep(fleet.random.uniform(0, 20))
        await fleet.all_alive(seconds=5)

        await fleet.agree()
        assert len({one.identity.cluster_id for one in fleet.running}) == 1

    run_control(scenario, seed=hash(order) % 1_000)


def test_internal_topics_are_made_with_all_replicas() -> None:
    """Decision of the design: 50, 8 and 1 partitions, on three nodes each."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        image = fleet.node("a").metadata.image
        for name, partitions in INTERNAL_TOPICS.items():
            topic = image.topic(name)
            assert len(topic.partitions) == partitions
            assert all(len(record.isr_ids) == 3 for record in topic.partitions)

    run_control(scenario)


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_controller_is_replaced(seed: int) -> None:
    """The next change is accepted within 4 s; the dead node leads nothing; it comes back."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        [controller] = fleet.controllers()
        fleet.kill(controller)
        began = fleet.simulation.loop.time()
        survivor = others_of(controller)[0]
        await fleet.propose(survivor, CreateTopic(name="t", partitions=3))
        assert fleet.simulation.loop.time() - began < 4

        await fleet.all_alive(others_of(controller), seconds=4)
        image = fleet.node(survivor).metadata.image
        records = [one for topic in image.topics.values() for one in topic.partitions]
        assert all(record.leader_id not in {None, controller} for record in records)
        fleet.start(controller)
        await fleet.all_alive()
        await fleet.agree()

    run_control(scenario, seed=seed)


def test_a_paused_controller_decides_nothing_when_it_returns() -> None:
    """It lost its place meanwhile; what it leads is not answered for, and it comes back."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        [controller] = fleet.controllers()
        fleet.pause(controller, 20)
        survivor = others_of(controller)[0]
        await fleet.propose(survivor, CreateTopic(name="t", partitions=3))
        await fleet.all_alive(others_of(controller), seconds=15)
        await asyncio.sleep(20)
        await fleet.all_alive()

        assert fleet.controllers() != [controller]
        await fleet.agree()

    run_control(scenario, seed=3)


def test_an_isolated_node_fences_itself_before_it_is_replaced() -> None:
    """Its lease is over while it is still alive in the image of the others."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        [controller] = fleet.controllers()
        victim = others_of(controller)[0]
        await fleet.until(lambda: fleet.node(victim).membership.is_live)
        fleet.isolate(victim)
        await fleet.until(lambda: not fleet.node(victim).membership.is_live, 7)
        with pytest.raises(NodeFencedError):
            fleet.node(victim).topology.check_live()
        assert victim in fleet.alive_on(fleet.node(controller))

        await fleet.until(lambda: victim not in fleet.alive_on(fleet.node(controller)), 4)
        fleet.heal(victim)
        await fleet.all_alive(seconds=10)
        await fleet.until(lambda: fleet.node(victim).membership.is_live, 1)

    run_control(scenario, seed=4)


def test_an_isolated_controller_accepts_nothing() -> None:
    """Neither while it is cut off nor afterwards; the others go on without it (trap C5)."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        [controller] = fleet.controllers()
        fleet.isolate(controller)
        host = fleet.places[controller].host
        assert host is not None
        stale = host.begin(
            fleet.node(controller).proposing.propose(CreateTopic(name="lost", partitions=1))
        )
        survivor = others_of(controller)[0]
        await fleet.propose(survivor, CreateTopic(name="kept", partitions=1))
        await asyncio.sleep(12)
        assert stale.done()
        assert stale.exception() is not None
        assert not fleet.node(controller).metadata.leading.is_own
        assert not fleet.node(controller).membership.is_live
        fleet.heal(controller)
        await fleet.all_alive(seconds=10)

        names = {str(one.name) for one in fleet.node(controller).metadata.image.topics.values()}
        assert "kept" in names
        await fleet.agree()

    run_control(scenario, seed=5)


def test_a_wiped_node_is_taken_in_again_without_its_vote() -> None:
    """It is a new replica with another directory, and votes only when it has caught up."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        before = fleet.node("c").identity.directory
        fleet.kill("c")
        fleet.wipe("c")
        fleet.start("c")
        await fleet.all_alive(seconds=30)
        node = fleet.node("c")

        assert node.identity.directory != before
        assert node.identity.cluster_id == fleet.node("a").identity.cluster_id
        await fleet.until(lambda: len(node.quorum.members.voters) == 3, 20)
        await fleet.agree()

    run_control(scenario, seed=6)


def test_a_second_process_under_one_name_is_refused() -> None:
    """A node with another directory and the name of one that is alive ends with a clear word."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        twin = ControlFleet(fleet.simulation, timers=FAST)
        second = twin.start("c", port=7_999)
        await fleet.until(lambda: second.failure is not None, 40)

        assert isinstance(second.failure, NodeRefusedError)
        assert "two nodes cannot have one id" in str(second.failure)
        await fleet.all_alive()

    run_control(scenario, seed=7, timers=FAST)


def test_a_node_of_another_cluster_is_refused() -> None:
    """It keeps its data and ends, saying which cluster it belongs to."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        fleet.kill("c")
        other = ControlFleet(fleet.simulation)
        for number, place in enumerate(other.places.values()):
            place.port = 8_000 + number
        await founded(other)
        for name in other.places:
            other.kill(name)
        fleet.places[C].disk = other.places[C].disk
        stranger = fleet.start("c")
        await fleet.until(lambda: stranger.failure is not None, 40)

        assert isinstance(stranger.failure, NodeRefusedError)
        assert "belongs to the cluster" in str(stranger.failure)
        await fleet.all_alive(["a", "b"])

    run_control(scenario, seed=8)


def test_an_old_copy_of_a_disk_is_refused_for_good() -> None:
    """A restored backup has forgotten votes; it does not start again until it is emptied."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        await fleet.stop("c")
        backup = fleet.places[C]
        copied = copy_of(backup.disk)
        fleet.start("c")
        await fleet.all_alive()
        fleet.kill("c")
        fleet.start("c")
        await fleet.all_alive()
        fleet.kill("c")
        backup.disk = copied
        for _ in range(2):
            old = fleet.start("c")
            await fleet.until(lambda old=old: old.failure is not None, 40)  # type: ignore[misc]
            assert isinstance(old.failure, NodeRefusedError)
            assert "an old copy of it" in str(old.failure)
            fleet.kill("c")
        fleet.wipe("c")
        fleet.start("c")
        await fleet.all_alive()

    run_control(scenario, seed=9)


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    """Return a disk with the same files."""
    made = MemoryDisk()
    made.make_directory("cluster")
    for name in disk.list_directory("cluster"):
        source = disk.open(f"cluster/{name}")
        target = made.open(f"cluster/{name}", create=True)
        target.append([source.read(0, source.size())])  # type: ignore[arg-type]
        target.sync()
    made.sync_directory("cluster")
    return made


def test_peers_that_are_listed_differently_are_refused() -> None:
    """Nodes that count other majorities do not begin together."""

    async def scenario(fleet: ControlFleet) -> None:
        fleet.start("a")
        wrong = fleet.start("b", config=fleet.config("b", ["a", "b"]))
        await fleet.until(lambda: wrong.failure is not None)

        assert isinstance(wrong.failure, NodeRefusedError)
        assert "cluster.peers" in str(wrong.failure)

    run_control(scenario, seed=10)


def test_a_graceful_stop_hands_everything_over_at_once() -> None:
    """The controller leaves: others lead its partitions and the quorum before it is gone."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        [controller] = fleet.controllers()
        began = fleet.simulation.loop.time()
        await fleet.stop(controller)
        assert fleet.simulation.loop.time() - began < 1
        await fleet.until(lambda: len(fleet.controllers()) == 1, 1)
        survivor = others_of(controller)[0]
        image = fleet.node(survivor).metadata.image
        records = [one for topic in image.topics.values() for one in topic.partitions]
        assert all(record.leader_id not in {None, controller} for record in records)
        fleet.start(controller)
        await fleet.all_alive()

        assert fleet.node(controller).identity.was_clean

    run_control(scenario, seed=11)


def test_a_proposal_is_carried_out_once() -> None:
    """Repeated with its request id from any node, over a change of the controller."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        command = AllocateIds(kind="producer")
        first = await fleet.propose("a", command, request_id="r1")
        again = await fleet.propose("b", command, request_id="r1")
        [controller] = fleet.controllers()
        fleet.kill(controller)
        survivor = others_of(controller)[0]
        third = await fleet.propose(survivor, command, request_id="r1")
        other = await fleet.propose(survivor, command)

        assert isinstance(first, IdsReply)
        assert first == again == third
        assert isinstance(other, IdsReply)
        assert other.first != first.first

    run_control(scenario, seed=12)


def test_an_error_of_a_verb_comes_back_with_its_code() -> None:
    """From the controller to whichever node asked."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        await fleet.propose("a", CreateTopic(name="t", partitions=1))
        for name in NAMES:
            with pytest.raises(TopicExistsError):
                await fleet.propose(name, CreateTopic(name="t", partitions=1))
        await fleet.propose("b", DeleteTopic(name="t"))

        await fleet.agree()

    run_control(scenario, seed=13)


def test_a_node_that_proposed_has_applied_it() -> None:
    """What a proposal made is in the image of the node that asked when it returns."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        for number, name in enumerate(NAMES * 3):
            await fleet.propose(name, CreateTopic(name=f"t{number}", partitions=1))

            assert f"t{number}" in fleet.node(name).metadata.image.catalog.topics

    run_control(scenario, seed=14)


def test_power_cut_of_all_nodes_loses_no_decision() -> None:
    """What was answered is there when they are started again, in any order."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        for number in range(5):
            await fleet.propose("a", CreateTopic(name=f"t{number}", partitions=3))
        for name in NAMES:
            fleet.cut_power(name)
        for name in reversed(NAMES):
            fleet.start(name)
        await fleet.all_alive()
        names = {str(one.name) for one in fleet.node("b").metadata.image.topics.values()}

        assert {f"t{number}" for number in range(5)} <= names

    run_control(scenario, seed=15)
