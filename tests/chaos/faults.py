"""What goes wrong with real nodes, chosen from a seed.

A fault is done to a node, held for a while and undone. ``PLAN`` says how often each kind comes.
"""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.chaos.nodes import Fleet

Deed = Callable[[Fleet, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of fault."""

    name: str
    begin: Deed
    end: Deed
    holds_s: tuple[float, ...]
    """How long it may last."""
    weight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of a plan."""

    kind: Kind
    victim: str
    """A node, or the role it has when the fault begins: ``leader`` or ``controller``."""
    hold_s: float

    def __str__(self) -> str:
        return f"{self.kind.name} of {self.victim} for {self.hold_s} s"


def _kill(fleet: Fleet, name: str) -> None:
    fleet.nodes[name].end(signal.SIGKILL)


def _kill_all(fleet: Fleet, _: str) -> None:
    for node in fleet.nodes.values():
        node.signal(signal.SIGKILL)
    for node in fleet.nodes.values():
        node.end(signal.SIGKILL)


def _start_all(fleet: Fleet, _: str) -> None:
    for name in fleet.names:
        fleet.start(name)


def _stop(fleet: Fleet, name: str) -> None:
    code = fleet.nodes[name].end(signal.SIGTERM)
    assert code == 0, f"{name} ended with {code}"


def _cut_off(fleet: Fleet, name: str) -> None:
    """Part a node from the others; clients reach all of them."""
    for other in fleet.names:
        if other != name:
            fleet.network.cut(name, other)
            fleet.network.cut(other, name)


def _cut_one_way(fleet: Fleet, name: str) -> None:
    for other in fleet.names:
        if other != name:
            fleet.network.cut(name, other)


def _restart(fleet: Fleet, name: str) -> None:
    """A node whose disk failed is started again, on a mended one."""
    fleet.nodes[name].leave_alone()
    fleet.nodes[name].end(signal.SIGKILL)
    fleet.start(name)


def _heal(fleet: Fleet, _: str) -> None:
    fleet.network.heal()


SHORT: Final = (0.2, 1.0, 4.0)
LONG: Final = (1.0, 3.0, 8.0)

KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind(name="kill", begin=_kill, end=Fleet.start, holds_s=SHORT, weight=6),
        Kind(name="kill-all", begin=_kill_all, end=_start_all, holds_s=(0.1, 1.0)),
        Kind(name="stop", begin=_stop, end=Fleet.start, holds_s=SHORT, weight=2),
        Kind(
            name="pause",
            begin=lambda fleet, name: fleet.nodes[name].signal(signal.SIGSTOP),
            end=lambda fleet, name: fleet.nodes[name].signal(signal.SIGCONT),
            holds_s=(*LONG, 20.0),
            weight=3,
        ),
        Kind(
            name="unplug",
            begin=lambda fleet, name: fleet.network.unplug(name),
            end=_heal,
            holds_s=LONG,
            weight=2,
        ),
        Kind(name="cut-off", begin=_cut_off, end=_heal, holds_s=LONG, weight=2),
        Kind(name="cut-one-way", begin=_cut_one_way, end=_heal, holds_s=LONG),
        Kind(
            name="mute",
            begin=lambda fleet, name: fleet.network.mute(name),
            end=_heal,
            holds_s=LONG,
        ),
        Kind(
            name="deafen",
            begin=lambda fleet, name: fleet.network.deafen(name),
            end=_heal,
            holds_s=LONG,
        ),
        Kind(
            name="slow-net",
            begin=lambda fleet, name: fleet.network.slow(name),
            end=_heal,
            holds_s=LONG,
        ),
        Kind(
            name="slow-disk",
            begin=lambda fleet, name: fleet.nodes[name].inject("fdatasync:delay_enter=200000"),
            end=lambda fleet, name: fleet.nodes[name].leave_alone(),
            holds_s=LONG,
        ),
        Kind(
            name="fail-disk",
            begin=lambda fleet, name: fleet.nodes[name].inject("fdatasync:error=EIO"),
            end=_restart,
            holds_s=LONG,
        ),
        Kind(
            name="full-disk",
            begin=lambda fleet, name: fleet.nodes[name].fill_disk(),
            end=lambda fleet, name: fleet.nodes[name].make_room(),
            holds_s=LONG,
        ),
    )
}
ON_SMALL_DISK: Final = "n3"
"""The node whose disk can be filled."""


def plan(seed: int, count: int, *, kinds: Sequence[str], names: Sequence[str]) -> list[Fault]:
    """Return so many faults; the same for the same seed."""
    random = Random(seed)
    chosen = [KINDS[name] for name in kinds]
    weights = [kind.weight for kind in chosen]
    found: list[Fault] = []
    for _ in range(count):
        kind = random.choices(chosen, weights)[0]
        victim = random.choice([*names, "leader", "controller"])
        if kind.name == "full-disk":
            victim = ON_SMALL_DISK
        found.append(Fault(kind=kind, victim=victim, hold_s=random.choice(kind.holds_s)))
    return found
