"""Stories with three nodes, on virtual time."""

from collections.abc import Awaitable, Callable

from goqueue.testing.sim.simulation import Simulation
from tests.client.cluster.fleet import Fleet

Story = Callable[[Fleet], Awaitable[None]]


def in_fleet(story: Story, *, seed: int = 1) -> None:
    """Run a story with three nodes."""

    async def main(simulation: Simulation) -> None:
        del simulation
        fleet = Fleet()
        await fleet.start()
        try:
            await story(fleet)
        finally:
            await fleet.stop()

    Simulation(seed).run(main)
