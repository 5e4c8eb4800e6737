"""How connections to a broker are made: every connection of a client is made alike."""

from dataclasses import dataclass, field, replace
from ipaddress import ip_address

from goqueue.base.errors import InvalidRequestError
from goqueue.client.tls import TlsOptions, options_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial:
    """What a client's connections have in common."""

    timeout_s: float = 30.0
    """Bounds connecting and each call."""
    api_key: str | None = field(default=None, repr=False)
    """What the broker is shown to be let in."""
    tls: TlsOptions | None = None
    """How TLS is spoken; None for connections in the clear."""
    insecure: bool = False
    """Show the key also where others on the way could read it."""

    def within(self, timeout_s: float) -> "Dial":
        """Return the same with another bound."""
        return replace(self, timeout_s=timeout_s)

    def check_secrecy(self, peer: str, own: str) -> None:
        """Refuse to show a key in the clear to another machine."""
        if self.api_key is None or self.tls is not None or self.insecure:
            return
        if peer != own and not ip_address(peer.partition("%")[0]).is_loopback:
            raise InvalidRequestError(
                f"the key would travel in the clear to {peer}; connect with TLS (tls=True or"
                " goqueues://), or with insecure=True"
            )


def dial_of(
    address: str,
    *,
    timeout_s: float,
    api_key: str | None,
    tls: bool | TlsOptions | None,
    insecure: bool,
) -> Dial:
    """Return how to connect, as it was asked for by a user of the SDK."""
    options = options_of(address, tls=tls)
    return Dial(timeout_s=timeout_s, api_key=api_key, tls=options, insecure=insecure)
