"""Replies: JSON with the headers every answer carries, and errors in their one shape."""

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from goqueue.base.errors import GoQueueError, TopicNotFoundError
from goqueue.base.units import SECOND_MS
from goqueue.wire.http.errors import ErrorReply, status_of

JSON: Final = "application/json"
RETRY_AFTER_SECONDS: Final = 1
NO_TOPIC: Final = "topic not found"
_COMMON: Final = "x-content-type-options: nosniff\r\ncache-control: no-store\r\n"
_STATUS_LINES: Final = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n" for one in HTTPStatus}
_HEADER: Final = re.compile(r"[!#-'*+.0-9A-Z^-z|~-]+: [\t -~\x80-\xff]*")

encode: Final = msgspec.json.Encoder().encode


class Response:
    """An answer: its status, its headers and its whole body."""

    __slots__ = ("body", "head", "is_last", "status", "undo")

    def __init__(
        self,
        body: bytes,
        status: HTTPStatus,
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.is_last = False
        """Whether the connection is closed behind it."""
        self.undo: Callable[[], None] | None = None
        """What to do when it was not sent."""
        head = (
            f"{_STATUS_LINES[status]}content-type: {media_type}\r\n"
            f"content-length: {len(body)}\r\n{_COMMON}"
        )
        self.head = head.encode("latin-1")
        for name, value in headers.items() if headers else ():
            self.add_header(name, value)

    def __repr__(self) -> str:
        return f"<Response {self.status.value}: {len(self.body)} bytes>"

    def add_header(self, name: str, value: str) -> None:
        """Say something more of the answer."""
        line = f"{name.lower()}: {value}"
        assert _HEADER.fullmatch(line), "a header is one line"
        self.head += f"{line}\r\n".encode("latin-1")


def json_reply(
    value: Any,  # noqa: ANN401 - whatever msgspec can write
    status: HTTPStatus = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Answer with a value as JSON."""
    return Response(encode(value), status, JSON, headers)


def raw_reply(
    body: bytes | str,
    status: HTTPStatus = HTTPStatus.OK,
    *,
    media_type: str,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Answer with bytes."""
    body = body.encode() if isinstance(body, str) else body
    return Response(body, status, media_type, headers)


def error_reply(error: GoQueueError, absent: str | None = None) -> Response:
    """Answer with an error of the broker; ``absent`` is said of a topic that does not exist."""
    text = absent if absent and isinstance(error, TopicNotFoundError) else error.message
    headers: dict[str, str] | None = None
    if error.retryable:
        seconds = -(-error.retry_after_ms // SECOND_MS)
        headers = {"Retry-After": str(max(seconds, RETRY_AFTER_SECONDS))}
    elif status_of(error) is HTTPStatus.UNAUTHORIZED:
        headers = {"WWW-Authenticate": 'Bearer realm="goqueue"'}
    return refusal(status_of(error), text, code=error.code, headers=headers)


def refusal(
    status: HTTPStatus, text: str, *, code: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Answer with an error."""
    reply = ErrorReply(error=text, status=status.value, code=code)
    return json_reply(reply, status, headers)
