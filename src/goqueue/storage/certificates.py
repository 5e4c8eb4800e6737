"""Certificates made here: one that a broker signs itself, and those of a private authority."""

import base64
import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS: Final = 365
AUTHORITY_DAYS: Final = 3_650
RENEWED_DAYS: Final = 30
"""A certificate of the broker's own that ends sooner is made anew at the next start."""
PRIVATE: Final = 0o600
COMMON_NAME_CHARACTERS_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def write(self, cert: Path, key: Path) -> None:
        """Write both files; the key is for its owner only, and is there before the certificate."""
        secret = self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        _write(key, secret)
        _write(cert, self.certificate.public_bytes(serialization.Encoding.PEM))


def make_authority(name: str, *, days: int = AUTHORITY_DAYS) -> Issued:
    """Return a new authority, which vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(subject, subject, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return Issued(certificate=builder.sign(key, hashes.SHA256()), key=key)


def make_certificate(
    names: Sequence[str], *, authority: Issued | None = None, days: int = VALID_DAYS
) -> Issued:
    """Return a certificate for a broker or a client; without an authority it signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(names[0])
    issuer = subject if authority is None else authority.certificate.subject
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        _builder(subject, issuer, key, days)
        .add_extension(x509.SubjectAlternativeName([_name(one) for one in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    )
    if authority is not None:
        known = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
        builder = builder.add_extension(known, critical=False)
    signer = key if authority is None else authority.key
    return Issued(certificate=builder.sign(signer, hashes.SHA256()), key=key)


def read_authority(cert: Path, key: Path) -> Issued:
    """Return an authority from its files, or raise OSError or ValueError."""
    private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{key} is not a key that was made here")  # noqa: TRY004 - bad input
    return Issued(certificate=x509.load_pem_x509_certificate(cert.read_bytes()), key=private)


def ensure_self_signed(cert: Path, key: Path, names: Sequence[str]) -> None:
    """Make a certificate of the broker's own, unless there is one that lasts."""
    if not _lasts(cert) or not key.exists():
        cert.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_certificate(list(dict.fromkeys(names))).write(cert, key)


def pin_of(certificate: x509.Certificate) -> str:
    """Return what a client may compare with the certificate that it is shown."""
    der = certificate.public_bytes(serialization.Encoding.DER)
    return f"sha256/{base64.b64encode(hashlib.sha256(der).digest()).decode()}"


def names_of(certificate: x509.Certificate) -> list[str]:
    """Return the names that a certificate is for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return [str(one.value) for one in found.value]


def _lasts(cert: Path) -> bool:
    try:
        found = x509.load_pem_x509_certificate(cert.read_bytes())
    except (OSError, ValueError):
        return False
    return found.not_valid_after_utc > _now() + timedelta(days=RENEWED_DAYS)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = _now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # The clocks of others may be a little behind.
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _subject(name: str) -> x509.Name:
    text = name[:COMMON_NAME_CHARACTERS_MAX]
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)
