"""How a connection begins, goes on and ends, and what a stranger can and cannot do on it."""

from pathlib import Path

import msgspec
import pytest

from goqueue.base.limits import REQUEST_BYTES_MAX, REQUEST_HEADER_BYTES_MAX
from goqueue.base.units import GiB
from goqueue.wire import calls
from goqueue.wire.packet import Kind, Operation
from tests.transport.native.raw import HEAD, Raw, packed
from tests.transport.native.running import Running

HOSTILE_NAMES = [
    "",
    ".",
    "..",
    "../../escaped",
    "/etc/passwd",
    "%2e%2e",
    "a/b",
    "a\\b",
    "a\0b",
    "x" * 250,
    "x" * 300,
    "оrders",  # noqa: RUF001 - a Cyrillic letter that looks like ours
    "a\r\nb",
    "\x1b[31mred",
    "a b",
    "__internal",
]


def test_hello_tells_who_answers(server: Running) -> None:
    """A client learns the protocol and the broker it talks to."""
    with server.connect(greet=False) as raw:
        reply = raw.greet()

    assert reply.protocol == calls.PROTOCOL_VERSION
    assert reply.server.startswith("goqueue/")
    assert reply.node_id == "node-1"
    assert reply.features == list(calls.FEATURES)


def test_features_nobody_knows_are_ignored(server: Running) -> None:
    """A newer client may name what this broker has never heard of."""
    with server.connect(greet=False) as raw:
        raw.send(Operation.HELLO, calls.Hello(1, "newer", None, ["levitation"]))
        packet = raw.receive()

    assert packet is not None
    assert packet.kind == Kind.REPLY


def test_an_api_key_is_refused_while_nobody_checks_it(server: Running) -> None:
    """Taken and ignored, it would promise a protection that is not there."""
    with server.connect(greet=False) as raw:
        raw.send(Operation.HELLO, calls.Hello(1, "careful", "secret"))
        packet = raw.receive()

    assert packet is not None
    failure = msgspec.msgpack.decode(packet.header, type=calls.Failure)
    assert failure.code == "unsupported"
    assert "api key" in failure.message


def test_hello_again_is_harmless(raw: Raw) -> None:
    """A second hello is answered like the first."""
    raw.greet()
    raw.greet()

    raw.ping()


def test_without_hello_nothing_is_served(server: Running) -> None:
    """Whoever does not greet is told so and sent away."""
    with server.connect(greet=False) as raw:
        raw.send(Operation.LIST_TOPICS)
        refused = raw.refusal()

        assert refused.code == "protocol_error"
        assert "hello" in refused.message
        assert raw.is_closed()


@pytest.mark.parametrize(
    ("header", "code"),
    [
        pytest.param(calls.Hello(2, "future"), "unsupported", id="another protocol"),
        pytest.param(["one", "x"], "invalid_request", id="wrong types"),
        pytest.param(b"\xc1", "invalid_request", id="not msgpack"),
    ],
)
def test_a_hello_that_is_not_understood_opens_nothing(
    server: Running, header: object, code: str
) -> None:
    """What follows a refused hello is not even looked at."""
    with server.connect(greet=False) as raw:
        raw.write(
            packed(Operation.HELLO, header, correlation=1)
            + packed(Operation.CREATE_TOPIC, calls.CreateTopic("sneaky", 1), correlation=2)
        )
        refused = raw.refusal()

        assert (refused.code, refused.correlation) == (code, 1)
        assert raw.is_closed()
    assert not server.inside(lambda: dict(server.broker.topics))


def test_a_request_may_follow_hello_at_once(server: Running) -> None:
    """Nobody has to wait for the answer to hello before asking."""
    with server.connect(greet=False) as raw:
        raw.write(
            packed(Operation.HELLO, calls.Hello(1, "eager"), correlation=1)
            + packed(Operation.LIST_TOPICS, correlation=2)
        )

        raw.reply(calls.HelloReply)
        assert raw.reply(calls.TopicList).topics == []


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"EHLO broker.example.org\r\n", id="mail"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40), id="tls"),
        pytest.param(bytes(range(256)), id="bytes"),
        pytest.param(bytes(64), id="zeros"),
        pytest.param(b"\xff" * 64, id="ones"),
        pytest.param(HEAD.pack(2 * GiB, 1, 0, 1, 4), id="two gigabytes declared"),
        pytest.param(HEAD.pack(REQUEST_BYTES_MAX + 1, 1, 0, 1, 4), id="one byte too large"),
        pytest.param(HEAD.pack(20, 1, 0, 1, 21), id="header larger than packet"),
        pytest.param(
            HEAD.pack(REQUEST_BYTES_MAX, 1, 0, 1, REQUEST_HEADER_BYTES_MAX + 1),
            id="header too large",
        ),
    ],
)
@pytest.mark.parametrize("greet", [False, True], ids=["stranger", "greeted"])
def test_garbage_closes_the_connection(server: Running, data: bytes, greet: bool) -> None:  # noqa: FBT001 - a parameter of pytest
    """A stream that cannot be trusted is answered with one error and closed; others go on."""
    with server.connect() as other, server.connect(greet=greet) as raw:
        raw.write(data)
        refused = raw.refusal()

        assert refused.code == "protocol_error"
        assert refused.correlation == 0
        assert raw.is_closed()
        other.ping()


