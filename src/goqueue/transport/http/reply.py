"""Replies: JSON with the headers every answer carries, and errors in their one shape."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.responses import Response

from goqueue.base.errors import GoQueueError
from goqueue.wire.http.errors import ErrorReply, status_of

JSON: Final = "application/json"
RETRY_AFTER_SECONDS: Final = 1
_COMMON: Final = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]

encode: Final = msgspec.json.Encoder().encode


def json_reply(
    value: Any,  # noqa: ANN401 - whatever msgspec can write
    status: HTTPStatus = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Answer with a value as JSON."""
    return raw_reply(encode(value), status, media_type=JSON, headers=headers)


def raw_reply(
    body: bytes | str,
    status: HTTPStatus = HTTPStatus.OK,
    *,
    media_type: str,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Answer with bytes."""
    response = Response(body, status, headers, media_type)
    response.raw_headers += _COMMON
    return response


def error_reply(error: GoQueueError) -> Response:
    """Answer with an error of the broker."""
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if error.retryable else None
    return refusal(status_of(error), error.message, code=error.code, headers=headers)


def refusal(
    status: HTTPStatus, text: str, *, code: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Answer with an error."""
    reply = ErrorReply(error=text, status=status.value, code=code)
    return json_reply(reply, status, headers)
