"""Consumers that die, lose their connections or are heard no more, and the grace they have."""

import asyncio
from collections.abc import Callable
from typing import Final

from goqueue.base.ids import GroupId
from goqueue.testing.sim.host import Host
from tests.sim.chaos import Chaos
from tests.sim.scenario import GROUPS, Scenario
from tests.sim.workload import Consumer, Publisher

DEATHS = 8
MOMENT_S = 0.2
"""What the simulated network and disk need for a few requests."""
SESSION_S = 60
"""Longer than every grace: what ends first can be told apart."""

_KILLED: Final[list[object]] = []
"""Tasks of processes that were killed. They are kept: a coroutine that is collected runs its
``finally`` blocks, which a process that is killed never does."""


class Reaper(Chaos):
    """Kills consumers and their connections; the broker lives."""

    scenario: "DyingScenario"

    async def run(self, faults: int) -> None:
        """Let consumers die in every way, one after the other."""
        kinds: list[Callable[[Consumer], object]] = [
            self._kill_worker,
            self._kill_worker,
            self._vanish,
            self._reset_worker,
            self._reset_worker,
            self._deafen_broker,
            self._restart_broker,
        ]
        # Everybody is a member before the first fault, and before every other.
        await asyncio.sleep(5)
        for _ in range(faults):
            await asyncio.sleep(self._chance.choice((0.01, 1.0, 5.0)) * self._chance.random())
            fault = self._chance.choice(kinds)
            self.done.append(fault.__name__.strip("_"))
            self._simulation.trace.note("fault", fault.__name__)
            await fault(self._chance.choice(self._consumers))  # type: ignore[misc]
            await asyncio.sleep(5)

    async def mend(self) -> None:
        """Leave the broker as it is: a restart would heal what a death left behind."""

    def _is_member(self, worker: Consumer, member_id: str) -> bool:
        return member_id in self._broker.broker.groups.get(GroupId(worker.group)).members

    async def _kill_worker(self, worker: Consumer) -> None:
        """The system ends the connections of a process that is killed."""
        member_id, grace_s = worker.member_id, self.scenario.grace_s
        was_member = self._is_member(worker, member_id)
        self.scenario.kill(worker)
        if grace_s:
            await asyncio.sleep(grace_s - MOMENT_S)
            if was_member and not self._is_member(worker, member_id):
                self.scenario.history.fault(f"{member_id} was removed before its grace was over")
        await asyncio.sleep(2 * MOMENT_S)
        if self._is_member(worker, member_id):
            self.scenario.history.fault(f"{member_id} is dead and a member {grace_s} s later")

    async def _vanish(self, worker: Consumer) -> None:
        """A machine without power says nothing: only the session ends its membership."""
        member_id = worker.member_id
        was_member = self._is_member(worker, member_id)
        dead = self.scenario.host_of(worker)
        ends = self._simulation.network.mute(dead, hears=False)
        self.scenario.kill(worker)
        await asyncio.sleep(SESSION_S / 2)
        if was_member and not self._is_member(worker, member_id):
            self.scenario.history.fault(f"{member_id} was removed with its connection open")
        await asyncio.sleep(SESSION_S / 2 + 2)
        if self._is_member(worker, member_id):
            self.scenario.history.fault(f"{member_id} is silent and a member")
        for end in ends:
            if end.owner is not dead:
                end.lose()

    async def _reset_worker(self, worker: Consumer) -> None:
        """A consumer that comes back in time is the same member."""
        member_id = worker.member_id
        was_member = self._is_member(worker, member_id)
        self._simulation.network.reset_process(self.scenario.host_of(worker))
        await asyncio.sleep(self.scenario.grace_s + MOMENT_S)
        if self.scenario.grace_s and was_member and not self._is_member(worker, member_id):
            self.scenario.history.fault(f"{member_id} came back in time and was removed")

    async def _deafen_broker(self, worker: Consumer) -> None:
        """A proxy loses what a consumer sends, and forwards what it is sent."""
        ends = self._simulation.network.mute(self.scenario.host_of(worker), hears=True)
        await asyncio.sleep(self._chance.choice((5, SESSION_S + 5)))
        for end in ends:
            end.is_mute = False
            end.abort()

    async def _restart_broker(self, _: Consumer) -> None:
        """A broker that ends connections itself removes nobody."""
        before = {worker: worker.member_id for worker in self._consumers}
        are_members = {one for one, name in before.items() if self._is_member(one, name)}
        await self._broker.stop()
        await asyncio.sleep(self.scenario.grace_s + MOMENT_S)
        await self.start()
        for worker in are_members:
            if not self._is_member(worker, before[worker]):
                self.scenario.history.fault(f"{before[worker]} was removed by a restart")


class DyingScenario(Scenario):
    """Groups of every kind whose members are processes of their own."""

    def __init__(self, seed: int, *, grace_s: int, deaths: int = DEATHS) -> None:
        super().__init__(seed, faults=deaths)
        self.grace_s = grace_s
        self._groups = [*GROUPS]
        self._hosts: dict[Consumer, Host] = {}
        self._consumers = [self._worker(group, n) for group in GROUPS for n in range(2)]
        self._publishers = [Publisher("p1", self.history, self.simulation.chance)]
        self._billers = []
        reaper = Reaper(self.simulation, self._broker, self._consumers)
        reaper.scenario = self
        self.chaos = reaper

    def _worker(self, group: str, number: int) -> Consumer:
        options = {**GROUPS[group], "disconnect_grace": self.grace_s, "session_timeout": SESSION_S}
        name = f"{group}-{number}"
        return Consumer(name, self.history, self.simulation.chance, group, options)

    def host_of(self, worker: Consumer) -> Host:
        """Return the process of a consumer."""
        return self._hosts[worker]

    def kill(self, worker: Consumer) -> None:
        """Kill a consumer; another one takes its place in the group."""
        self.host_of(worker).kill()
        _KILLED.extend(task for one, task in self._takers if one is worker)
        self._takers = [(one, task) for one, task in self._takers if one is not worker]
        successor = self._worker(worker.group, self._consumers.index(worker) % 2)
        self._consumers[self._consumers.index(worker)] = successor
        self._begin(successor)

    def _begin(self, worker: Consumer) -> None:
        host = self.simulation.host(worker.name)
        task = host.begin(worker.run())
        self._hosts[worker] = host
        self._takers.append((worker, task))

    def _begin_taking(self, host: Host) -> None:
        del host
        for worker in self._consumers:
            self._begin(worker)
