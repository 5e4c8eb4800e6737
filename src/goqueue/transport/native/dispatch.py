"""Each native operation as one verb of the service. The embedded client calls this directly."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, get_type_hints

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.errors import InvalidRequestError, TopicNotFoundError, UnsupportedError
from goqueue.base.grant import Grant
from goqueue.service.gate import Session
from goqueue.service.health import server_name
from goqueue.service.resources import name_field
from goqueue.service.service import Service
from goqueue.service.verb import Later, Reply, RequestContext, deeds_of
from goqueue.wire import calls
from goqueue.wire.complaint import HEADER_FAULTS, complaint
from goqueue.wire.packet import Buffer, Operation
from goqueue.wire.security_calls import Auth

_CREDENTIALS: Final = frozenset({calls.Hello, Auth})
"""Headers that bring a credential."""

_decode_produce: Final = msgspec.msgpack.Decoder(calls.Produce).decode


class _Served(NamedTuple):
    """An operation: how its header is read, the verb that serves it, what it asks for."""

    kind: type[calls.Call]
    decode: Callable[[Buffer], Any]
    serve: Callable[..., Any]
    has_context: bool
    """Whether the verb takes what a request has beside its header."""
    deed: Deed
    field: str | None
    """The field of the header that names what the deed is about."""


class Dispatch:
    """Decodes requests, has them admitted and calls the verbs that serve them."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._operations = {
            int(operation): _served(operation, verb)
            for operation, verb in verbs_of_operations(service).items()
        }

    @property
    def operations(self) -> dict[int, Deed]:
        """The numbers of what is served here, and what each asks for."""
        return {operation: served.deed for operation, served in self._operations.items()}

    async def serve(
        self, session: Session, operation: int, header: Buffer, context: RequestContext
    ) -> Reply:
        """Answer one request, or raise a GoQueueError."""
        reply = await self.begin(session, operation, header, context)
        return await reply.reply() if isinstance(reply, Later) else reply

    async def begin(
        self, session: Session, operation: int, header: Buffer, context: RequestContext
    ) -> Reply | Later:
        """Carry out one request, or raise a GoQueueError; the reply may have to wait."""
        served = self._operations.get(operation)
        if served is None:
            raise UnsupportedError(f"operation {operation} is not known to {server_name()}")
        call, grant = _admit(served, session, operation, header)
        if served.kind in _CREDENTIALS:
            grant = _authenticate(session, served.deed, call)
        asked = (grant, call, context) if served.has_context else (grant, call)
        try:
            reply = await served.serve(*asked)
        except TopicNotFoundError:
            # A node of a cluster may hear of a new topic later than the client that made it.
            if not await self._service.catch_up():
                raise
            reply = await served.serve(*asked)
        return reply if isinstance(reply, Reply | Later) else Reply(reply)

    def judge(self, session: Session, operation: int, header: Buffer) -> None:
        """Raise if a request that was admitted before would not be any more."""
        _admit(self._operations[operation], session, operation, header)

    def begin_produce(
        self,
        session: Session,
        header: Buffer,
        payload: memoryview,
        done: Callable[[calls.Produced], None],
    ) -> calls.Produced | bool:
        """Publish without a task: return the answer, True if ``done`` gets it, False: serve it."""
        try:
            call = _decode_produce(header)
        except HEADER_FAULTS:
            return False
        grant = session.admit(Deed.PUBLISH, (call.topic,))
        return self._service.publishing.begin_produce(grant, call, payload, done)


def _authenticate(session: Session, deed: Deed, call: calls.Hello | Auth) -> Grant:
    """Take the identity that a credential proves; without one only where none is asked for."""
    if call.mechanism:
        raise UnsupportedError(f"the mechanism {call.mechanism!a} is not known here")
    shown = bytes(call.credential).decode("utf-8", "surrogateescape")
    if isinstance(call, calls.Hello) and call.api_key is not None:
        if shown:
            raise InvalidRequestError("hello: api_key and credential exclude one another")
        shown = call.api_key
        session.authenticate(shown)
    elif shown or (session.is_guarded and not session.caller.is_by_certificate):
        session.authenticate(shown)
    return session.admit(deed)


def _served(operation: Operation, verb: Callable[..., Any]) -> _Served:
    hints = get_type_hints(verb)
    kind = hints.get("call") or hints["_"]
    (deed, *_), has_context = deeds_of(verb), "context" in hints
    field = name_field(deed, kind.__struct_fields__)
    assert issubclass(kind, calls.Call), f"{operation.name} takes a header"
    return _Served(kind, msgspec.msgpack.Decoder(kind).decode, verb, has_context, deed, field)


def _admit(served: _Served, session: Session, operation: int, header: Buffer) -> tuple[Any, Grant]:
    """Return a request and its grant, or raise; nothing is looked up yet."""
    try:
        call = served.decode(header)
    except HEADER_FAULTS as error:
        asked = Operation(operation).name.lower()
        raise InvalidRequestError(f"{asked}: {complaint(served.kind, error)}") from error
    name = None if served.field is None else getattr(call, served.field)
    return call, session.admit(served.deed, (name,) if name else ())


