"""How often wrong credentials were shown, and by which addresses: guessing is slowed.

Shape: calculator. Memory is bounded: of the addresses that are counted, those unheard of for
longest are forgotten first.
"""

from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from goqueue.base.security_limits import ADDRESSES_MAX, ATTEMPTS_MS, LOCKOUT_MS_MIN

SITE_BITS: Final = 64
"""Who has one address of IPv6 has all of its network."""


@dataclass(slots=True)
class _Count:
    failures: int
    since_ms: int
    waits: int = 0
    until_ms: int = 0


class Attempts:
    """Counts failures by address, or by whatever else they have in common."""

    def __init__(self, *, failures_max: int, lockout_ms_max: int) -> None:
        self._failures_max = failures_max
        self._lockout_ms_max = lockout_ms_max
        self._counts: dict[str, _Count] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def wait_ms(self, source: str, *, now_ms: int) -> int:
        """Return how long a source must wait before it is listened to; 0 if it need not."""
        known = self._counts.get(source)
        return 0 if known is None else max(0, known.until_ms - now_ms)

    def failed(self, source: str, *, now_ms: int) -> None:
        """Note a wrong credential."""
        known = self._counts.pop(source, None)
        if known is None or now_ms >= max(known.since_ms, known.until_ms) + ATTEMPTS_MS:
            known = _Count(0, now_ms)
        known.failures += 1
        if known.failures >= self._failures_max:
            wait_ms = min(LOCKOUT_MS_MIN << min(known.waits, 30), self._lockout_ms_max)
            known.waits += 1
            known.until_ms = now_ms + wait_ms
        self._counts[source] = known
        if len(self._counts) > ADDRESSES_MAX:
            del self._counts[next(iter(self._counts))]

    def succeeded(self, source: str) -> None:
        """Forget the failures of a source that has shown a good credential."""
        self._counts.pop(source, None)


def source_of(peer: str) -> str:
    """Return what the failures of an address are counted under: of IPv6 the network of a site."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if not isinstance(address, IPv6Address) or address.ipv4_mapped is not None:
        return str(getattr(address, "ipv4_mapped", None) or address)
    return str(ip_network((int(address), SITE_BITS), strict=False))
