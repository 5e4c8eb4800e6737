"""Network namespaces for the nodes, joined by a bridge, and what goes wrong between them.

Everything is made within the network namespace of this process (``inside.py``), so it is gone when
the process ends. Addresses are of the loopback's range, which brokers without keys serve: the
kernel is told to carry them over cables.

    this process: 127.77.0.254 -- bridge -- n1: 127.77.0.1, n2: 127.77.0.2, n3: 127.77.0.3
"""

import subprocess
from collections.abc import Sequence
from typing import Final

PREFIX: Final = "127.77.0."
BRIDGE: Final = "br0"
_NOTHING_FITS: Final = ("bfifo", "limit", "1")
"""A queue of one byte loses every packet."""


class Network:
    """A namespace and a cable for each node."""

    def __init__(self, names: Sequence[str]) -> None:
        self.address = {name: f"{PREFIX}{row}" for row, name in enumerate(names, start=1)}
        _carry_loopback([])
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "link", "set", BRIDGE, "up")
        _run("sysctl", "-qw", f"net.ipv4.conf.{BRIDGE}.route_localnet=1")
        _run("ip", "addr", "add", f"{PREFIX}254/24", "dev", BRIDGE)
        for name, address in self.address.items():
            _run("ip", "netns", "add", name)
            _carry_loopback(within(name))
            _run("ip", "link", "add", f"v-{name}", "type", "veth",
                 "peer", "name", "eth0", "netns", name)  # fmt: skip
            _run("ip", "link", "set", f"v-{name}", "master", BRIDGE, "up")
            _run(*within(name), "ip", "link", "set", "eth0", "up")
            _run(*within(name), "sysctl", "-qw", "net.ipv4.conf.eth0.route_localnet=1")
            _run(*within(name), "ip", "addr", "add", f"{address}/24", "dev", "eth0")

    def unplug(self, name: str) -> None:
        """Take the cable of a node out: nothing goes in or out."""
        _run("ip", "link", "set", f"v-{name}", "down")

    def cut(self, source: str, target: str) -> None:
        """Throw away what one node sends to another; the other way stays."""
        route = f"{self.address[target]}/32"
        _run(*within(source), "ip", "route", "replace", "blackhole", route)

    def mute(self, name: str) -> None:
        """Throw away what a node sends to anybody; it hears everything."""
        _run(*within(name), *_queue("eth0"), *_NOTHING_FITS)

    def deafen(self, name: str) -> None:
        """Throw away what anybody sends to a node; it is heard by all."""
        _run(*_queue(f"v-{name}"), *_NOTHING_FITS)

    def slow(self, name: str) -> None:
        """Delay what a node sends by 50 ms and lose one packet of a hundred.

        Where the kernel lacks netem: a thin cable, which delays and loses what it cannot carry.
        """
        command = (*within(name), *_queue("eth0"))
        if not _try(*command, "netem", "delay", "50ms", "10ms", "loss", "1%"):
            _run(*command, "tbf", "rate", "1mbit", "burst", "10kb", "latency", "50ms")

    def heal(self) -> None:
        """Plug everything in again."""
        for name in self.address:
            _run("ip", "link", "set", f"v-{name}", "up")
            for other in self.address.values():
                _try(*within(name), "ip", "route", "del", "blackhole", f"{other}/32")
            _try(*within(name), "tc", "qdisc", "del", "dev", "eth0", "root")
            _try("tc", "qdisc", "del", "dev", f"v-{name}", "root")


def within(name: str) -> list[str]:
    """Return what a command begins with that runs in the namespace of a node."""
    return ["ip", "netns", "exec", name]


def _carry_loopback(where: list[str]) -> None:
    _run(*where, "ip", "link", "set", "lo", "up")
    for interface in ("all", "default", "lo"):
        _run(*where, "sysctl", "-qw", f"net.ipv4.conf.{interface}.route_localnet=1")
    _run(*where, "ip", "route", "del", "local", "127.0.0.0/8", "dev", "lo", "table", "local")
    _try(*where, "ip", "route", "add", "local", "127.0.0.1", "dev", "lo", "table", "local")


def _queue(interface: str) -> tuple[str, ...]:
    return ("tc", "qdisc", "replace", "dev", interface, "root")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"


def _try(*command: str) -> bool:
    """Run what may fail: there is nothing to be undone, or the kernel cannot do it."""
    done = subprocess.run(command, capture_output=True, check=False, timeout=30)
    return done.returncode == 0
