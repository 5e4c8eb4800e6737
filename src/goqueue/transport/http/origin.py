"""Whom a request is for, and which page made a browser send it.

A browser sends requests to any address that a page names. Two things keep pages of strangers away:
a name that is not one of this broker's (a stranger's name that suddenly means 127.0.0.1, DNS
rebinding) is answered 421, and what changes something is refused when another origin asks for it.
"""

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from goqueue.transport.http.exchange import Headers

LOCALHOST: Final = "localhost"
KNOWN_MAX: Final = 1_000
"""So many values of the header are remembered, so that they are not read again each time."""

SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
_OWN_SITES: Final = frozenset({b"same-origin", b"none"})
"""Values of ``Sec-Fetch-Site`` for our own pages and for addresses that a person typed."""

_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:@/\\ ]+)(?::\d{0,5})?", re.ASCII)


class Hosts:
    """The names this broker is known by. An address is no name: no stranger can own it."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset({LOCALHOST, *(name.lower() for name in names)})
        self._known: set[bytes] = {b""}
        """Values of the header that were found to be right."""

    def __repr__(self) -> str:
        return f"<Hosts {', '.join(sorted(self._names))}>"

    def has(self, value: bytes | None) -> bool:
        """Return True if a ``Host`` header, absent or with a port or without one, means us."""
        if value is None or value in self._known:
            return True
        match = _HOST.fullmatch(value.decode("latin-1").lower())
        if match is None or not self._is_ours(match[1]):
            return False
        if len(self._known) < KNOWN_MAX:
            self._known.add(value)
        return True

    def _is_ours(self, host: str) -> bool:
        if host.removesuffix(".") in self._names:
            return True
        try:
            ip_address(host.strip("[]"))
        except ValueError:
            return False
        return True


def is_forged(headers: Headers) -> bool:
    """Return True if a browser was made to send this by a page that is not of this broker."""
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site not in _OWN_SITES
    origin = headers.get(b"origin")
    if origin is None:
        # No browser sends a request that changes something without either header.
        return False
    _, mark, authority = origin.partition(b"://")
    return not mark or authority.lower() != headers.get(b"host", b"").lower()
