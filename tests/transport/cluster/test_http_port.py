"""HTTP on the port between nodes: for callers on this machine or with the key, and nobody else."""

import asyncio
from typing import Any, NamedTuple

import msgspec
import pytest

from goqueue.base.errors import NotLeaderError
from goqueue.transport.cluster.http_port import PortRequest
from goqueue.wire.http.proof import PROOF_HEADER, TIME_HEADER, proof_of

KEY = b"k" * 32
NOW_MS = 1_000_000
STRANGER = ("10.0.0.9", 5_000)
HERE = ("127.0.0.1", 5_000)


class Found(NamedTuple):
    value: object
    status: int = 200


class PortStub:
    """Answers with what it was asked."""

    node_id = "n1"

    def __init__(self, key: bytes = KEY, *, is_guarded: bool = False) -> None:
        self.key = key
        self.is_guarded = is_guarded

    def now_ms(self) -> int:
        return NOW_MS

    async def answer(self, method: str, path: str, body: bytes) -> Found | None:
        if path == "/none":
            return None
        if path == "/refused":
            raise NotLeaderError("not here")
        return Found({"asked": f"{method} {path} {body.decode()}"})


class Wire(asyncio.Transport):
    """What a connection writes."""

    def __init__(self, peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer})
        self.written = b""
        self.is_closed = False

    def writelines(self, list_of_data: Any) -> None:
        self.written += b"".join(list_of_data)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True


def ask(
    raw: bytes, *, peer: tuple[str, int] = HERE, key: bytes = KEY, is_guarded: bool = False
) -> tuple[int, Any]:
    async def main() -> bytes:
        wire, request = Wire(peer), PortRequest(PortStub(key, is_guarded=is_guarded))
        request.connection_made(wire)
        request.data_received(raw)
        for _ in range(5):
            await asyncio.sleep(0)
        request.connection_lost(None)
        assert wire.is_closed
        return wire.written

    head, _, body = asyncio.run(main()).partition(b"\r\n\r\n")
    return int(head.split()[1]), msgspec.json.decode(body)


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: 127.0.0.1:7000", *headers, "", "")).encode()


def proved(path: str, *, key: bytes = KEY, now_ms: int = NOW_MS, of: str = "") -> bytes:
    proof = proof_of(key, "GET", of or path, now_ms, b"")
    return get(path, f"{TIME_HEADER}: {now_ms}", f"{PROOF_HEADER}: {proof}")


def test_a_caller_on_this_machine_is_answered() -> None:
    """With JSON, an error in its one shape, or 404."""
    assert ask(get("/x?y=1")) == (200, {"asked": "GET /x "})
    assert ask(get("/none"))[0] == 404
    assert ask(get("/refused"))[1]["code"] == "not_leader"


def test_a_caller_elsewhere_proves_that_it_has_the_key() -> None:
    """For this request, at about this time."""
    assert ask(proved("/x"), peer=STRANGER)[0] == 200
    assert ask(get("/x"), peer=STRANGER)[0] == 403
    assert ask(proved("/x", key=b"other"), peer=STRANGER)[0] == 403
    assert ask(proved("/x", of="/y"), peer=STRANGER)[0] == 403
    assert ask(proved("/x", now_ms=NOW_MS - 61_000), peer=STRANGER)[0] == 403
    assert ask(proved("/x", key=b""), peer=STRANGER, key=b"")[0] == 403


def test_where_clients_need_keys_a_caller_on_this_machine_needs_the_key() -> None:
    """A program without any credential removes no node, and reads no names of topics."""
    assert ask(proved("/x"), is_guarded=True)[0] == 200
    for raw in (get("/x"), proved("/x", key=b"other"), proved("/x", key=b"")):
        assert ask(raw, is_guarded=True)[1]["code"] == "forbidden"
    assert ask(proved("/x", key=b""), is_guarded=True, key=b"")[0] == 403


def test_a_page_of_a_stranger_reaches_nothing() -> None:
    """Neither by a name of its own that means this machine, nor by a form."""
    raw = b"GET /x HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    form = b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"

    assert ask(raw)[1]["code"] == "wrong_host"
    assert ask(form)[1]["code"] == "forbidden"


def test_what_follows_a_request_is_no_part_of_it() -> None:
    """Neither its method and path nor its headers and body."""
    second = (
        b"POST /y HTTP/1.1\r\nHost: evil.example\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2\r\n\r\n{}"
    )

    assert ask(get("/x") + second) == (200, {"asked": "GET /x "})


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /x HTTP/1.1\r\nHost: " + b"x" * 80_000,
        b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n" + b"x" * 90_000,
    ],
)
def test_a_request_is_bounded(raw: bytes) -> None:
    """P11: nothing grows with what a caller sends."""
    assert ask(raw)[1]["code"] == "too_large"


def test_what_is_no_http_is_refused() -> None:
    """With a clear word."""
    assert ask(b"GET x y z\r\n\r\n")[1]["code"] == "protocol_error"
