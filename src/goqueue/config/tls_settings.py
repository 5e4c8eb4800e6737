"""What an operator may set about TLS."""

from functools import partial
from typing import Final

from goqueue.base.units import HOUR_MS, SECOND_MS, format_duration_ms
from goqueue.config.readers import (
    Setting,
    Value,
    read_duration,
    read_flag,
    read_one_of,
    read_text,
)

NO_CLIENT_AUTH: Final = "none"
OPTIONAL_CLIENT_AUTH: Final = frozenset({"request", "verify"})
REQUIRED_CLIENT_AUTH: Final = frozenset({"require", "require-verify"})
_CLIENT_AUTH: Final = (NO_CLIENT_AUTH, "request", "require", "verify", "require-verify")
_VERSIONS: Final = ("1.2", "1.3")


def _read_file(value: object) -> str:
    return "" if value is None or value == "" else read_text(value)


def _read_flag(value: object) -> Value:
    return False if value is None or value == "" else read_flag(value)


def _show_file(value: object) -> str:
    return str(value) or "none"


def _show_flag(value: object) -> str:
    return str(bool(value)).lower()


def _read_version(value: object) -> Value:
    return read_one_of(_VERSIONS, str(value) if isinstance(value, float) else value)


def _file(name: str, meaning: str) -> Setting:
    return Setting(
        field=f"tls_{name}",
        key=f"tls.{name}",
        environment=f"GOQUEUE_TLS_{name.upper()}",
        flag=None,
        meaning=meaning,
        read=_read_file,
        show=_show_file,
    )


def _flag(name: str, meaning: str) -> Setting:
    return Setting(
        field=f"tls_{name}",
        key=f"tls.{name}",
        environment=f"GOQUEUE_TLS_{name.upper()}",
        flag=None,
        meaning=meaning,
        read=_read_flag,
        show=_show_flag,
    )


TLS_SETTINGS: Final = (
    _flag("enabled", "whether every listener speaks TLS: true or false"),
    _file("cert_file", "PEM file with the broker's certificate, and those between it and a CA"),
    _file("key_file", "PEM file with the private key of the certificate; for its owner only"),
    _file("ca_file", "PEM file with the authorities whose certificates of clients are believed"),
    _file("crl_file", "PEM file with certificates of clients that were withdrawn"),
    Setting(
        field="tls_client_auth",
        key="tls.client_auth",
        environment="GOQUEUE_TLS_CLIENT_AUTH",
        flag=None,
        meaning="certificates of clients: none, request or verify (checked if there is one),"
        " require or require-verify (needed)",
        read=partial(read_one_of, _CLIENT_AUTH),
    ),
    Setting(
        field="tls_min_version",
        key="tls.min_version",
        environment="GOQUEUE_TLS_MIN_VERSION",
        flag=None,
        meaning="oldest version of TLS that is spoken: 1.2 or 1.3",
        read=_read_version,
    ),
    _flag(
        "self_signed", "make a certificate for this machine in the data directory: for development"
    ),
    _flag("behind_proxy", "whether a proxy ends TLS before the listeners that are not on loopback"),
    Setting(
        field="tls_reload_interval_ms",
        key="tls.reload_interval",
        environment="GOQUEUE_TLS_RELOAD_INTERVAL",
        flag=None,
        meaning="how often the files are looked at for new certificates",
        read=read_duration(SECOND_MS, 24 * HOUR_MS),
        show=format_duration_ms,
    ),
)
