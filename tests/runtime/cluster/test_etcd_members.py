"""Nodes join and are removed where an etcd keeps the metadata: it has no voters of ours."""

from collections.abc import Sequence
from random import Random

from goqueue.core.cluster.commands import CreateTopic, RetireNode
from goqueue.core.cluster.node_verbs import REMOVED
from goqueue.core.raft.messages import PeerId
from goqueue.runtime.cluster.consensus import Consensus, StateMachine
from goqueue.runtime.cluster.etcd.consensus import EtcdConsensus, EtcdConsensusConfig
from goqueue.testing.sim.etcd import SimEtcd
from tests.runtime.cluster.control_fleet import FAST, ControlFleet, run_control
from tests.runtime.cluster.test_members import at_work, join, roles


def use_etcd(fleet: ControlFleet) -> None:
    """Let nodes that are started from here on have their metadata in one simulated etcd."""
    etcd = SimEtcd(fleet.simulation.loop, Random(fleet.simulation.chance.getrandbits(64)))

    def make(peer: PeerId, founders: Sequence[PeerId], machine: StateMachine) -> Consensus:
        config = EtcdConsensusConfig(peer=peer, founders=founders)
        return EtcdConsensus(config, etcd.link(str(peer)), machine)

    fleet.maker = make


def test_nodes_join_and_are_removed_on_an_etcd() -> None:
    """Three become five; the controller is removed, and what it was asked goes on without it."""

    async def scenario(fleet: ControlFleet) -> None:
        use_etcd(fleet)
        await at_work(fleet)
        await join(fleet, "d")
        await join(fleet, "e")
        await fleet.until(lambda: list(roles(fleet).values()) == ["voter"] * 5, 60)
        await fleet.all_alive()
        [controller] = fleet.controllers()
        others = [one for one in fleet.places if one != controller]
        await fleet.propose(others[0], RetireNode(node=controller, move_replicas=True))
        left = fleet.node(controller)
        await fleet.until(lambda: left.membership.failure is not None, 120)
        fleet.kill(controller)
        again = fleet.start(controller)
        await fleet.until(lambda: again.failure is not None, 60)

        assert REMOVED in str(again.failure)
        await fleet.propose(others[1], CreateTopic(name="orders", partitions=4))
        image = fleet.node(others[1]).metadata.image
        assert set(image.nodes) == set(others)
        assert set(roles(fleet)) == set(others)

    run_control(scenario, seed=51, timers=FAST)


def test_dead_founders_are_removed_on_an_etcd() -> None:
    """Two of three, one after the other, when others joined; what they held moves away."""

    async def scenario(fleet: ControlFleet) -> None:
        use_etcd(fleet)
        await at_work(fleet)
        for name in ("d", "e"):
            await join(fleet, name, ("c",))
        await fleet.until(lambda: list(roles(fleet).values()) == ["voter"] * 5, 60)
        fleet.kill("a")
        await fleet.all_alive(["b", "c", "d", "e"], seconds=60)
        await fleet.propose("c", RetireNode(node="a", move_replicas=True))
        await fleet.until(lambda: "a" not in fleet.node("c").metadata.image.nodes, 120)
        fleet.kill("b")
        await fleet.all_alive(["c", "d", "e"], seconds=60)
        await fleet.propose("c", RetireNode(node="b", move_replicas=True))
        await fleet.until(lambda: "b" not in fleet.node("c").metadata.image.nodes, 120)

        assert set(roles(fleet)) == {"c", "d", "e"}
        await fleet.agree()

    run_control(scenario, seed=52, timers=FAST)
