"""What is said to a client that called the port of the other protocol.

Shape: codec. A native client begins with a packet that says hello, HTTP with a word.
"""

import re
from typing import Final

import msgspec

from goqueue.base.errors import ProtocolError, WrongPortError
from goqueue.wire.calls import Failure
from goqueue.wire.http.errors import ErrorReply, status_of
from goqueue.wire.packet import Kind, Operation, encode_packet

HTTP: Final = b"HTTP/"
_REQUEST: Final = re.compile(rb"(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|TRACE|CONNECT|PRI) ")
_HELLO: Final = bytes([Operation.HELLO, Kind.REQUEST])
_HEAD_END: Final = b"\r\n\r\n"
_DECODE: Final = msgspec.json.Decoder(ErrorReply)


def is_native(data: bytes) -> bool:
    """Return True if bytes that are no HTTP begin as a native client does: with a small hello."""
    return data[:1] == b"\0" and data[4:6] == _HELLO


def is_http_request(data: bytes) -> bool:
    """Return True if bytes that are no packet begin a request of HTTP."""
    return _REQUEST.match(data) is not None


def http_port_text(native: str) -> str:
    """Return what a native client is told that called the HTTP port."""
    return f"this is the HTTP port; {_other('native', native)}"


def is_tls(data: bytes) -> bool:
    """Return True if bytes begin a handshake of TLS."""
    return data[:2] == b"\x16\x03"


def tls_port_reply(first: bytes, http: str) -> bytes:
    """Return what a client is answered that spoke in the clear where TLS is spoken.

    ``first`` is how it began, ``http`` the address of HTTP.
    """
    if is_http_request(first):
        return _http_reply(WrongPortError(f"this port speaks TLS; use https:// ({http})"))
    failure = Failure(WrongPortError.code, "this port speaks TLS; connect with TLS")
    return b"".join(
        encode_packet(
            operation=0, kind=Kind.ERROR, correlation=0, header=msgspec.msgpack.encode(failure)
        )
    )


def native_port_reply(http: str) -> bytes:
    """Return what an HTTP client is answered that called the native port."""
    return _http_reply(WrongPortError(f"this is the native port; {_other('HTTP', http)}"))


def _http_reply(error: WrongPortError) -> bytes:
    status = status_of(error)
    body = msgspec.json.encode(
        ErrorReply(error=error.message, status=status.value, code=error.code)
    )
    return (
        b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        b"connection: close\r\n\r\n%b\n"
    ) % (status.value, status.phrase.encode(), len(body) + 1, body)


def _other(protocol: str, address: str) -> str:
    port = address.rpartition(":")[2]
    return f"the {protocol} port is {port}" if port else f"use the {protocol} port"


def explain_http(data: bytes, address: str) -> ProtocolError:
    """Return the error of a native client that was answered in HTTP, as far as that came."""
    try:
        reply = _DECODE.decode(data.partition(_HEAD_END)[2])
    except msgspec.MsgspecError:
        reply = None
    if reply is not None and reply.code == WrongPortError.code:
        return WrongPortError(f"{address}: {reply.error}")
    return WrongPortError(f"{address} speaks HTTP, and this is a client of the native protocol")
