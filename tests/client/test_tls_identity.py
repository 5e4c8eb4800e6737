"""Callers that are known by their certificates: a real broker with TLS and rules."""

import http.client
import json
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID

import goqueue
from goqueue.base.caller import Transport, caller_at
from goqueue.base.errors import ForbiddenError, UnauthenticatedError
from goqueue.client.tls import TlsOptions
from goqueue.transport.certificate import named_by
from tests.authority import Authority
from tests.cli.running import BrokerProcess

ROOT = "gq_" + "5" * 64


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[BrokerProcess]:
    home = tmp_path_factory.mktemp("identity")
    root = home / "root.key"
    root.touch(mode=0o600)
    root.write_text(ROOT)
    cert, key = authority.issue()
    settings = {
        "tls.enabled": "true",
        "tls.cert_file": cert,
        "tls.key_file": key,
        "tls.ca_file": authority.ca,
        "tls.client_auth": "verify",
        "auth.enabled": "true",
    }
    given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    running = BrokerProcess(home / "data", *given, GOQUEUE_API_ROOT_KEY_FILE=str(root))
    yield running
    assert running.stop() == 0


def options(authority: Authority, *names: str) -> TlsOptions:
    cert, key = authority.issue(*names, file=names[0])
    return TlsOptions(ca=str(authority.ca), cert=str(cert), key=str(key))


def test_a_certificate_is_who_a_caller_is(broker: BrokerProcess, authority: Authority) -> None:
    """It has no right by itself; rules name it; a key that is shown wins over it."""
    plain = TlsOptions(ca=str(authority.ca))
    own = options(authority, "worker.example", "other.example")
    with (
        goqueue.connect(broker.native, tls=plain, api_key=ROOT) as admin,
        goqueue.connect(broker.native, tls=own) as worker,
        goqueue.connect(broker.native, tls=own, api_key=ROOT) as both,
    ):
        admin.create_topic("orders", partitions=1)
        with pytest.raises(ForbiddenError, match="is not permitted"):
            worker.producer("orders").publish(b"refused")
        admin.add_acl("cert:worker.example", "write", "topic", "orders")
        worker.producer("orders").publish(b"allowed")

        assert worker.whoami().principal == "cert:worker.example"
        assert both.whoami().principal == "root"
        assert [message.value for message in admin.read("orders")] == [b"allowed"]
        assert whoami_by_http(broker.http, own) == (200, "cert:worker.example")


def test_without_certificate_and_key_nothing_is_served(
    broker: BrokerProcess, authority: Authority
) -> None:
    """``verify`` asks for no certificate, the gate asks for a credential."""
    plain = TlsOptions(ca=str(authority.ca))
    with pytest.raises(UnauthenticatedError):
        goqueue.connect(broker.native, tls=plain, timeout=10)

    assert whoami_by_http(broker.http, plain)[0] == 401


def whoami_by_http(address: str, tls: TlsOptions) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=tls.ca)
    if tls.cert:
        context.load_cert_chain(tls.cert, tls.key)
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPSConnection(host, int(port), timeout=30, context=context)
    try:
        connection.request("GET", "/admin/whoami")
        reply = connection.getresponse()
        return reply.status, str(json.loads(reply.read()).get("principal", ""))
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("subject", "names", "expected"),
    [
        ("a", [x509.UniformResourceIdentifier("spiffe://x/a"), x509.DNSName("b")], "spiffe://x/a"),
        ("a", [x509.DNSName("b.example"), x509.DNSName("admin")], "b.example"),
        ("a", [x509.RFC822Name("x@example")], "CN=a"),
        ("a,CN=admin", [], "CN=a\\,CN=admin"),
        ("the admin", [], "CN=the%20admin"),
        ("\u0430dmin", [], "CN=%D0%B0dmin"),
    ],
)
def test_the_name_of_a_certificate(
    subject: str, names: list[x509.GeneralName], expected: str
) -> None:
    """A comma in a name makes no second one, and look-alikes are told apart."""
    caller = named_by(certificate(subject, names), caller_at(Transport.NATIVE, ("127.0.0.1", 1)))

    assert caller.principal == f"cert:{expected}"
    assert caller.is_by_certificate
    assert caller.expires_ms > 0


def test_a_certificate_without_a_name_for_rules_identifies_no_caller() -> None:
    """One that is too long for a rule, and one that says nothing."""
    stranger = caller_at(Transport.NATIVE, ("127.0.0.1", 1))
    long: list[x509.GeneralName] = [x509.UniformResourceIdentifier(f"spiffe://x/{'a' * 300}")]

    assert named_by(certificate("a", long), stranger) == stranger
    assert named_by(certificate("", []), stranger) == stranger


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (b"\x30\x02\xa3\x00", "cert:CN=a"),  # An address of X.400
        (b"\x30\x02\xa5\x00", "cert:CN=a"),  # A party of EDI
        (b"\x04\x00", "cert:CN=a"),
        (b"\x30\x06\x82\x04a\x00.b", "anonymous"),
        (b"\x30\x06\x82\x04a\n.b", "anonymous"),
    ],
)
def test_names_that_cannot_be_read_break_nothing(names: bytes, expected: str) -> None:
    """The subject stands for them; what no rule can name, or breaks a line, is no name."""
    shown = certificate("a", [], names)

    assert named_by(shown, caller_at(Transport.NATIVE, ("127.0.0.1", 1))).principal == expected


def certificate(subject: str, names: list[x509.GeneralName], raw_names: bytes = b"") -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, subject)] if subject else []
    name, now = x509.Name(attributes), datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if raw_names:
        raw = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, raw_names)
        builder = builder.add_extension(raw, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def test_files_of_certificates_are_for_tests_only(tmp_path: Path) -> None:
    """The authority of these tests writes keys for their owner only."""
    _, key = Authority(tmp_path / "own").issue("a.example")

    assert key.stat().st_mode & 0o077 == 0
