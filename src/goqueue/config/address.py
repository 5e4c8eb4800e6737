"""Where to listen or connect, as people write it: ``127.0.0.1:7070``, ``[::1]:7070``, ``:7070``."""

import re
from ipaddress import ip_address
from typing import Final, NamedTuple

PORT_MAX: Final = 65_535
LOCALHOST: Final = "localhost"
_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([\w.-]*)):(\d{1,5})", re.ASCII)


class Address(NamedTuple):
    """A host and a port. An empty host is every interface of this machine."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Return True if only this machine can reach it."""
        return self.host.lower() == LOCALHOST or is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Tell whether this is an address of the loopback; no name is one, whatever it begins with."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def parse_address(text: str) -> Address:
    """Read ``host:port``, or raise ValueError saying what was expected."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[3]) > PORT_MAX:
        raise ValueError(f'{text!r} is not an address; write for example "127.0.0.1:7070"')
    return Address(match[1] or match[2], int(match[3]))
