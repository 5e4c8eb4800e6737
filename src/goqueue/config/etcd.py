"""Which etcd a cluster uses, as it is written in ``cluster.quorum``.

    etcd://a:2379,b:2379,c:2379/prefix?tls=true&ca_file=/etc/etcd/ca.pem&user=goqueue&password_file=/run/secret

A password is in a file or in a variable of the environment, never in the text: the text is shown by
``goqueue config`` and in lists of processes.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

from goqueue.base.cluster_limits import (
    ETCD_ENDPOINTS_MAX,
    ETCD_PASSWORD_BYTES_MAX,
    ETCD_PREFIX_CHARACTERS_MAX,
    ETCD_URL_CHARACTERS_MAX,
)
from goqueue.base.errors import InvalidConfigError
from goqueue.config.address import Address, parse_address

SCHEME: Final = "etcd://"
PREFIX: Final = "goqueue"
PORT: Final = 2379
LEASE_SECONDS_MIN: Final = 1
LEASE_SECONDS: Final = 2
LEASE_SECONDS_MAX: Final = 60
USER_CHARACTERS_MAX: Final = 200
_EXAMPLE: Final = '"etcd://a:2379,b:2379,c:2379"'
_OPTIONS: Final = (
    "tls", "ca_file", "cert_file", "key_file", "user", "password_file", "password_env", "lease_s",
)  # fmt: skip
_BOOLEANS: Final = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdTls:
    """How the members of an etcd are recognized, and this node by them."""

    ca_file: Path | None = None
    """Whose certificates are believed; without it those that the system believes."""
    cert_file: Path | None = None
    key_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdConfig:
    """An etcd and the place of one cluster in it."""

    endpoints: tuple[Address, ...]
    """Its members, tried in turn."""
    prefix: str = PREFIX
    """Every key of the cluster begins with it."""
    tls: EtcdTls | None = None
    user: str = ""
    """Without one etcd is asked without a name."""
    password: str = field(default="", repr=False)
    lease_s: int = LEASE_SECONDS
    """After so long without a word of the leader another node leads; etcd may make it longer."""


def is_etcd_url(text: str) -> bool:
    """Return True if the setting names an etcd, well or badly."""
    return text.startswith(SCHEME)


def parse_etcd_url(text: str, *, environment: Mapping[str, str] | None = None) -> EtcdConfig:
    """Read the setting and the password it points to, or raise InvalidConfigError."""
    if len(text) > ETCD_URL_CHARACTERS_MAX:
        raise _invalid(f"it has more than {ETCD_URL_CHARACTERS_MAX} characters")
    if not is_etcd_url(text):
        raise _invalid(f"it begins with {SCHEME}, for example {_EXAMPLE}")
    if "@" in text:
        raise _invalid("write ?user=NAME&password_file=PATH instead of a name before an @")
    place, _, query = text.removeprefix(SCHEME).partition("?")
    hosts, _, prefix = place.partition("/")
    options = _options(query)
    endpoints = _endpoints(hosts)
    tls = _tls(options)
    user, password = _login(options, environment or {})
    if user and tls is None and not all(endpoint.is_loopback for endpoint in endpoints):
        raise _invalid("a password travels in the clear without tls=true")
    return EtcdConfig(
        endpoints=endpoints,
        prefix=_prefix(unquote(prefix)),
        tls=tls,
        user=user,
        password=password,
        lease_s=_lease(options.get("lease_s", str(LEASE_SECONDS))),
    )


def _invalid(reason: str) -> InvalidConfigError:
    return InvalidConfigError(f"cluster.quorum: {reason}")


def _endpoints(hosts: str) -> tuple[Address, ...]:
    names = hosts.split(",")
    if len(names) > ETCD_ENDPOINTS_MAX:
        raise _invalid(f"it names more than {ETCD_ENDPOINTS_MAX} endpoints")
    found = tuple(_endpoint(name) for name in names)
    if len(set(found)) < len(found):
        raise _invalid("it names an endpoint twice")
    return found


def _endpoint(name: str) -> Address:
    has_port = ":" in name.rpartition("]")[2]
    try:
        address = parse_address(name if has_port else f"{name}:{PORT}")
    except ValueError as error:
        raise _invalid(f"{error}; all of it, for example {_EXAMPLE}") from None
    if not address.host or not address.port:
        raise _invalid(f"the endpoint {name!r} needs a host and a port")
    return address


def _prefix(text: str) -> str:
    prefix = text.strip("/") or PREFIX
    if len(prefix) > ETCD_PREFIX_CHARACTERS_MAX:
        raise _invalid(f"its prefix has more than {ETCD_PREFIX_CHARACTERS_MAX} characters")
    if not _PREFIX.fullmatch(prefix):
        raise _invalid("its prefix has letters, digits, '.', '_', '-' and '/' between them")
    return prefix


def _options(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise _invalid("behind the ? it has NAME=VALUE, joined by &") from None
    options = dict(pairs)
    unknown = sorted(set(options) - set(_OPTIONS))
    if "password" in unknown:
        raise _invalid("a password is in password_file=PATH or in password_env=NAME")
    if unknown:
        raise _invalid(f"unknown option {unknown[0]!r}; there are {', '.join(_OPTIONS)}")
    if len(options) < len(pairs):
        raise _invalid("it has an option twice")
    empty = sorted(name for name, value in options.items() if not value)
    if empty:
        raise _invalid(f"the option {empty[0]} has no value")
    return options


def _tls(options: Mapping[str, str]) -> EtcdTls | None:
    given = {
        name: Path(options[name])
        for name in ("ca_file", "cert_file", "key_file")
        if name in options
    }
    default = "true" if given else "false"
    wanted = _BOOLEANS.get(options.get("tls", default).lower())
    if wanted is None:
        raise _invalid("tls is true or false")
    if not wanted:
        if given:
            raise _invalid(f"{next(iter(given))} is of no use with tls=false")
        return None
    if ("cert_file" in given) != ("key_file" in given):
        raise _invalid("cert_file and key_file come together")
    for name, path in given.items():
        if not path.is_file():
            raise _invalid(f"there is no file {path} ({name})")
    return EtcdTls(**given)


def _login(options: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str, str]:
    user = options.get("user", "")
    sources = {name: read for name, read in _PASSWORDS.items() if name in options}
    if bool(user) != (len(sources) == 1):
        raise _invalid("user comes with one of password_file and password_env")
    if len(user) > USER_CHARACTERS_MAX:
        raise _invalid(f"its user has more than {USER_CHARACTERS_MAX} characters")
    if not user:
        return "", ""
    name, read = next(iter(sources.items()))
    password = read(options[name], environment)
    if not password:
        raise _invalid(f"{name} gives an empty password")
    return user, password


def _from_file(path: str, _: Mapping[str, str]) -> str:
    try:
        with Path(path).open("rb") as file:
            raw = file.read(ETCD_PASSWORD_BYTES_MAX + 1)
        text = raw.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise _invalid(f"password_file {path} cannot be read: {reason}") from None
    if len(raw) > ETCD_PASSWORD_BYTES_MAX:
        raise _invalid(f"password_file {path} is larger than {ETCD_PASSWORD_BYTES_MAX} bytes")
    return text.rstrip("\r\n")


def _from_environment(name: str, environment: Mapping[str, str]) -> str:
    if name not in environment:
        raise _invalid(f"there is no variable {name} in the environment (password_env)")
    return environment[name]


_PASSWORDS: Final[Mapping[str, Callable[[str, Mapping[str, str]], str]]] = {
    "password_file": _from_file,
    "password_env": _from_environment,
}


def _lease(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 3:  # noqa: PLR2004
        raise _invalid("lease_s is a number of seconds")
    seconds = int(text)
    if not LEASE_SECONDS_MIN <= seconds <= LEASE_SECONDS_MAX:
        raise _invalid(f"lease_s is between {LEASE_SECONDS_MIN} and {LEASE_SECONDS_MAX} seconds")
    return seconds
