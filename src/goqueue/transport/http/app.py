"""The application: from path and method to an operation, and from any outcome to a reply."""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from http import HTTPStatus
from typing import Final

from goqueue.base.errors import GoQueueError
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.service.gate import Gate
from goqueue.service.service import Turns
from goqueue.transport.http.call import BodyTimeoutError, Call
from goqueue.transport.http.exchange import SEND_BYTES, DisconnectedError, Exchange
from goqueue.transport.http.identity import Identities
from goqueue.transport.http.operation import Done, Operation
from goqueue.transport.http.origin import SAFE_METHODS, Hosts
from goqueue.transport.http.reply import Response, error_reply, refusal
from goqueue.transport.http.room import Room, Share
from goqueue.transport.http.routes import Match, Routes
from goqueue.wire.http.errors import (
    CROSS_SITE,
    METHOD_NOT_ALLOWED,
    REQUEST_TIMEOUT,
    ROUTE_NOT_FOUND,
    WRONG_HOST,
)

BODY_SECONDS_MAX: Final = 120.0
"""Longest time a request's body may take to arrive."""

MISSING_NODES: Final = "GoQueue-Missing-Nodes"
"""Names the nodes whose part is missing in an answer that all nodes have a part in."""

_MAY_READ: Final = "requests from other sites may only read"
_NOT_OURS: Final = "the broker is not known by the name in the Host header; http.hosts adds names"

log = get_logger("goqueue.http")


class App:
    """Answers requests."""

    def __init__(
        self,
        operations: Sequence[Operation],
        *,
        gate: Gate | None = None,
        hosts: Hosts | None = None,
        room: Room | None = None,
        turns: Turns | None = None,
        timeout_seconds: float = BODY_SECONDS_MAX,
        missing: ContextVar[tuple[str, ...]] | None = None,
    ) -> None:
        self._missing = missing
        """Where a node of a cluster notes whose part is missing in an answer."""
        self.resources: dict[str, Resource] = {}
        """Everything there is, by its path."""
        self.gate = gate or Gate()
        """Decides about every request before its operation is called."""
        self._identities = Identities(self.gate)
        self._hosts = hosts or Hosts()
        self._room = room or Room()
        self._turns = turns or Turns()
        self._timeout_seconds = timeout_seconds
        by_path: dict[str, dict[str, Operation]] = {}
        for operation in operations:
            for path in operation.paths:
                by_path.setdefault(path, {})[operation.method] = operation
        self._routes: Routes[Resource] = Routes()
        for path, methods in by_path.items():
            self.resources[path] = Resource(methods)
            self._routes.add(path, self.resources[path])

    def __repr__(self) -> str:
        return f"<App of {len(self.resources)} paths>"

    def begin(self, exchange: Exchange, done: Done) -> Response | bool:
        """Answer a request that is here whole without a coroutine, where that can be done.

        Returns the reply, True if ``done`` gets it, or False: ``answer`` is to answer it.
        """
        found = self._find_at_once(exchange)
        # Whatever is refused here is refused there, with the reason.
        if found is None or not self._hosts.has(exchange.headers.get(b"host")):
            return False
        call = self._call(exchange, found.parameters, Share(self._room))
        return found.target.begin(call, done)

    def is_quick(self, exchange: Exchange) -> bool:
        """Return True if a request that is here whole may need no task."""
        operation = self._operation_of(exchange)
        return operation is not None and (operation.begin is not None or operation.is_started)

    def is_started(self, exchange: Exchange) -> bool:
        """Return True if ``answer`` may be begun without a task."""
        operation = self._operation_of(exchange)
        return operation is not None and operation.is_started

    def _operation_of(self, exchange: Exchange) -> Operation | None:
        found = self._find_at_once(exchange)
        return None if found is None else found.target.methods.get(exchange.method)

    def _find_at_once(self, exchange: Exchange) -> Match["Resource"] | None:
        # A node of a cluster asks others; what it notes meanwhile belongs to a task.
        return None if self._missing is not None else self._routes.find(exchange.path)

    def _call(self, exchange: Exchange, parameters: Mapping[str, str], share: Share) -> Call:
        return Call(
            exchange,
            parameters,
            share,
            turns=self._turns,
            timeout_seconds=self._timeout_seconds,
            identities=self._identities,
        )

    async def answer(self, exchange: Exchange) -> None:
        """Answer one request."""
        share = Share(self._room)
        try:
            reply = await self._answer(exchange, share)
            await _send(reply, share, exchange)
        except DisconnectedError:
            pass
        finally:
            share.release()

    async def _answer(self, exchange: Exchange, share: Share) -> Response:
        if not self._hosts.has(exchange.headers.get(b"host")):
            return refusal(HTTPStatus.MISDIRECTED_REQUEST, _NOT_OURS, code=WRONG_HOST)
        found = self._routes.find(exchange.path)
        if found is None:
            return refusal(HTTPStatus.NOT_FOUND, "no such route", code=ROUTE_NOT_FOUND)
        resource, parameters = found
        call = self._call(exchange, parameters, share)
        if self._missing is None:
            return await resource.answer(call)
        self._missing.set(())
        reply = await resource.answer(call)
        nodes = self._missing.get()
        if nodes:
            reply.add_header(MISSING_NODES, ", ".join(dict.fromkeys(nodes)))
        return reply


