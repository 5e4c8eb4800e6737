"""What goes wrong in a simulated world, chosen by its seed."""

import asyncio
from collections.abc import Callable
from random import Random

from goqueue.base.errors import GoQueueError
from goqueue.testing.sim import Simulation
from goqueue.testing.sim.broker import SimBroker
from tests.sim.workload import Consumer

JUMPS_S = (30, 3_600, 86_400)


class Chaos:
    """Breaks things, one after the other, and mends them in the end."""

    def __init__(
        self, simulation: Simulation, broker: SimBroker, consumers: list[Consumer]
    ) -> None:
        self._simulation = simulation
        self._broker = broker
        self._consumers = consumers
        self._chance = Random(simulation.chance.getrandbits(64))
        self._skew_max_s = 0.0
        self.done: list[str] = []

    async def run(self, faults: int) -> None:
        """Let some faults happen, with some time between them."""
        kinds: list[Callable[[], object]] = [
            self._kill,
            self._cut_power,
            self._restart,
            self._reset_connections,
            self._slow_network,
            self._block_network,
            self._slow_disk,
            self._full_disk,
            self._fail_sync,
            self._jump,
            self._move_state,
        ]
        for _ in range(faults):
            await asyncio.sleep(self._chance.choice((0.05, 1.0, 60.0)) * self._chance.random())
            fault = self._chance.choice(kinds)
            self.done.append(fault.__name__.strip("_"))
            self._simulation.trace.note("fault", fault.__name__)
            await fault()  # type: ignore[misc]

    async def start(self) -> None:
        """Start the broker; a disk that does not let it is mended first."""
        for consumer in self._consumers:
            consumer.wall_believed_s = self._simulation.loop.time()
        while not self._broker.is_up:
            try:
                await self._broker.start()
            except GoQueueError as error:
                self._simulation.trace.note("start", error.code)
                self._broker.disk.heal()
                self._broker.disk.make_room()
                await asyncio.sleep(0.1)

    async def mend(self) -> None:
        """Take every fault back; a broker whose disk failed begins a new life."""
        self._simulation.network.slow_down(0)
        self._simulation.slow_down_disks(0)
        self._broker.disk.heal()
        self._broker.disk.make_room()
        self._broker.kill()
        # A wall clock that was set back holds up what was sent before; a start believes it again.
        self._simulation.wall.skew_seconds = self._skew_max_s
        await self.start()

    async def _kill(self) -> None:
        self._broker.kill()
        await asyncio.sleep(self._chance.uniform(0, 1.0))
        await self.start()

    async def _cut_power(self) -> None:
        self._broker.cut_power()
        await asyncio.sleep(self._chance.uniform(0, 1.0))
        await self.start()

    async def _restart(self) -> None:
        await self._broker.stop()
        await self.start()

    async def _reset_connections(self) -> None:
        self._simulation.network.reset_some(self._chance.choice((20, 100)))

    async def _slow_network(self) -> None:
        self._simulation.network.slow_down(self._chance.choice((0.01, 0.2)))
        await asyncio.sleep(1)
        self._simulation.network.slow_down(0)

    async def _block_network(self) -> None:
        self._simulation.network.block(self._chance.choice((0.5, 4)))

    async def _slow_disk(self) -> None:
        self._simulation.slow_down_disks(self._chance.choice((0.05, 0.5)))
        await asyncio.sleep(1)
        self._simulation.slow_down_disks(0)

    async def _full_disk(self) -> None:
        self._broker.disk.fill_up(self._chance.choice((0, 2_000)))
        await asyncio.sleep(self._chance.uniform(0.1, 2))
        self._broker.disk.make_room()

    async def _fail_sync(self) -> None:
        beside = ("state/orders/*",) if self._broker.is_beside else ()
        globs = ("logs/orders/*", "logs/accounts/*", "logs/__*", "*", *beside)
        glob = self._chance.choice(globs)
        self._broker.disk.fail_sync(glob)
        await asyncio.sleep(self._chance.uniform(0.1, 1))
        self._broker.disk.heal()
        if self._chance.getrandbits(1):
            await self._cut_power()
        else:
            await self._kill()

    async def _move_state(self) -> None:
        """Unload some state partitions and load them again, or die in between."""
        known = self._broker.places()
        moved = self._chance.sample(known, self._chance.choice((1, 10, len(known))))
        for place in moved:
            await self._broker.unload(*place)
        await asyncio.sleep(self._chance.choice((0, 0.01, 1.0)))
        if self._chance.randrange(4) == 0:
            await self._kill()
            return
        for place in self._chance.sample(moved, len(moved)):
            await self._broker.load(*place)

    async def _jump(self) -> None:
        jump_s = self._chance.choice(JUMPS_S) * self._chance.choice((1, -1))
        wall = self._simulation.wall
        wall.skew_seconds += jump_s
        self._skew_max_s = max(self._skew_max_s, wall.skew_seconds)
        for consumer in self._consumers:
            consumer.jumped_s = self._simulation.loop.time()
