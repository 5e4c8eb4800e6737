"""The settings of TLS together, and the files they name: tried before a broker starts."""

import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from goqueue.config.model import BrokerConfig
from goqueue.config.tls import TlsFiles, read_bounded, tls_files
from goqueue.config.tls_settings import NO_CLIENT_AUTH

GROUP_OR_OTHERS: Final = 0o077
_FILES: Final = ("cert_file", "key_file", "ca_file", "crl_file")


def tls_problems(config: BrokerConfig) -> Iterator[str]:
    """Yield what is wrong with the settings of TLS or with its files."""
    named = {name: getattr(config, f"tls_{name}") for name in _FILES}
    if not config.tls_enabled:
        yield from _in_vain(config, named)
        return
    count = 0
    for problem in _contradictions(config, named):
        count += 1
        yield problem
    for name, text in named.items():
        if text:
            for problem in _file_problems(name, Path(text)):
                count += 1
                yield problem
    files = tls_files(config)
    if not count and files is not None and not config.tls_self_signed:
        yield from _use_problems(files)


def _in_vain(config: BrokerConfig, named: dict[str, str]) -> Iterator[str]:
    asked = [name for name, text in named.items() if text]
    asked += ["client_auth"] if config.tls_client_auth != NO_CLIENT_AUTH else []
    asked += ["self_signed"] if config.tls_self_signed else []
    if asked:
        names = ", ".join(f"tls.{name}" for name in asked)
        verb = "is" if len(asked) == 1 else "are"
        yield f"{names} {verb} set, but tls.enabled is false: listeners would speak in the clear"


def _contradictions(config: BrokerConfig, named: dict[str, str]) -> Iterator[str]:
    if config.tls_self_signed:
        if named["cert_file"] or named["key_file"]:
            yield "tls.self_signed: makes a certificate; leave tls.cert_file and tls.key_file out"
    elif not (named["cert_file"] and named["key_file"]):
        yield (
            "tls.enabled: needs tls.cert_file and tls.key_file, or tls.self_signed for development"
        )
    if config.tls_client_auth != NO_CLIENT_AUTH and not named["ca_file"]:
        yield (
            f"tls.client_auth: {config.tls_client_auth} needs tls.ca_file, the authorities whose"
            " certificates of clients are believed"
        )
    if named["crl_file"] and not named["ca_file"]:
        yield "tls.crl_file: needs tls.ca_file"
    if config.cluster_enabled and not named["ca_file"]:
        yield "tls.enabled: the nodes of a cluster need tls.ca_file to believe one another"


def _file_problems(name: str, path: Path) -> Iterator[str]:
    try:
        read_bounded(path)
        mode = path.stat().st_mode
    except OSError as error:
        yield f"tls.{name}: {path} cannot be read: {error.strerror}"
        return
    except ValueError as error:
        yield f"tls.{name}: {error}"
        return
    if name == "key_file" and os.name == "posix" and mode & GROUP_OR_OTHERS:
        yield f"tls.key_file: {path} can be read by others; chmod 600 {path}"


def _use_problems(files: TlsFiles) -> Iterator[str]:
    try:
        files.server_context("goqueue/1")
    except (OSError, ValueError) as error:
        yield f"tls.cert_file: {explain(error)}"


def explain(error: Exception) -> str:
    """Return what is wrong with certificates or keys, in words."""
    if not isinstance(error, ssl.SSLError):
        return str(error)
    known = {
        "KEY_VALUES_MISMATCH": "the private key is not that of the certificate",
        "NO_START_LINE": "there is no PEM certificate or key in a file",
        "CERTIFICATE_OR_CRL_NOT_FOUND": "there is no PEM certificate in a file",
        "NO_CERTIFICATE_OR_CRL_FOUND": "there is no PEM certificate in a file",
        "EE_KEY_TOO_SMALL": "the key of the certificate is too small",
    }
    # What OpenSSL refuses without a reason is a file that has nothing of the kind.
    reason = str(error.reason or "NO_START_LINE")
    return known.get(reason, f"certificates cannot be used: {reason}")
