"""Three real nodes whose every connection is by TLS."""

import signal
import socket
import ssl
from pathlib import Path

import pytest

import goqueue
from goqueue.client.tls import TlsOptions
from tests.acceptance.clustered import Clustered
from tests.authority import Authority

ROWS = 500


def ask(address: str, context: ssl.SSLContext) -> None:
    """Ask at the port between nodes; raise OSError unless there is an answer."""
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=30) as line,
        context.wrap_socket(line, server_hostname=host) as secured,
    ):
        # By TLS 1.3 a client hears of its missing certificate with the first reply.
        secured.sendall(b"GET /cluster/state HTTP/1.1\r\nHost: x\r\n\r\n")
        if not secured.recv(1):
            raise ConnectionResetError("the node closed the connection")


@pytest.mark.slow
def test_a_cluster_by_tls_outlives_a_node(tmp_path: Path) -> None:
    """Founding, replication, clients and a takeover; without a certificate there is no way in."""
    authority = Authority(tmp_path / "authority")
    cert, key = authority.issue()
    settings = {
        "GOQUEUE_TLS_ENABLED": "true",
        "GOQUEUE_TLS_CERT_FILE": str(cert),
        "GOQUEUE_TLS_KEY_FILE": str(key),
        "GOQUEUE_TLS_CA_FILE": str(authority.ca),
    }
    context = ssl.create_default_context(cafile=str(authority.ca))
    context.load_cert_chain(cert, key)
    with Clustered(tmp_path, **settings) as cluster:
        names = list(cluster.nodes)
        for name in names:
            cluster.nodes[name].context = context
            cluster.start(name)
        cluster.until_alive(names)
        options = TlsOptions(ca=str(authority.ca))
        with goqueue.connect(cluster.addresses, tls=options, timeout=60) as client:
            client.create_topic("orders", partitions=3)
            with client.producer("orders") as producer:
                for number in range(ROWS):
                    producer.send(b"%d" % number, key=b"%d" % number)
            victim = cluster.partition("orders", 0)["leader"]
            cluster.nodes[victim].end(signal.SIGKILL)
            with client.producer("orders") as producer:
                for number in range(ROWS, 2 * ROWS):
                    producer.send(b"%d" % number, key=b"%d" % number)
            read = sorted(int(message.value or b"") for message in client.read("orders"))
        survivor = next(one for name, one in cluster.nodes.items() if name != victim)
        bare = ssl.create_default_context(cafile=str(authority.ca))
        with pytest.raises(OSError, match=r".*"):
            ask(survivor.cluster, bare)

    assert read == list(range(2 * ROWS))