@pytest.mark.parametrize("kind", [Kind.REPLY, Kind.ERROR, 7])
def test_a_client_that_sends_replies_is_closed(raw: Raw, kind: int) -> None:
    """Only requests go this way."""
    raw.write(packed(Operation.PING, correlation=9, kind=kind))

    assert raw.refusal().code == "protocol_error"
    assert raw.is_closed()


@pytest.mark.parametrize("missing", [1, 5, 13, 30, 60])
def test_a_truncated_packet_leaves_nothing_behind(server: Running, missing: int) -> None:
    """A client that dies in the middle of a request has asked for nothing."""
    with server.connect() as raw:
        whole = packed(Operation.CREATE_TOPIC, calls.CreateTopic("half", 1, {"retention_ms": 1}))
        raw.write(whole[: max(len(whole) - missing, 1)])
        raw.socket.shutdown(1)

        assert raw.is_closed()
    assert not server.inside(lambda: dict(server.broker.topics))


@pytest.mark.parametrize("operation", [0, 9, 19, 255])
def test_an_unknown_operation_is_refused_and_the_connection_stays(raw: Raw, operation: int) -> None:
    """An older broker says what it does not know; the newer client can go on."""
    correlation = raw.send(operation, ["whatever"])
    refused = raw.refusal()

    assert refused.code == "unsupported"
    assert refused.correlation == correlation
    raw.ping()


@pytest.mark.parametrize(
    ("operation", "header", "named"),
    [
        (Operation.CREATE_TOPIC, [5, 1], "name"),
        (Operation.CREATE_TOPIC, ["t", "many"], "partitions"),
        (Operation.CREATE_TOPIC, ["t", 1, {"retention_ms": [1]}], "settings"),
        (Operation.CREATE_TOPIC, {"name": "t"}, "array"),
        (Operation.CREATE_TOPIC, None, "array"),
        (Operation.CREATE_TOPIC, [], "array"),
        (Operation.PRODUCE, ["t", "all", [[0, -1]]], "parts[0].size"),
        (Operation.PRODUCE, ["t", "all", [[0, 1]] * 10_001], "parts"),
        (Operation.PRODUCE, ["t", "all", []], "parts"),
        (Operation.FETCH, ["t", 1 << 40, 0, [[0, 0]]], "bytes_max"),
        (Operation.FETCH, ["t", 1, 60_001, [[0, 0]]], "wait_ms"),
        (Operation.FETCH, ["t", 1, 0, [[0, 2**62]]], "parts[0].offset"),
        (Operation.FETCH, ["t" * 250, 1, 0, [[0, 0]]], "topic"),
        (Operation.OFFSETS, ["t", "yesterday"], "timestamp_us"),
        (Operation.INIT_PRODUCER, [-1, 0], "producer_id"),
        (Operation.DELETE_TOPIC, b"\x91\xa2\xff\xfe", "utf-8"),
        (Operation.DELETE_TOPIC, b"\xdd\x7f\xff\xff\xff", "truncated"),
        (Operation.DELETE_TOPIC, b"", "truncated"),
        (Operation.DELETE_TOPIC, b"\x92\xa1t" + b"\x91" * 100_000, "recursion"),
    ],
)
def test_a_wrong_header_is_refused_by_name_and_the_connection_stays(
    raw: Raw, operation: Operation, header: object, named: str
) -> None:
    """Types and limits are checked before anything is done, and the error names the field."""
    correlation = raw.send(operation, header)
    refused = raw.refusal()

    assert refused.code == "invalid_request"
    assert refused.correlation == correlation
    assert refused.message.startswith(operation.name.lower())
    assert named in refused.message
    raw.ping()


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_topic_name_is_refused(server: Running, raw: Raw, name: str) -> None:
    """Nothing is made, nothing outside the data directory is touched, nothing is echoed raw."""
    raw.send(Operation.CREATE_TOPIC, calls.CreateTopic(name, 1))
    refused = raw.refusal()

    assert refused.code == "invalid_name"
    assert refused.message.isprintable()
    assert refused.message.isascii()
    assert not server.inside(lambda: dict(server.broker.topics))


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize(
    "operation", [Operation.DELETE_TOPIC, Operation.DESCRIBE_TOPIC, Operation.CONFIGURE_TOPIC]
)
def test_a_hostile_topic_name_is_not_found(raw: Raw, operation: Operation, name: str) -> None:
    """A name that cannot exist is refused like any other that does not."""
    raw.send(operation, [name, {"retention_ms": 1}])
    refused = raw.refusal()

    assert refused.code in {"topic_not_found", "invalid_name"}
    assert refused.message.isprintable()
    assert refused.message.isascii()


