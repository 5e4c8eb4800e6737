"""The ASGI application: from path and method to an operation, and from any outcome to a reply."""

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Final

from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from goqueue.base.errors import GoQueueError
from goqueue.base.units import KiB
from goqueue.observability.logging import get_logger
from goqueue.transport.http.call import BodyTimeoutError, Call, DisconnectedError
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import error_reply, refusal
from goqueue.transport.http.room import Room, Share
from goqueue.wire.http.errors import (
    CROSS_SITE,
    METHOD_NOT_ALLOWED,
    REQUEST_TIMEOUT,
    ROUTE_NOT_FOUND,
)

BODY_SECONDS_MAX: Final = 120.0
"""Longest time a request's body may take to arrive."""

SEND_BYTES: Final = 256 * KiB
"""How much of a reply is handed to the socket at a time."""

log = get_logger("goqueue.http")


def build_app(
    operations: Sequence[Operation],
    *,
    room: Room | None = None,
    timeout_seconds: float = BODY_SECONDS_MAX,
) -> ASGIApp:
    """Return the application that answers these operations."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        for path in operation.paths:
            by_path.setdefault(path, {})[operation.method] = operation
    room = room or Room()
    routes = [
        Route(path, Resource(methods, room, timeout_seconds=timeout_seconds))
        for path, methods in by_path.items()
    ]
    return Router(routes, redirect_slashes=False, default=_no_route)


async def _no_route(scope: Scope, receive: Receive, send: Send) -> None:
    reply = refusal(HTTPStatus.NOT_FOUND, "no such route", code=ROUTE_NOT_FOUND)
    await reply(scope, receive, send)


class Resource:
    """Everything that can be done at one path."""

    def __init__(
        self, methods: dict[str, Operation], room: Room, *, timeout_seconds: float
    ) -> None:
        self.methods = methods
        self._room = room
        self._timeout_seconds = timeout_seconds
        if "GET" in methods:
            methods.setdefault("HEAD", methods["GET"])
        self._allow = ", ".join(sorted(methods))

    def __repr__(self) -> str:
        return f"<Resource {self._allow}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        share = Share(self._room)
        call = Call(scope, receive, share, timeout_seconds=self._timeout_seconds)
        try:
            reply = await self._answer(call)
            await _send(reply, share, scope, receive, send)
        except DisconnectedError:
            pass
        finally:
            share.release()

    async def _answer(self, call: Call) -> Response:
        operation = self.methods.get(call.method)
        if operation is None:
            text = f"method {ascii(call.method)[1:-1]} is not allowed here"
            allow = {"Allow": self._allow}
            status = HTTPStatus.METHOD_NOT_ALLOWED
            return refusal(status, text, code=METHOD_NOT_ALLOWED, headers=allow)
        if _is_forged(call):
            text = "requests from other sites may only read"
            return refusal(HTTPStatus.FORBIDDEN, text, code=CROSS_SITE)
        try:
            return await operation.answer(call)
        except GoQueueError as error:
            return error_reply(error)
        except BodyTimeoutError:
            text = "the body of the request did not come in time"
            closing = {"Connection": "close"}
            status = HTTPStatus.REQUEST_TIMEOUT
            return refusal(status, text, code=REQUEST_TIMEOUT, headers=closing)
        except DisconnectedError:
            raise
        except Exception:
            log.exception("request failed", operation=operation.name)
            return refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error", code="internal")


def _is_forged(call: Call) -> bool:
    """Tell whether a page of another site makes a browser send this."""
    return call.method not in {"GET", "HEAD"} and call.header(b"sec-fetch-site") == b"cross-site"


async def _send(reply: Response, share: Share, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a reply; a large one in pieces, so that it lies in our room and not in the socket's."""
    size = len(reply.body)
    if size <= SEND_BYTES:
        await reply(scope, receive, send)
        return
    try:
        share.grow(size)
    except GoQueueError as error:
        await error_reply(error)(scope, receive, send)
        return
    start = {"type": "http.response.start", "status": reply.status_code}
    await send({**start, "headers": reply.raw_headers})
    for at in _pieces(size):
        piece = bytes(reply.body[at : at + SEND_BYTES])
        more = at + SEND_BYTES < size
        await send({"type": "http.response.body", "body": piece, "more_body": more})


def _pieces(size: int) -> Iterable[int]:
    return range(0, size, SEND_BYTES)
