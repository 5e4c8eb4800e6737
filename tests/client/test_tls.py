"""Clients and a broker by TLS: real sockets, real certificates."""

import asyncio
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

import goqueue
import goqueue.aio
from goqueue.base.errors import (
    ConnectionLostError,
    InvalidRequestError,
    UntrustedBrokerError,
    WrongPortError,
)
from goqueue.client.dial import Dial
from goqueue.client.tls import TlsOptions
from goqueue.storage.certificates import pin_of
from tests.authority import Authority
from tests.cli.running import BrokerProcess

ROWS = 5_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[BrokerProcess]:
    cert, key = authority.issue()
    settings = {"enabled": "true", "cert_file": cert, "key_file": key, "ca_file": authority.ca}
    settings |= {"client_auth": "verify", "reload_interval": "1s"}
    given = [part for name, value in settings.items() for part in ("--set", f"tls.{name}={value}")]
    running = BrokerProcess(tmp_path_factory.mktemp("tls") / "data", *given)
    yield running
    assert running.stop() == 0


@pytest.fixture
def options(authority: Authority) -> TlsOptions:
    return TlsOptions(ca=str(authority.ca))


def test_a_blocking_client_does_everything_by_tls(
    broker: BrokerProcess, options: TlsOptions
) -> None:
    """Large batches, whole reads and single acks: each kind of connection."""
    with goqueue.connect(f"goqueues://{broker.native}", tls=options) as client:
        client.create_topic("blocking", partitions=2)
        with client.producer("blocking") as producer:
            for number in range(ROWS):
                producer.send(b"%d" % number * 50, key=b"%d" % number)
            producer.send(b"x" * 900_000)
        client.producer("blocking").publish(b"alone")
        read = [message.value for message in client.read("blocking")]
        settled = 0
        with client.consumer("workers", ["blocking"], start="earliest", prefetch=1) as consumer:
            for message in consumer:
                message.ack()
                settled += 1
                if settled == 200:
                    break

        assert len(read) == ROWS + 2
        assert b"x" * 900_000 in read
        assert client.read("blocking", start=-1) is not None


def test_an_asynchronous_client_speaks_tls(broker: BrokerProcess, options: TlsOptions) -> None:
    """The same by an event loop."""

    async def use() -> list[bytes | None]:
        client = await goqueue.aio.connect(broker.native, tls=options)
        async with client:
            await client.create_topic("asynchronous", partitions=1)
            async with client.producer("asynchronous") as producer:
                await producer.publish(b"one")
            return [message.value async for message in client.read("asynchronous")]

    assert asyncio.run(use()) == [b"one"]


def test_http_is_spoken_by_tls(broker: BrokerProcess, authority: Authority) -> None:
    """A page of HTTP over TLS."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    with urllib.request.urlopen(f"https://{broker.http}/livez", context=context) as reply:
        assert json.load(reply)["status"] == "pass"


def test_plain_clients_are_told(broker: BrokerProcess) -> None:
    """A client without TLS hears what is wrong, on both ports."""
    with pytest.raises(WrongPortError, match="this port speaks TLS"):
        goqueue.connect(broker.native, timeout=10)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://{broker.http}/livez")

    assert json.load(caught.value)["code"] == "wrong_port"


def test_a_tls_client_is_told_where_nobody_speaks_it(tmp_path: Path, options: TlsOptions) -> None:
    """The reverse: the words do not speak of versions of TLS."""
    plain = BrokerProcess(tmp_path / "plain")
    try:
        with pytest.raises(WrongPortError, match="does not speak TLS"):
            goqueue.connect(plain.native, tls=options, timeout=10)
    finally:
        plain.stop()


def test_a_broker_that_nobody_vouches_for_is_refused(broker: BrokerProcess) -> None:
    """The system's authorities do not know it, and neither does a wrong pin."""
    with pytest.raises(UntrustedBrokerError, match="cannot be trusted"):
        goqueue.connect(broker.native, tls=True, timeout=10)
    with pytest.raises(UntrustedBrokerError, match="another certificate than the pin"):
        goqueue.connect(broker.native, tls=TlsOptions(pin=f"sha256/{'A' * 43}="), timeout=10)


