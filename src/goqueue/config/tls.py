"""TLS contexts of a broker, from the files that its settings name."""

import hashlib
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from goqueue.base.units import MiB
from goqueue.config.model import BrokerConfig
from goqueue.config.tls_settings import NO_CLIENT_AUTH, REQUIRED_CLIENT_AUTH

FILE_BYTES_MAX: Final = 1 * MiB
"""Largest file with certificates: a bundle of all public authorities has a quarter of it."""

SELF_SIGNED_FOLDER: Final = "tls"
VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The files of a broker's TLS, and what is asked of clients."""

    cert: Path
    key: Path
    ca: Path | None
    crl: Path | None
    client_auth: str
    min_version: str

    def digest(self) -> bytes:
        """Return what changes with the content of any file, or raise OSError or ValueError."""
        found = hashlib.sha256()
        for path in (self.cert, self.key, self.ca, self.crl):
            content = b"" if path is None else read_bounded(path)
            found.update(len(content).to_bytes(8) + content)
        return found.digest()

    def server_context(self, protocol: str) -> ssl.SSLContext:
        """Return a context for a listener of an ALPN protocol, or raise OSError or ValueError."""
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols([protocol])
        # Python's ssl checks every certificate that it asks for.
        if self.client_auth == NO_CLIENT_AUTH:
            context.verify_mode = ssl.CERT_NONE
        elif self.client_auth in REQUIRED_CLIENT_AUTH:
            context.verify_mode = ssl.CERT_REQUIRED
        else:
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def peer_contexts(self, protocol: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """Return contexts for the port between nodes, accepting and dialling: both sides prove."""
        accepting = self._context(ssl.PROTOCOL_TLS_SERVER)
        accepting.verify_mode = ssl.CERT_REQUIRED
        dialling = self._context(ssl.PROTOCOL_TLS_CLIENT)
        for context in (accepting, dialling):
            context.set_alpn_protocols([protocol])
        return accepting, dialling

    def _context(self, kind: int) -> ssl.SSLContext:
        context = ssl.SSLContext(kind)
        context.minimum_version = VERSIONS[self.min_version]
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.load_cert_chain(self.cert, self.key, password=_no_password)
        if self.ca is not None:
            context.load_verify_locations(self.ca)
        if self.crl is not None:
            context.load_verify_locations(self.crl)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        return context


def _no_password() -> str:
    raise ValueError("the private key is encrypted; a broker starts without anybody to ask")


def tls_files(config: BrokerConfig) -> TlsFiles | None:
    """Return the files of a broker's TLS; None if its listeners speak in the clear."""
    if not config.tls_enabled:
        return None
    folder = Path(config.data_dir) / SELF_SIGNED_FOLDER
    is_made = config.tls_self_signed
    return TlsFiles(
        cert=folder / "cert.pem" if is_made else Path(config.tls_cert_file),
        key=folder / "key.pem" if is_made else Path(config.tls_key_file),
        ca=Path(config.tls_ca_file) if config.tls_ca_file else None,
        crl=Path(config.tls_crl_file) if config.tls_crl_file else None,
        client_auth=config.tls_client_auth,
        min_version=config.tls_min_version,
    )


def read_bounded(path: Path) -> bytes:
    """Return the content of a file with certificates."""
    with path.open("rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
    return content
