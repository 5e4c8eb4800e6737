"""A broker of the simulation: the real one on a memory disk, killed and started again at will."""

from collections.abc import Callable
from random import Random
from typing import Final

from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.base.names import is_internal
from goqueue.config.model import BrokerConfig
from goqueue.runtime.broker import Broker
from goqueue.service.service import Service
from goqueue.testing.disk import MemoryDisk
from goqueue.testing.sim.host import Host
from goqueue.testing.sim.simulation import Simulation
from goqueue.transport.native.server import NativeServer

PORT: Final = 7_070
ADDRESS: Final = f"127.0.0.1:{PORT}"


class SimPool:
    """Threads of the simulation: work is done in the loop, some virtual time later."""

    def __init__(self, simulation: Simulation) -> None:
        self._loop = simulation.loop

    def submit(self, work: Callable[[], None], /) -> object:
        """Run something after as long as a sync takes."""
        return self._loop.call_later(self._loop.work_seconds(), work)

    def shutdown(self) -> None:
        """Return at once: a broker that stops has waited for its syncs."""


class SimBroker:
    """One data directory and the processes that serve it, one after the other."""

    def __init__(
        self,
        simulation: Simulation,
        config: BrokerConfig | None = None,
        *,
        is_beside: bool = False,
    ) -> None:
        self.disk = MemoryDisk()
        self.lives = 0
        """How many processes have served the directory."""
        self._simulation = simulation
        self._config = config or BrokerConfig()
        self.is_beside = is_beside
        """Whether ledgers are kept beside their partitions, as in a cluster."""
        self._host: Host | None = None
        self._broker: Broker | None = None
        self._server: NativeServer | None = None
        self._torn = Random(simulation.chance.getrandbits(64))

    def __repr__(self) -> str:
        return f"<SimBroker in life {self.lives}{'' if self.is_up else ', down'}>"

    @property
    def is_up(self) -> bool:
        """Return True while a process serves."""
        return self._server is not None

    @property
    def broker(self) -> Broker:
        """The broker that runs now."""
        assert self._broker is not None, "started"
        return self._broker

    async def start(self) -> None:
        """Start a process on the disk as it is."""
        assert self._host is None, "one process at a time"
        self.lives += 1
        self._simulation.trace.note("broker", f"starts life {self.lives}")
        self._host = self._simulation.host(f"broker-{self.lives}")
        try:
            await self._host.run(self._serve())
        except BaseException:
            self.kill()
            raise

    async def stop(self) -> None:
        """Stop the process cleanly."""
        assert self._host is not None, "started"
        self._simulation.trace.note("broker", "stops")
        await self._host.run(self._end())
        self.kill()

    def places(self) -> list[tuple[str, int]]:
        """Return all whose state comes and goes: state partitions, and those it lies beside."""
        found = self.broker.coordinators.partitions()
        for name, topic in sorted(self.broker.topics.items()) if self.is_beside else ():
            if not is_internal(name):
                found += [(name, number) for number in range(len(topic.partitions))]
        return found

    async def unload(self, topic: str, partition: int) -> None:
        """Take the state of a partition from the process."""
        assert self._host is not None, "started"
        place = TopicPartition(TopicName(topic), PartitionId(partition))
        await self._host.run(self.broker.coordinators.lose(place))

    async def load(self, topic: str, partition: int) -> None:
        """Give the state of a partition to the process again."""
        assert self._host is not None, "started"
        place = TopicPartition(TopicName(topic), PartitionId(partition))
        await self._host.run(self.broker.coordinators.gain(place))

    def kill(self) -> None:
        """Kill the process; what it wrote stays in the system's cache."""
        self._end_process("is killed")
        self.disk = self.disk.kill()

    def cut_power(self) -> None:
        """Let the machine lose power: what was not synced is gone, or torn."""
        self._end_process("loses power")
        self.disk = self.disk.crash(torn=self._torn)

    def _end_process(self, how: str) -> None:
        assert self._host is not None, "started"
        self._simulation.trace.note("broker", how)
        self._host.kill()
        self._host = self._broker = self._server = None

    async def _serve(self) -> None:
        pool = SimPool(self._simulation)
        broker = Broker(self._config, self.disk, sync_pool=pool, is_beside=self.is_beside)
        await broker.start()
        server = NativeServer(Service(broker))
        await server.start(ADDRESS)
        self._broker, self._server = broker, server

    async def _end(self) -> None:
        assert self._server is not None, "started"
        self.broker.end_waits()
        await self._server.stop()
        await self.broker.stop()
