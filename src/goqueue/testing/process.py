"""The processes that use a memory disk, and their sudden deaths."""

import itertools
from typing import Literal, NamedTuple

from goqueue.testing.device import Device
from goqueue.testing.platter import Platter

Kind = Literal[
    "create", "append", "truncate", "sync", "rename", "remove", "make_directory", "sync_directory"
]


class CrashError(BaseException):
    """The process is dead. No ``except Exception`` of the broker may believe that it lives."""


class Operation(NamedTuple):
    """One step after which a crash leaves something else than before."""

    kind: Kind
    path: str


class Machine:
    """What the processes on one computer share."""

    def __init__(self, platter: Platter) -> None:
        self.platter = platter
        self.device = Device()
        self.lock_holder: Process | None = None
        self.pids = itertools.count(1)


class Process:
    """One life of the broker: it counts its operations and dies at one of them."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.pid = next(machine.pids)
        self.log: list[Operation] = []
        self.fail_at = 0
        self._is_dead = False
        self._power_cuts = machine.platter.power_cuts

    def is_alive(self) -> bool:
        """Return True if neither the process was killed nor the power cut."""
        return not self._is_dead and self._power_cuts == self.machine.platter.power_cuts

    def check_alive(self) -> None:
        """Raise CrashError in a dead process."""
        if not self.is_alive():
            raise CrashError(f"process {self.pid} is dead")

    def perform(self, kind: Kind, path: str) -> None:
        """Count an operation that is about to happen, or die before it does."""
        self.check_alive()
        self.log.append(Operation(kind, path))
        if len(self.log) == self.fail_at:
            self.die()
            raise CrashError(f"crash at operation {self.fail_at}: {kind} {path}")

    def die(self) -> None:
        """Stop here; the system takes the lock back."""
        self._is_dead = True
        if self.machine.lock_holder is self:
            self.machine.lock_holder = None