def test_names_at_their_limit_are_taken(raw: Raw) -> None:
    """249 characters are a name; look-alikes in another case are others."""
    raw.create("x" * 249)
    raw.create("Orders")
    raw.create("orders")

    raw.send(Operation.LIST_TOPICS)
    names = {topic.name for topic in raw.reply(calls.TopicList).topics}
    assert names == {"x" * 249, "Orders", "orders"}


def test_pipelined_requests_are_answered_by_their_correlation(raw: Raw) -> None:
    """Replies may overtake one another; each carries the number of its request."""
    raw.create()
    wait = raw.send(Operation.FETCH, calls.Fetch("orders", 1, 300, [calls.FetchPart(0, 0)]))
    pings = [raw.send(Operation.PING) for _ in range(50)]
    missing = raw.send(Operation.DESCRIBE_TOPIC, calls.TopicCall("nowhere"))

    packets = [raw.receive() for _ in range(52)]

    kinds = {packet.correlation: packet.kind for packet in packets if packet is not None}
    assert set(kinds) == {wait, missing, *pings}
    assert kinds[missing] == Kind.ERROR
    assert packets[-1] is not None
    assert packets[-1].correlation == wait


def test_more_requests_than_may_be_under_way_are_all_answered(raw: Raw) -> None:
    """Beyond the limit of a connection requests wait their turn; none is lost."""
    correlations = range(1_000, 4_000)
    raw.write(b"".join(packed(Operation.PING, correlation=number) for number in correlations))

    answered = [raw.receive() for _ in correlations]

    assert [packet.correlation for packet in answered if packet] == list(correlations)


def test_one_byte_at_a_time_is_as_good_as_at_once(raw: Raw) -> None:
    """The server does not care how the network cuts a request."""
    raw.socket.setsockopt(6, 1, 1)
    for byte in packed(Operation.PING, correlation=77):
        raw.write(bytes([byte]))
    packet = raw.receive()

    assert packet is not None
    assert packet.correlation == 77
    assert msgspec.msgpack.decode(packet.header) == []


def test_one_connection_too_many_is_told_so(tmp_path: Path) -> None:
    """The broker says why it takes no more, and takes more when there is room again."""
    with Running(tmp_path / "data", connections_max=2) as server, server.connect() as first:
        with server.connect(), server.connect(greet=False) as third:
            assert third.refusal().code == "overloaded"
            assert third.is_closed()
            first.ping()

        # The second has gone; the broker hears of it before it hears of anything newer.
        with server.connect() as fourth:
            fourth.ping()


@pytest.mark.parametrize("operation", [Operation.HELLO, Operation.PRODUCE])
def test_a_stranger_holds_no_memory_of_the_others(server: Running, operation: Operation) -> None:
    """A first packet that would need room beside theirs is refused by its head alone."""
    head = packed(operation, calls.Hello(1, "raw"), bytes(64 << 10))[:100]
    with server.connect(greet=False) as raw:
        raw.write(head)
        refused = raw.refusal()
        assert refused.code == "protocol_error"
        assert "the limit is 65536" in refused.message
        assert raw.is_closed()


def test_a_long_credential_fits_the_first_packet(tmp_path: Path) -> None:
    """Also behind the most that a client tells of itself."""
    hello = calls.Hello(1, "c" * 1_000, None, ["f" * 100] * 100, "", b"x" * 16_384)
    place = tmp_path / "data"
    with Running(place, auth_enabled=True) as server, server.connect(greet=False) as raw:
        raw.send(Operation.HELLO, hello)
        assert raw.refusal().code == "unauthenticated"