def test_a_name_that_is_not_in_the_certificate_is_refused(
    broker: BrokerProcess, authority: Authority
) -> None:
    """A certificate of the same authority for another broker is not enough."""
    elsewhere = TlsOptions(ca=str(authority.ca), server_name="other.example")
    with pytest.raises(UntrustedBrokerError, match="cannot be trusted"):
        goqueue.connect(broker.native, tls=elsewhere, timeout=10)


def test_a_pin_is_enough(broker: BrokerProcess, authority: Authority) -> None:
    """Whoever knows the certificate needs no authority."""
    certificate = x509.load_pem_x509_certificate((authority.folder / "server.pem").read_bytes())
    pin = pin_of(certificate)
    with goqueue.connect(broker.native, tls=TlsOptions(pin=pin)) as client:
        assert client.list_topics() is not None


def test_a_certificate_of_a_client_is_checked(
    broker: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    """Ours is taken; one of another authority ends the connection."""
    cert, key = authority.issue("worker", file="client")
    stranger = Authority(tmp_path / "stranger").issue("worker", file="client")
    own = TlsOptions(ca=str(authority.ca), cert=str(cert), key=str(key))
    foreign = TlsOptions(ca=str(authority.ca), cert=str(stranger[0]), key=str(stranger[1]))

    with goqueue.connect(broker.native, tls=own) as client:
        assert client.list_topics() is not None
    with pytest.raises(ConnectionLostError):
        goqueue.connect(broker.native, tls=foreign, timeout=5)


def test_new_certificates_are_used_while_clients_go_on(
    broker: BrokerProcess, options: TlsOptions, authority: Authority
) -> None:
    """Files that do not fit are refused and told, files that do are used by new connections."""
    old = (authority.folder / "server.pem").read_bytes()
    with goqueue.connect(broker.native, tls=options) as client:
        (authority.folder / "server.pem").write_bytes(b"half of a fil")
        refused = broker.wait_for("new certificate cannot be used")
        assert refused["next"] == "the certificate in use stays until the files fit"
        with goqueue.connect(broker.native, tls=options) as another:
            assert another.list_topics() is not None
        authority.issue()
        broker.wait_for("new certificate in use")
        with goqueue.connect(broker.native, tls=options) as another:
            assert another.list_topics() is not None
        assert client.list_topics() is not None

    host, _, port = broker.native.rpartition(":")
    shown = ssl.get_server_certificate((host, int(port)))
    assert shown.strip() != old.decode().strip()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_versions_are_not_spoken(broker: BrokerProcess, version: ssl.TLSVersion) -> None:
    """TLS 1.0 and 1.1 end in the handshake."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version, context.maximum_version = version, version
    host, _, port = broker.native.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as line, pytest.raises(OSError):  # noqa: PT011
        context.wrap_socket(line)


def test_a_key_is_not_shown_in_the_clear_to_another_machine() -> None:
    """Unless who connects says that the way there is safe."""
    dial = Dial(api_key="gq_secret")

    with pytest.raises(InvalidRequestError, match=r"in the clear to 10\.0\.0\.9"):
        dial.check_secrecy("10.0.0.9", "10.0.0.1")
    dial.check_secrecy("127.0.0.1", "127.0.0.1")
    dial.check_secrecy("10.0.0.1", "10.0.0.1")
    Dial(api_key="gq_secret", insecure=True).check_secrecy("10.0.0.9", "10.0.0.1")
    Dial(api_key="gq_secret", tls=TlsOptions()).check_secrecy("10.0.0.9", "10.0.0.1")
    assert "gq_secret" not in repr(dial)


@pytest.mark.parametrize("pin", ["sha256/abc", "md5/" + "A" * 43 + "=", "A" * 44])
def test_a_pin_is_checked_before_it_is_used(pin: str) -> None:
    """A pin that could never fit is told at once."""
    with pytest.raises(InvalidRequestError, match="is no pin"):
        TlsOptions(pin=pin)


def test_contradictions_are_told(tmp_path: Path) -> None:
    """A certificate has its key, files exist, and ``goqueues://`` is not overruled."""
    with pytest.raises(InvalidRequestError, match="belong together"):
        TlsOptions(cert="a.pem")
    with pytest.raises(InvalidRequestError, match=r"none\.pem cannot be used"):
        goqueue.connect("127.0.0.1:1", tls=TlsOptions(ca=str(tmp_path / "none.pem")))
    with pytest.raises(InvalidRequestError, match="asks for TLS"):
        goqueue.connect("goqueues://127.0.0.1:1", tls=False)
