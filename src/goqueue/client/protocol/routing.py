"""Which node a request is for: any, the leader of a partition, or a coordinator. No I/O."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from goqueue.client.protocol.exchange import UnreachableError
from goqueue.core.dlq.names import dlq_name
from goqueue.wire.calls import Call
from goqueue.wire.packet import Operation as Op


class ToAny(NamedTuple):
    """Every node can answer."""

    def __str__(self) -> str:
        return "any node"


class ToLeader(NamedTuple):
    """The leader of a partition answers."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"the leader of {self.topic}/{self.partition}"


class ToCoordinator(NamedTuple):
    """The node with the state of something answers."""

    kind: str
    key: str

    def __str__(self) -> str:
        return f"the coordinator of {self.kind} {self.key}"


Route = ToAny | ToLeader | ToCoordinator
ANY: Final = ToAny()

ONCE: Final = frozenset({Op.TRIGGER_SCHEDULE})
"""Requests that are not repeated at another node: they may have been carried out all the same, and
a second time would be seen."""

NOT_SENT: Final = UnreachableError
"""After this even those are repeated: there was no connection."""


def route_of(operation: Op, header: Call) -> Route:
    """Return where a request is to be sent."""
    find = _ROUTES.get(operation)
    return ANY if find is None else find(header)


def _group(header: Any) -> Route:  # noqa: ANN401 - as below: headers with the fields that are named
    return ToCoordinator("group", header.group)


def _schedule(header: Any) -> Route:  # noqa: ANN401
    return ToCoordinator("schedule", header.name)


def _schema(_: Any) -> Route:  # noqa: ANN401
    return ToCoordinator("schema", "")


def _redrive(header: Any) -> Route:  # noqa: ANN401
    name = header.name if hasattr(header, "name") else header.topic
    return ToCoordinator("redrive", dlq_name(name))


def _transaction(header: Any) -> Route:  # noqa: ANN401
    return ToCoordinator("transaction", header.transactional_id)


def _producer(header: Any) -> Route:  # noqa: ANN401
    who = getattr(header, "who", header)
    return ToCoordinator("producer", str(who.producer_id))


def _first_part(header: Any) -> Route:  # noqa: ANN401
    return ToLeader(header.topic, header.parts[0].partition)


def _held(header: Any) -> Route:  # noqa: ANN401
    return ToLeader(header.parts[0].topic, header.parts[0].partition)


def _delayed(header: Any) -> Route:  # noqa: ANN401
    return ToLeader(header.topic, header.partition)


_ROUTES: Final[Mapping[Op, Callable[[Any], Route]]] = {
    **dict.fromkeys((Op.PRODUCE, Op.FETCH), _first_part),
    **dict.fromkeys(
        (Op.JOIN_GROUP, Op.HEARTBEAT, Op.LEAVE_GROUP, Op.REVOKED, Op.DESCRIBE_GROUP,
         Op.DELETE_GROUP), _group,
    ),
    **dict.fromkeys((Op.FIND_DELAYED, Op.CANCEL_DELAYED, Op.RESCHEDULE_DELAYED), _delayed),
    **dict.fromkeys(
        (Op.CREATE_SCHEDULE, Op.DESCRIBE_SCHEDULE, Op.PAUSE_SCHEDULE, Op.RESUME_SCHEDULE,
         Op.TRIGGER_SCHEDULE, Op.DELETE_SCHEDULE), _schedule,
    ),
    **dict.fromkeys(
        (Op.START_REDRIVE, Op.DESCRIBE_REDRIVE, Op.LIST_REDRIVES, Op.CANCEL_REDRIVE), _redrive
    ),
    **dict.fromkeys((Op.TX_INIT, Op.TX_DESCRIBE, Op.TX_ABORT), _transaction),
    **dict.fromkeys(
        (Op.TX_BEGIN, Op.TX_OFFSETS, Op.TX_DETACH, Op.TX_ADOPT, Op.TX_END, Op.TX_HEARTBEAT),
        _producer,
    ),
    Op.TX_HOLD: _held,
    **dict.fromkeys(
        (Op.REGISTER_SCHEMA, Op.DESCRIBE_SCHEMA, Op.LIST_SUBJECTS, Op.CHECK_SCHEMA,
         Op.DELETE_SCHEMA, Op.CONFIGURE_SCHEMAS, Op.VALIDATE_VALUES), _schema,
    ),
}  # fmt: skip
