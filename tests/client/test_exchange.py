"""What every connection of the SDK makes of bytes: replies, or an error that says what is wrong."""

import pytest

from goqueue.base.errors import (
    ConnectionLostError,
    ProtocolError,
    TooLargeError,
    TopicNotFoundError,
    WrongPortError,
)
from goqueue.base.limits import REQUEST_HEADER_BYTES_MAX
from goqueue.client.protocol.exchange import Answer, Exchange, Reply, decode
from goqueue.wire import calls
from goqueue.wire.packet import Kind, Operation, PacketReader, encode_packet

ADDRESS = "127.0.0.1:7070"


def packet(kind: Kind, correlation: int, header: bytes, payload: bytes = b"") -> bytes:
    return b"".join(
        encode_packet(
            operation=Operation.PING,
            kind=kind,
            correlation=correlation,
            header=header,
            payload=[payload],
        )
    )


def pulled(exchange: Exchange, data: bytes) -> list[Reply]:
    exchange.buffer()[: len(data)] = data
    return exchange.received(len(data))


def test_requests_are_numbered_and_replies_found_by_their_number() -> None:
    """Requests go out as packets whose correlations differ; replies name them."""
    exchange = Exchange(ADDRESS)
    first, written = exchange.request(Operation.PING, calls.Nothing(), [b"load"])
    second, _ = exchange.request(Operation.PING, calls.Nothing())
    (sent,) = PacketReader().feed(b"".join(written))

    (reply,) = exchange.feed(packet(Kind.REPLY, second, b"head", b"payload"))

    assert (sent.correlation, bytes(sent.payload)) == (first, b"load")
    assert first != second
    assert reply.correlation == second
    assert isinstance(reply.outcome, Answer)
    assert (bytes(reply.outcome.header), bytes(reply.outcome.payload)) == (b"head", b"payload")


def test_a_refusal_is_the_error_the_broker_raised() -> None:
    """By its code; one for the whole connection means that it is lost."""
    failure = b"\x92\xaftopic_not_found\xa4gone"

    replies = Exchange(ADDRESS).feed(
        packet(Kind.ERROR, 5, failure) + packet(Kind.ERROR, 0, failure)
    )

    assert [reply.correlation for reply in replies] == [5, 0]
    assert isinstance(replies[0].outcome, TopicNotFoundError)
    assert isinstance(replies[1].outcome, ConnectionLostError)


@pytest.mark.parametrize("take", [Exchange.feed, pulled])
@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", WrongPortError, "speaks HTTP", id="http"),
        pytest.param(b"\xff" * 20, ProtocolError, "not of the native protocol", id="noise"),
        pytest.param(packet(Kind.ERROR, 1, b"\xc1"), ProtocolError, "no Failure", id="failure"),
    ],
)
def test_bytes_that_are_no_reply_are_explained(
    take: object, data: bytes, kind: type[ProtocolError], text: str
) -> None:
    """Whichever way a connection receives."""
    assert callable(take)
    with pytest.raises(kind, match=text):
        take(Exchange(ADDRESS), data)


@pytest.mark.parametrize(
    "header", [b"", b"\xc1", b"\x91\x01", b"\x93\xa1x\x01\x02", b"\x91" * 2_000]
)
def test_a_malformed_header_is_a_protocol_error(header: bytes) -> None:
    """A caller of the SDK catches GoQueueError, and is told which reply it was."""
    with pytest.raises(ProtocolError, match="no ProducerIdentity"):
        decode(header, calls.ProducerIdentity)


def test_a_header_that_no_broker_takes_is_not_sent() -> None:
    """It would cost the connection and everything under way on it."""
    names = [calls.FetchPart(0, 0)] * REQUEST_HEADER_BYTES_MAX
    with pytest.raises(TooLargeError, match="header"):
        Exchange(ADDRESS).request(Operation.FETCH, calls.Fetch("t", 1, 0, names))
