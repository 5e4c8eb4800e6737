"""Whole brokers and their clients in one thread, on virtual time, from a seed.

    simulation = Simulation(seed=7)
    simulation.run(main)

Nothing sleeps: when every task waits, the clock jumps to the next timer. Time, chance, network and
disk all follow from the seed, so the same seed gives the same trace, byte for byte.
"""

from goqueue.testing.sim.host import Host
from goqueue.testing.sim.loop import SimLoop, StuckError
from goqueue.testing.sim.network import SimNetwork
from goqueue.testing.sim.simulation import Simulation

__all__ = ["Host", "SimLoop", "SimNetwork", "Simulation", "StuckError"]