class Resource:
    """Everything that can be done at one path."""

    def __init__(self, methods: Mapping[str, Operation]) -> None:
        self.methods = dict(methods)
        if "GET" in methods:
            self.methods.setdefault("HEAD", methods["GET"])
        self._names = {
            method: (one.name_parameter, one.name_query, one.name_in_body)
            for method, one in self.methods.items()
        }
        self._allow = ", ".join(sorted(self.methods))

    def __repr__(self) -> str:
        return f"<Resource {self._allow}>"

    def begin(self, call: Call, done: Done) -> Response | bool:
        """Answer one request as ``App.begin`` does."""
        operation = self.methods.get(call.method)
        if operation is None or operation.begin is None or call.is_forged:
            return False
        parameter = self._names[call.method][0]
        names = () if parameter is None else (call.path[parameter],)
        try:
            call.identify()
            call.grant = call.session.admit(operation.deed, names)
            return operation.begin(call, done)
        except GoQueueError as error:
            return error_reply(error, operation.absent)
        except Exception:
            log.exception(LogEvent.REQUEST_CRASHED, operation=operation.name)
            return refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error", code="internal")

    async def answer(self, call: Call) -> Response:
        """Answer one request; only a caller who is gone is no answer."""
        operation = self.methods.get(call.method)
        if operation is None:
            text = f"method {ascii(call.method)[1:-1]} is not allowed here"
            allow = {"Allow": self._allow}
            status = HTTPStatus.METHOD_NOT_ALLOWED
            return refusal(status, text, code=METHOD_NOT_ALLOWED, headers=allow)
        is_change = operation.changes_state or call.method not in SAFE_METHODS
        if is_change and call.is_forged:
            return refusal(HTTPStatus.FORBIDDEN, _MAY_READ, code=CROSS_SITE)
        parameter, query, call.name_in_body = self._names[call.method]
        name = None if query is None else call.text(query)
        names = (call.path[parameter],) if parameter is not None else (name,) if name else ()
        try:
            call.identify()
            call.grant = call.session.admit(operation.deed, names)
            return await operation.answer(call)
        except GoQueueError as error:
            return error_reply(error, operation.absent)
        except BodyTimeoutError:
            text = "the body of the request did not come in time"
            reply = refusal(HTTPStatus.REQUEST_TIMEOUT, text, code=REQUEST_TIMEOUT)
            reply.is_last = True
            return reply
        except DisconnectedError:
            raise
        except Exception:
            log.exception(LogEvent.REQUEST_CRASHED, operation=operation.name)
            return refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error", code="internal")


async def _send(reply: Response, share: Share, exchange: Exchange) -> None:
    """Send a reply; one that would not fit in memory beside the others is refused in its place."""
    sent = reply
    if len(reply.body) > SEND_BYTES:
        try:
            share.grow(len(reply.body))
        except GoQueueError as error:
            sent = error_reply(error)
    try:
        await exchange.send(sent)
    finally:
        if reply.undo is not None and not (sent is reply and exchange.is_answered):
            reply.undo()
