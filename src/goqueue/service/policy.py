"""Who may do what.

A policy is asked by the gate alone. What it does not allow is refused: there is no
default that lets a request pass.
"""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from goqueue.base.caller import Caller, Transport
from goqueue.base.deeds import Deed


class Policy(Protocol):
    """Decides about requests."""

    def allows(self, caller: Caller, deed: Deed, names: tuple[str, ...]) -> bool:
        """Return True if the caller may do this to resources of these names.

        Without a name the request is about a resource that only its execution finds, or about all
        of a kind. A policy by names must not take that for permission on everything. Raises
        where it is not known who asks.
        """
        ...


class LoopbackPolicy:
    """Allows everything to programs on this machine, and nothing to anybody else."""

    def allows(self, caller: Caller, deed: Deed, names: tuple[str, ...]) -> bool:
        """Return True if the request comes from this machine."""
        del deed, names
        return caller.transport is Transport.EMBEDDED or is_own_machine(caller.peer)


@lru_cache(maxsize=1_000)
def is_own_machine(peer: str) -> bool:
    """Return True if an address is one of the loopback."""
    try:
        # A link-local address of IPv6 may have a zone behind a percent sign.
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
