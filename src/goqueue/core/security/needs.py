"""What each deed needs: the one table that requests are judged by.

Shape: calculator. A deed that is not in the table is refused. Most are about resources that the
request names. What a request is about beside that (the topics of a member, the target of a redrive)
is asked for by the verb that serves it, on every road.
"""

from enum import Enum
from typing import Final

from goqueue.base.deeds import Deed, Permission, ResourceKind
from goqueue.core.dlq.names import dlq_name
from goqueue.core.security.need import Need


class Naming(Enum):
    """What may be done without a name, by those who may do it to some resource."""

    OPEN = "for everybody, without a credential"
    KNOWN = "for everybody who was authenticated"
    WHOLE = "about the cluster as a whole"
    NAMED = "always named; the gate is asked again when the body of a request has been read"
    FOUND = "without a name until the request has led to one"
    LISTED = "about all of a kind; what the caller may not see is left out"
    REGISTRY = "without a name about the registry of schemas as a whole"
    SOME = "about none in particular"


_NAMING: Final[dict[Naming, tuple[Deed, ...]]] = {
    Naming.OPEN: (
        Deed.GREET, Deed.AUTHENTICATE, Deed.PROBE_HEALTH, Deed.READ_DOCUMENTATION,
    ),
    Naming.KNOWN: (
        Deed.PING, Deed.WHOAMI, Deed.FIND_LEADERS, Deed.FIND_COORDINATOR,
    ),
    Naming.WHOLE: (
        Deed.READ_METRICS, Deed.CONFIGURE_REGISTRY, Deed.DESCRIBE_REGISTRY, Deed.DESCRIBE_TRACING,
        Deed.MAKE_KEY, Deed.LIST_KEYS, Deed.ROTATE_KEY, Deed.REVOKE_KEY,
        Deed.ADD_ACL, Deed.LIST_ACLS, Deed.REMOVE_ACL, Deed.TEST_ACL,
        Deed.DESCRIBE_MOVES, Deed.START_MOVES,
    ),
    Naming.FOUND: (
        Deed.SETTLE, Deed.TX_BEGIN, Deed.TX_ADD_PARTITION, Deed.TX_HOLD, Deed.TX_OFFSETS,
        Deed.TX_DETACH, Deed.TX_ADOPT, Deed.TX_END, Deed.TX_HEARTBEAT, Deed.DESCRIBE_SCHEMA,
    ),
    Naming.REGISTRY: (Deed.CONFIGURE_SUBJECT,),
    Naming.LISTED: (
        Deed.LIST_TOPICS, Deed.SUM_UP_TOPICS, Deed.LIST_GROUPS, Deed.TX_LIST, Deed.LIST_DLQ,
        Deed.LIST_SCHEDULES, Deed.LIST_SUBJECTS, Deed.SEARCH_TRACES, Deed.TAIL_TRACES,
        Deed.FIND_TRACE,
    ),
    Naming.SOME: (Deed.INIT_PRODUCER,),
    Naming.NAMED: (
        Deed.CREATE_TOPIC, Deed.DELETE_TOPIC, Deed.CONFIGURE_TOPIC, Deed.COMPACT_TOPIC,
        Deed.DESCRIBE_TOPIC, Deed.FIND_OFFSETS, Deed.PUBLISH, Deed.FETCH, Deed.ADD_PARTITIONS,
        Deed.LIST_DELAYED, Deed.FIND_DELAYED, Deed.CANCEL_DELAYED, Deed.RESCHEDULE_DELAYED,
        Deed.CREATE_SCHEDULE, Deed.DESCRIBE_SCHEDULE, Deed.PAUSE_SCHEDULE, Deed.RESUME_SCHEDULE,
        Deed.TRIGGER_SCHEDULE, Deed.DELETE_SCHEDULE,
        Deed.JOIN_GROUP, Deed.HEARTBEAT, Deed.LEAVE_GROUP, Deed.REVOKE_PARTITIONS, Deed.POLL,
        Deed.NEXT, Deed.COMMIT_OFFSETS, Deed.DESCRIBE_GROUP, Deed.DESCRIBE_PROGRESS,
        Deed.RESET_OFFSETS, Deed.DELETE_GROUP,
        Deed.TX_INIT, Deed.TX_DESCRIBE, Deed.TX_ABORT,
        Deed.PEEK_DLQ, Deed.START_REDRIVE, Deed.CANCEL_REDRIVE, Deed.DESCRIBE_REDRIVE,
        Deed.LIST_REDRIVES, Deed.PURGE_DLQ,
        Deed.REGISTER_SCHEMA, Deed.CHECK_SCHEMA, Deed.VALIDATE_VALUES, Deed.DELETE_SCHEMA,
    ),
}  # fmt: skip

NAMING: Final = {deed: naming for naming, deeds in _NAMING.items() for deed in deeds}
"""How each deed is about resources; one that is missing here is refused."""

LETTERS: Final = frozenset(
    {
        Deed.PEEK_DLQ, Deed.START_REDRIVE, Deed.CANCEL_REDRIVE, Deed.DESCRIBE_REDRIVE,
        Deed.LIST_REDRIVES, Deed.PURGE_DLQ,
    }
)  # fmt: skip
"""About the dead letters of the topic that is named, not about the topic."""

REDRIVES: Final = frozenset(
    {Deed.START_REDRIVE, Deed.CANCEL_REDRIVE, Deed.DESCRIBE_REDRIVE, Deed.LIST_REDRIVES}
)
"""These need to read the dead letters, too."""


def needs_of(deed: Deed, names: tuple[str, ...]) -> tuple[Need, ...]:
    """Return everything a deed needs on the resources that the request names."""
    naming = NAMING.get(deed)
    if naming is Naming.WHOLE:
        return (Need(deed.permission, deed.kind),)
    if naming is Naming.REGISTRY and not names:
        return (Need(deed.permission, ResourceKind.CLUSTER),)
    if deed not in LETTERS:
        return tuple(Need(deed.permission, deed.kind, name) for name in names)
    permissions = [deed.permission]
    if deed in REDRIVES:
        permissions.append(Permission.READ)
    return tuple(
        Need(permission, ResourceKind.TOPIC, dlq_name(name))
        for name in names
        for permission in permissions
    )
