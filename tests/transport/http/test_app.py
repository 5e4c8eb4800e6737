"""The application without a socket: what it does when memory, time or the caller runs out."""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Literal

import msgspec
import pytest

from goqueue.base.caller import EMBEDDED
from goqueue.base.deeds import Deed
from goqueue.base.errors import OverloadedError
from goqueue.base.units import KiB
from goqueue.service.gate import Gate
from goqueue.transport.http.app import App
from goqueue.transport.http.call import Call
from goqueue.transport.http.exchange import Exchange
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import Response, json_reply
from goqueue.transport.http.room import FREE_BYTES, Room

LIST: msgspec.json.Decoder[list[str]] = msgspec.json.Decoder(list[str])
ROOM_BYTES = 300 * KiB


class Requester:
    """Sends one request to an application and gathers the reply."""

    def __init__(self, *chunks: bytes, then: Literal["end", "silence", "leave"] = "end") -> None:
        self._chunks = list(chunks)
        self._then = then
        self.sent: list[bytes] = []
        self.session = Gate().open(EMBEDDED)

    def go_on(self, exchange: Exchange) -> None:
        if self._chunks:
            exchange.put(self._chunks.pop(0))
        if not self._chunks and self._then == "end":
            exchange.end()
        elif not self._chunks and self._then == "leave":
            exchange.leave()

    takes_replies = is_open = True

    async def writable(self) -> None:
        await asyncio.sleep(0)

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def head(self, response: Response, *, is_last: bool) -> bytes:
        return response.head + (b"connection: close\r\n\r\n" if is_last else b"\r\n")

    def finish(self, exchange: Exchange) -> None:
        assert exchange.is_answered

    def call(self, app: App) -> None:
        asyncio.run(app.answer(Exchange(self, "POST", "/echo", b"", {})))

    def ask(self, app: App) -> tuple[int, Any, dict[bytes, bytes]]:
        self.call(app)
        head, _, body = b"".join(self.sent).partition(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")
        headers = {name: value for name, _, value in (line.partition(b": ") for line in lines)}
        return int(status.split()[1]), msgspec.json.decode(body), headers


def app_of(
    answer: Callable[[Call], Awaitable[Response]], *, room: Room, timeout_seconds: float = 60
) -> App:
    operation = Operation(
        method="POST", path="/echo", answer=answer, deed=Deed.PING, tag="test", reply=list[str]
    )
    return App([operation], room=room, timeout_seconds=timeout_seconds)


async def echo(call: Call) -> Response:
    return json_reply(await call.body(LIST, bytes_max=10_000 * KiB))


def chunks_of(size: int) -> list[bytes]:
    text = b'["' + b"x" * (size - 4) + b'"]'
    return [text[at : at + 1000] for at in range(0, size, 1000)]


def test_a_large_body_comes_and_goes_whole() -> None:
    """A body in many chunks is put together, and a large reply is sent in pieces."""
    room = Room()
    requester = Requester(*chunks_of(700 * KiB))
    status, body, headers = requester.ask(app_of(echo, room=room))

    assert status == 200
    assert body == ["x" * (700 * KiB - 4)]
    assert int(headers[b"content-length"]) == 700 * KiB
    assert len(requester.sent) > 3
    assert repr(room) == repr(Room())


@pytest.mark.parametrize("size", [ROOM_BYTES // 2 + FREE_BYTES + 1, 10 * ROOM_BYTES])
def test_a_request_without_room_is_sent_away(size: int) -> None:
    """When bodies hold all the memory they may, one more is refused and may come again."""
    room = Room(ROOM_BYTES)
    room.take(ROOM_BYTES // 2)
    status, body, headers = Requester(*chunks_of(size)).ask(app_of(echo, room=room))

    assert status == 503
    assert body["code"] == "overloaded"
    assert headers[b"retry-after"] == b"1"
    room.take(ROOM_BYTES // 2)


def test_a_reply_without_room_is_not_sent() -> None:
    """A reply that would not fit in memory beside the others is refused in its place."""

    async def flood(_call: Call) -> Response:
        return json_reply(["x" * (ROOM_BYTES + FREE_BYTES)])

    room = Room(ROOM_BYTES)
    status, body, _ = Requester().ask(app_of(flood, room=room))

    assert (status, body["code"]) == (503, "overloaded")
    room.take(ROOM_BYTES)


def test_small_requests_need_no_room() -> None:
    """While large bodies are refused, small requests are still served."""
    room = Room(0)
    status, body, _ = Requester(b'["small"]').ask(app_of(echo, room=room))

    assert (status, body) == (200, ["small"])


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    """Past its time a request is answered 408, its memory is free and the connection closed."""
    room = Room(ROOM_BYTES)
    requester = Requester(*chunks_of(200 * KiB), then="silence")
    status, body, headers = requester.ask(app_of(echo, room=room, timeout_seconds=0.01))

    assert (status, body["code"]) == (408, "request_timeout")
    assert headers[b"connection"] == b"close"
    room.take(ROOM_BYTES)


def test_a_caller_who_left_is_not_answered() -> None:
    """When the peer is gone in the middle of its body, nothing is sent and nothing is held."""
    room = Room(ROOM_BYTES)
    requester = Requester(*chunks_of(200 * KiB), then="leave")
    requester.call(app_of(echo, room=room))

    assert requester.sent == []
    room.take(ROOM_BYTES)


def test_a_bug_is_not_shown_to_the_caller() -> None:
    """An unexpected error answers 500 and tells nothing of the inside."""

    async def break_down(_call: Call) -> Response:
        raise RuntimeError("secret detail")

    status, body, _ = Requester().ask(app_of(break_down, room=Room()))

    assert status == HTTPStatus.INTERNAL_SERVER_ERROR
    assert body == {"error": "internal error", "status": 500, "code": "internal"}


def test_an_error_of_the_broker_keeps_its_words() -> None:
    """Text and code of a known error reach the caller, with the time to come again."""

    async def refuse(_call: Call) -> Response:
        raise OverloadedError("come later")

    status, body, headers = Requester().ask(app_of(refuse, room=Room()))

    assert status == 503
    assert body == {"error": "come later", "status": 503, "code": "overloaded"}
    assert headers[b"retry-after"] == b"1"
