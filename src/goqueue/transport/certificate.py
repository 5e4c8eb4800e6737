"""Who is at the other end of a connection, by the certificate it showed in the TLS handshake.

The handshake has checked that an authority vouches for it; the name is read from the parsed
certificate: the first URI among its names, else the first host name, else its whole subject.
"""

import asyncio
import re
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from goqueue.base.caller import BY_CERTIFICATE, Caller, Transport, caller_at
from goqueue.base.security_limits import TEXT_CHARACTERS_MAX
from goqueue.base.units import SECOND_MS

_NAME: Final = re.compile(r"[!-~]+", re.ASCII)
"""A principal that a rule can name, and that is one word in a log."""

_SAFE: Final = "=,+-._~@:/\\#*"
"""What stays as it is of a subject; spaces and the rest are percent-encoded, as in a URI."""


def caller_of(connection: asyncio.BaseTransport, transport: Transport) -> Caller:
    """Return who connected: an address, and the name of a certificate if there is one."""
    caller = caller_at(transport, connection.get_extra_info("peername"))
    secured = connection.get_extra_info("ssl_object")
    shown = None if secured is None else secured.getpeercert(binary_form=True)
    return caller if shown is None else named_by(shown, caller)


def named_by(der: bytes, caller: Caller) -> Caller:
    """Return a caller under the name of its certificate, which ends when that does."""
    # Only a broker that asks for certificates loads what parses them.
    from cryptography import x509  # noqa: PLC0415

    certificate = x509.load_der_x509_certificate(der)
    names: list[str] = []
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names += found.get_values_for_type(x509.UniformResourceIdentifier)
        names += found.get_values_for_type(x509.DNSName)
    except (
        x509.ExtensionNotFound,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
        ValueError,
    ):
        # Without such names, or with some that cannot be read, the subject stands for it.
        names.clear()
    name = names[0] if names else quote(certificate.subject.rfc4514_string(), safe=_SAFE)
    principal = BY_CERTIFICATE + name
    if not name or len(principal) > TEXT_CHARACTERS_MAX or not _NAME.fullmatch(principal):
        # No rule can name it, so it identifies no caller.
        return caller
    end_ms = int(certificate.not_valid_after_utc.timestamp() * SECOND_MS)
    return replace(caller, principal=principal, credential=principal, expires_ms=end_ms)