def verbs_of_operations(service: Service) -> Mapping[Operation, Callable[..., Any]]:
    """Return the verb of every native operation; its ``call`` is the type of the header."""
    topics, groups, queue, tx = service.topics, service.groups, service.queue, service.tx
    delayed, schemas, dlq, traces = service.delayed, service.schemas, service.dlq, service.traces
    return {
        **_verbs_of_schedules(service),
        **_verbs_of_credentials(service),
        Operation.METADATA: service.cluster.metadata,
        Operation.FIND_COORDINATOR: service.cluster.find_coordinator,
        Operation.HELLO: service.status.hello,
        Operation.PING: service.status.ping,
        Operation.CREATE_TOPIC: topics.create,
        Operation.DELETE_TOPIC: topics.delete,
        Operation.CONFIGURE_TOPIC: topics.configure,
        Operation.DESCRIBE_TOPIC: topics.describe,
        Operation.LIST_TOPICS: topics.list_all,
        Operation.COMPACT_TOPIC: topics.compact,
        Operation.ADD_PARTITIONS: topics.add_partitions,
        Operation.OFFSETS: topics.offsets,
        Operation.INIT_PRODUCER: service.publishing.init_producer,
        Operation.PRODUCE: service.publishing.produce,
        Operation.FETCH: service.reading.fetch,
        Operation.JOIN_GROUP: groups.join,
        Operation.HEARTBEAT: groups.heartbeat,
        Operation.LEAVE_GROUP: groups.leave,
        Operation.REVOKED: groups.revoke,
        Operation.DESCRIBE_GROUP: groups.describe,
        Operation.LIST_GROUPS: groups.list_all,
        Operation.DELETE_GROUP: groups.delete,
        Operation.POLL: queue.poll,
        Operation.SETTLE: queue.settle,
        Operation.NEXT: queue.next,
        Operation.COMMIT_OFFSETS: queue.commit_offsets,
        Operation.GROUP_PROGRESS: queue.progress,
        Operation.RESET_OFFSETS: queue.reset_offsets,
        Operation.TX_INIT: tx.init,
        Operation.TX_BEGIN: tx.begin,
        Operation.TX_HOLD: tx.hold,
        Operation.TX_OFFSETS: tx.offsets,
        Operation.TX_DETACH: tx.detach,
        Operation.TX_ADOPT: tx.adopt,
        Operation.TX_END: tx.end,
        Operation.TX_HEARTBEAT: tx.heartbeat,
        Operation.TX_LIST: tx.list_all,
        Operation.TX_DESCRIBE: tx.describe,
        Operation.TX_ABORT: tx.abort,
        Operation.LIST_DELAYED: delayed.list_all,
        Operation.FIND_DELAYED: delayed.find,
        Operation.CANCEL_DELAYED: delayed.cancel,
        Operation.RESCHEDULE_DELAYED: delayed.reschedule,
        Operation.REGISTER_SCHEMA: schemas.register,
        Operation.DESCRIBE_SCHEMA: schemas.describe,
        Operation.LIST_SUBJECTS: schemas.list_all,
        Operation.CHECK_SCHEMA: schemas.check,
        Operation.DELETE_SCHEMA: schemas.delete,
        Operation.CONFIGURE_SCHEMAS: schemas.configure,
        Operation.VALIDATE_VALUES: schemas.validate,
        Operation.OVERVIEW: service.stats.overview,
        Operation.LIST_DLQ: dlq.list_all,
        Operation.PEEK_DLQ: dlq.peek,
        Operation.START_REDRIVE: dlq.start,
        Operation.DESCRIBE_REDRIVE: dlq.describe,
        Operation.LIST_REDRIVES: dlq.history,
        Operation.CANCEL_REDRIVE: dlq.cancel,
        Operation.FIND_TRACE: traces.find,
        Operation.SEARCH_TRACES: traces.search,
        Operation.TAIL_TRACES: traces.tail,
        Operation.TRACE_STATS: traces.stats,
    }


def _verbs_of_schedules(service: Service) -> Mapping[Operation, Callable[..., Any]]:
    schedules = service.schedules
    return {
        Operation.CREATE_SCHEDULE: schedules.create,
        Operation.LIST_SCHEDULES: schedules.list_all,
        Operation.DESCRIBE_SCHEDULE: schedules.describe,
        Operation.PAUSE_SCHEDULE: schedules.pause,
        Operation.RESUME_SCHEDULE: schedules.resume,
        Operation.TRIGGER_SCHEDULE: schedules.trigger,
        Operation.DELETE_SCHEDULE: schedules.delete,
    }


def _verbs_of_credentials(service: Service) -> Mapping[Operation, Callable[..., Any]]:
    credentials = service.credentials
    return {
        Operation.AUTH: credentials.authenticate,
        Operation.WHOAMI: credentials.whoami,
        Operation.MAKE_KEY: credentials.make_key,
        Operation.LIST_KEYS: credentials.list_keys,
        Operation.ROTATE_KEY: credentials.rotate_key,
        Operation.REVOKE_KEY: credentials.revoke_key,
        Operation.ADD_ACL: credentials.add_acl,
        Operation.LIST_ACLS: credentials.list_acls,
        Operation.REMOVE_ACL: credentials.remove_acl,
        Operation.TEST_ACL: credentials.test_acl,
    }
