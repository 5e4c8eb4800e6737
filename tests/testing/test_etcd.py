"""The etcd in memory behaves like a real one, as far as a cluster relies on it."""

from collections.abc import Awaitable, Callable
from random import Random

from goqueue.runtime.cluster.etcd.api import Etcd
from goqueue.testing.sim.etcd import SimEtcd
from goqueue.testing.sim.simulation import Simulation
from tests.runtime.cluster.etcd.etcd_contract import Compact, EtcdContract


class TestSimEtcd(EtcdContract):
    """With a network that does no harm."""

    def run(self, scenario: Callable[[Etcd, Compact], Awaitable[None]]) -> None:
        async def main(simulation: Simulation) -> None:
            etcd = SimEtcd(simulation.loop, Random(simulation.chance.getrandbits(64)))

            async def compact(revision: int) -> None:
                etcd.model.compact(revision)

            await scenario(etcd.link("node"), compact)

        simulation = Simulation(1)
        simulation.run(main)
        assert not simulation.failures
