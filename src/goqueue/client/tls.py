"""How a client speaks TLS, and how it knows whom it speaks to."""

import base64
import hashlib
import hmac
import ssl
from dataclasses import dataclass
from functools import cache
from typing import Final

from goqueue.base.errors import (
    ConnectionLostError,
    GoQueueError,
    InvalidRequestError,
    UntrustedBrokerError,
    WrongPortError,
)

PROTOCOL: Final = "goqueue/1"
PIN_PREFIX: Final = "sha256/"
SECURE_SCHEME: Final = "goqueues://"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """TLS of a client. Without any of these the system's authorities vouch for the broker."""

    ca: str = ""
    """PEM file with the authorities that may vouch for the broker."""
    cert: str = ""
    """PEM file with this client's own certificate, where the broker asks for one."""
    key: str = ""
    """PEM file with its private key."""
    pin: str = ""
    """``sha256/…`` of the broker's certificate, as ``goqueue tls show`` prints it: for one that
    no authority vouches for. Nothing else is asked of the certificate then."""
    server_name: str = ""
    """The name that must stand in the broker's certificate; by default the host connected to."""

    def __post_init__(self) -> None:
        if bool(self.cert) != bool(self.key):
            raise InvalidRequestError("tls: cert and key belong together")
        if self.pin:
            _digest_of(self.pin)

    def context(self) -> ssl.SSLContext:
        """Return the context of all connections with these options."""
        return _context(self)

    def name_for(self, host: str) -> str:
        """Return the name that the certificate of a broker must have."""
        return self.server_name or host

    def check(self, certificate: bytes | None, where: str) -> None:
        """Compare the certificate that was shown with the pin, if there is one."""
        if not self.pin:
            return
        shown = hashlib.sha256(certificate or b"").digest()
        if not hmac.compare_digest(shown, _digest_of(self.pin)):
            found = f"{PIN_PREFIX}{base64.b64encode(shown).decode()}"
            raise UntrustedBrokerError(f"{where} showed another certificate than the pin: {found}")


def options_of(address: str, *, tls: bool | TlsOptions | None) -> TlsOptions | None:
    """Return the options that were given; ``goqueues://`` in an address asks for TLS, too."""
    if isinstance(tls, TlsOptions):
        return tls
    if tls is False:
        if SECURE_SCHEME in address:
            raise InvalidRequestError(f"{address!r} asks for TLS, and tls=False for none")
        return None
    return TlsOptions() if tls or SECURE_SCHEME in address else None


def explain(error: ssl.SSLError, where: str) -> GoQueueError:
    """Return what a failed handshake means."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return UntrustedBrokerError(
            f"the certificate of {where} cannot be trusted: {error.verify_message}"
        )
    if error.reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"}:
        return WrongPortError(f"{where} does not speak TLS; connect without it, or to another port")
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return ConnectionLostError(f"no TLS connection to {where}: {reason}")


@cache
def _context(options: TlsOptions) -> ssl.SSLContext:
    named = options.ca
    try:
        context = ssl.create_default_context(cafile=options.ca or None)
        if options.cert:
            named = f"{options.cert} with {options.key}"
            context.load_cert_chain(options.cert, options.key)
    except (OSError, ValueError) as error:
        reason = "no certificates in it" if isinstance(error, ssl.SSLError) else error
        raise InvalidRequestError(f"tls: {named} cannot be used: {reason}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([PROTOCOL])
    if options.pin:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _digest_of(pin: str) -> bytes:
    try:
        digest = base64.b64decode(pin.removeprefix(PIN_PREFIX), validate=True)
    except ValueError:
        digest = b""
    if not pin.startswith(PIN_PREFIX) or len(digest) != hashlib.sha256().digest_size:
        raise InvalidRequestError(
            f"tls: {pin!r} is no pin; it is sha256/ and 44 characters of base64"
        )
    return digest
