"""A client that calls the port of the other protocol is told which one it wants."""

import json
import socket
import threading
import traceback
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

import goqueue
from goqueue.base.errors import TopicNotFoundError, WrongPortError
from goqueue.client.blocking.link import BlockingLink
from goqueue.client.dial import Dial
from goqueue.wire.calls import Nothing
from goqueue.wire.packet import Operation
from tests.cli.running import BrokerProcess, Run

FOREIGN = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@pytest.fixture
def stranger() -> Iterator[str]:
    """Something that answers everything in HTTP and is no broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as first:
                # The knock of a command, which asks nothing.
                if first.recv(1 << 10):
                    first.sendall(FOREIGN)
                    return
            with server.accept()[0] as second:
                second.recv(1 << 10)
                second.sendall(FOREIGN)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_commands_name_the_native_port(cli: Run, broker: BrokerProcess) -> None:
    """One line with the right port, one with the option that takes it."""
    port = broker.native.rpartition(":")[2]
    outcome = cli("topic", "list", "-s", broker.http)

    assert outcome.code == 1
    told, hint = outcome.err.splitlines()
    assert told == (
        f"error: {broker.http}: this is the HTTP port; the native port is {port} (wrong_port)"
    )
    assert hint.startswith("hint: --server names the native port")


def test_commands_name_what_is_no_broker(cli: Run, stranger: str) -> None:
    """Without a port to name, because there may be none."""
    outcome = cli("topic", "list", "-s", stranger)

    assert outcome.code == 1
    assert outcome.err.startswith(f"error: {stranger} speaks HTTP, and this is a client of")


def test_both_links_of_the_sdk_explain_it(broker: BrokerProcess) -> None:
    """The connection of the event loop, and the one that blocks, which Spark's tasks use."""
    port = broker.native.rpartition(":")[2]
    with pytest.raises(WrongPortError, match=f"the native port is {port}"):
        goqueue.connect(broker.http)
    link = BlockingLink(broker.http, Dial(timeout_s=10))
    with pytest.raises(WrongPortError, match=f"the native port is {port}"):
        link.request(Operation.PING, Nothing())


def test_http_at_the_native_port_is_answered_in_http(broker: BrokerProcess) -> None:
    """As JSON, in the shape of every error."""
    with pytest.raises(HTTPError) as refused, urlopen(f"http://{broker.native}/topics"):
        pass

    assert refused.value.code == 400
    assert json.load(refused.value) == {
        "error": f"this is the native port; the HTTP port is {broker.http.rpartition(':')[2]}",
        "status": 400,
        "code": "wrong_port",
    }


def test_the_traceback_of_a_missing_topic_is_short(broker: BrokerProcess) -> None:
    """It shows where it was asked for and what to do, not how the answer travelled."""
    with goqueue.connect(broker.native) as client:
        for ask in (
            lambda: client.describe_topic("nowhere"),
            lambda: client.producer("nowhere"),
            lambda: client.consumer("g", ["nowhere"]),
            lambda: next(iter(client.read("nowhere"))),
        ):
            with pytest.raises(TopicNotFoundError) as caught:
                ask()
            lines = "".join(traceback.format_exception(caught.value)).splitlines()

            assert len(lines) <= 25
            assert lines[-2].endswith("TopicNotFoundError: topic not found: nowhere")
            assert lines[-1].startswith("hint: client.create_topic(name) makes a topic")
