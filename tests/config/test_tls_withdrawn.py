"""A certificate that its authority has withdrawn ends the handshake; others go on."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from goqueue.config.tls import TlsFiles
from tests.authority import Authority


def crl_of(authority: Authority, withdrawn: Path) -> Path:
    now, issued = datetime.now(UTC), authority.issued
    serial = x509.load_pem_x509_certificate(withdrawn.read_bytes()).serial_number
    entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
    made = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issued.certificate.subject)
        .last_update(now - timedelta(minutes=1))
        .next_update(now + timedelta(days=1))
        .add_revoked_certificate(entry)
        .sign(issued.key, hashes.SHA256())
    )
    path = authority.folder / "crl.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return path


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Carry out a handshake in memory, to its end on both sides."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(5):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
    assert not ends


def test_a_withdrawn_certificate_ends_the_handshake(tmp_path: Path) -> None:
    """Of two certificates of one authority, the one in the list is refused."""
    authority = Authority(tmp_path)
    cert, key = authority.issue()
    kept = authority.issue("kept.example", file="kept")
    withdrawn = authority.issue("withdrawn.example", file="withdrawn")
    files = TlsFiles(
        cert=cert,
        key=key,
        ca=authority.ca,
        crl=crl_of(authority, withdrawn[0]),
        client_auth="require-verify",
        min_version="1.2",
    )

    def client_with(pair: tuple[Path, Path]) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(authority.ca))
        context.load_cert_chain(*pair)
        return context

    shake_hands(files.server_context("goqueue/1"), client_with(kept))
    with pytest.raises(ssl.SSLError, match="revoked"):
        shake_hands(files.server_context("goqueue/1"), client_with(withdrawn))
