"""The caller of a request."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

ANONYMOUS: Final = "anonymous"
BY_CERTIFICATE: Final = "cert:"
"""What the name of a caller begins with that is known by its certificate."""


class Transport(StrEnum):
    """How a request reaches the broker."""

    NATIVE = "native"
    HTTP = "http"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The identity behind a connection, and where the connection comes from."""

    transport: Transport
    peer: str
    """The IP address at the other end; empty where there is no connection."""
    principal: str = ANONYMOUS
    tenant: str | None = None
    credential: str = ""
    """What it was known by: a key's id and the beginning of its digest; empty without one."""
    roles: tuple[str, ...] = ()
    """Roles and groups that the credential itself vouches for, as a token does."""
    expires_ms: int = 0
    """When the credential ends by itself, where no directory knows it; 0 for never."""
    deadline_ms: int | None = None
    """Steady time after which no answer is awaited; None where the caller named none."""
    connection: int = 0
    """The number of a connection whose end is reported; 0 where there is none."""

    @property
    def is_by_certificate(self) -> bool:
        """Return True if the caller is known by the certificate of its connection only."""
        return self.credential.startswith(BY_CERTIFICATE)


EMBEDDED: Final = Caller(transport=Transport.EMBEDDED, peer="", principal="embedded")
"""A program that opened the data directory itself."""

BROKER: Final = Caller(transport=Transport.EMBEDDED, peer="", principal="broker")
"""The broker itself: for its own reads and writes, which no client requested."""


def caller_at(transport: Transport, address: object) -> Caller:
    """Return who is at the other end of a socket, given its ``peername``."""
    peer = address[0] if isinstance(address, tuple) and address else ""
    return Caller(transport=transport, peer=str(peer))
