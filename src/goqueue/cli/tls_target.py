"""How commands speak TLS: what a context, the environment and the address of a broker say of it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from goqueue.cli.failure import Failure

if TYPE_CHECKING:
    from goqueue.client.tls import TlsOptions

SECURE_SCHEME: Final = "goqueues://"
PREFIX: Final = "GOQUEUE_CLIENT_TLS_"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsTarget:
    """The files and names of TLS to one broker; empty where the defaults do."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    pin: str = ""
    server_name: str = ""

    def __bool__(self) -> bool:
        """Return True if anything is given: that asks for TLS."""
        return any(getattr(self, one.name) for one in fields(self))

    def plain(self) -> dict[str, str]:
        """Return what is given, under the names of the file of contexts."""
        given = {one.name.replace("_", "-"): getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in given.items() if value}

    def over(self, other: "TlsTarget") -> "TlsTarget":
        """Return this, completed by another."""
        names = [one.name for one in fields(self)]
        return TlsTarget(**{name: getattr(self, name) or getattr(other, name) for name in names})

    def spark_options(self) -> dict[str, str]:
        """Return the options of the Spark connector."""
        given = {"tlsServerName": self.server_name, "tlsCa": self.ca, "tlsPin": self.pin}
        given |= {"tlsCert": self.cert, "tlsKey": self.key}
        return {"tls": "true"} | {name: value for name, value in given.items() if value}

    def options(self) -> "TlsOptions":
        """Return the options of a client."""
        # The client brings Arrow along, which commands that ask no broker do not need.
        from goqueue.client.tls import TlsOptions  # noqa: PLC0415

        return TlsOptions(
            ca=self.ca,
            cert=self.cert,
            key=self.key,
            pin=self.pin,
            server_name=self.server_name,
        )


def tls_of_environment(environment: Mapping[str, str]) -> TlsTarget:
    """Return what the variables ``GOQUEUE_CLIENT_TLS_*`` say."""
    names = [one.name for one in fields(TlsTarget)]
    return TlsTarget(**{name: environment.get(f"{PREFIX}{name.upper()}", "") for name in names})


def tls_of_context(name: str, content: object) -> TlsTarget:
    """Read the section ``tls`` of a context."""
    if content is None:
        return TlsTarget()
    known = {one.name.replace("_", "-"): one.name for one in fields(TlsTarget)}
    if not isinstance(content, dict) or not set(content) <= set(known):
        raise Failure(
            f"tls of context {name!r} must be a section with {', '.join(known)}",
            code="invalid_config",
        )
    return TlsTarget(**{known[key]: str(value) for key, value in content.items()})


def is_secure(server: str) -> bool:
    """Return True if an address asks for TLS."""
    return SECURE_SCHEME in server
