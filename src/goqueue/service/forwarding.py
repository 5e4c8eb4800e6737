"""The door for requests that other nodes pass on: the same verbs, behind the same gate.

The caller is the one who asked first, so that the gate decides as it would have there. What does
not belong to this node either is refused with ``not_leader`` or ``not_coordinator``, as for a
native client: nothing is passed on twice, so no request goes in circles.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from goqueue.base.caller import Caller
from goqueue.base.errors import ForbiddenError, InvalidRequestError, UnsupportedError
from goqueue.runtime.turns import Turns
from goqueue.service.gate import Gate, Session
from goqueue.service.verb import Reply, RequestContext, deeds_of
from goqueue.service.verb_codec import VerbCodec
from goqueue.wire.complaint import HEADER_FAULTS, complaint
from goqueue.wire.forward_calls import Forward, Forwarded
from goqueue.wire.packet import Buffer
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation

Serve = Callable[[Session, int, Buffer, RequestContext], Awaitable[Reply]]
"""Answers a native request, as the dispatch of the native protocol does."""
Verbs = Mapping[str, Callable[..., Any]]
"""Verbs that may be asked for by name, such as ``groups.outline``."""
Handler = Callable[[PeerIdentity, Buffer, memoryview], Awaitable[Reply]]

SESSIONS_MAX: Final = 1_000
"""Callers whose grants are remembered; then all are forgotten, and memory stays bounded."""

_decode: Final = msgspec.msgpack.Decoder(Forward).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class ForwardedRequests:
    """Answers what other nodes pass on."""

    def __init__(self, gate: Gate, turns: Turns, *, serve: Serve, verbs: Verbs) -> None:
        self._gate = gate
        self._turns = turns
        self._serve = serve
        self._verbs = {name: (verb, VerbCodec(verb)) for name, verb in verbs.items()}
        self._sessions: dict[Caller, Session] = {}

    def __repr__(self) -> str:
        return f"<ForwardedRequests: {len(self._verbs)} verbs by name>"

    def handlers(self) -> Mapping[PeerOperation, Handler]:
        """Return what is answered here, for the door of peers."""
        return {PeerOperation.FORWARD: self.answer}

    async def answer(self, _: PeerIdentity, header: Buffer, payload: memoryview) -> Reply:
        """Answer one request for the node that passed it on, or raise a GoQueueError."""
        try:
            told = _decode(header)
            caller = told.caller.caller()
        except HEADER_FAULTS as error:
            raise InvalidRequestError(f"forward: {complaint(Forward, error)}") from error
        except ValueError as error:
            raise InvalidRequestError(f"forward: {error}") from error
        if told.verb:
            return Reply(Forwarded(), [await self._call(caller, told, payload)])
        context = RequestContext(payload)
        reply = await self._serve(self._session(caller), told.operation, told.header, context)
        return Reply(Forwarded(_encode(reply.header)), reply.payload, reply.undo)

    def _session(self, caller: Caller) -> Session:
        session = self._sessions.get(caller)
        if session is None:
            if len(self._sessions) >= SESSIONS_MAX:
                self._sessions.clear()
            session = self._sessions[caller] = self._gate.open(caller)
        return session

    async def _call(self, caller: Caller, told: Forward, payload: memoryview) -> bytes:
        known = self._verbs.get(told.verb)
        if known is None:
            raise UnsupportedError(f"the verb {told.verb!a} is not passed on")
        verb, codec = known
        deeds = deeds_of(verb)
        deed = next((one for one in deeds if one.value == told.deed), None)
        if deed is None:
            raise ForbiddenError(f"{told.verb} does not serve {told.deed!a}")
        arguments = codec.read_arguments(payload)
        if codec.turns is not None:
            arguments[codec.turns] = self._turns
        grant = self._session(caller).admit(deed, tuple(told.names))
        result = verb(grant, **arguments)
        return codec.write_result(await result if inspect.isawaitable(result) else result)
