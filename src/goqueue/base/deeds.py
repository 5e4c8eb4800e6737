"""Everything that can be asked of a broker, with the permission each needs.

Every native operation and every HTTP route names its deed when it is registered, so this list is
complete: what is not here cannot be asked. Deeds that list things are permitted to everybody with
the permission on some of them; a policy by names filters what they return.
"""

from enum import StrEnum
from typing import Self


class Permission(StrEnum):
    """What a caller must be allowed to do with a resource."""

    NOTHING = "nothing"
    DESCRIBE = "describe"
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    ALTER = "alter"
    DELETE = "delete"
    ADMIN = "admin"


class ResourceKind(StrEnum):
    """What a deed is about."""

    NOTHING = "nothing"
    TOPIC = "topic"
    GROUP = "group"
    SUBJECT = "subject"
    TRANSACTION = "transaction"
    SCHEDULE = "schedule"
    TENANT = "tenant"
    CLUSTER = "cluster"


class Deed(StrEnum):
    """One thing a caller asks for: its name, the permission it needs and on what."""

    # Who is there.
    GREET = "greet", Permission.NOTHING, ResourceKind.NOTHING
    PING = "ping", Permission.NOTHING, ResourceKind.NOTHING
    PROBE_HEALTH = "probe_health", Permission.NOTHING, ResourceKind.NOTHING
    READ_DOCUMENTATION = "read_documentation", Permission.NOTHING, ResourceKind.NOTHING
    READ_METRICS = "read_metrics", Permission.DESCRIBE, ResourceKind.CLUSTER

    # Credentials and access rules.
    AUTHENTICATE = "authenticate", Permission.NOTHING, ResourceKind.NOTHING
    WHOAMI = "whoami", Permission.NOTHING, ResourceKind.NOTHING
    MAKE_KEY = "make_key", Permission.ADMIN, ResourceKind.CLUSTER
    LIST_KEYS = "list_keys", Permission.ADMIN, ResourceKind.CLUSTER
    ROTATE_KEY = "rotate_key", Permission.ADMIN, ResourceKind.CLUSTER
    REVOKE_KEY = "revoke_key", Permission.ADMIN, ResourceKind.CLUSTER
    ADD_ACL = "add_acl", Permission.ADMIN, ResourceKind.CLUSTER
    LIST_ACLS = "list_acls", Permission.ADMIN, ResourceKind.CLUSTER
    REMOVE_ACL = "remove_acl", Permission.ADMIN, ResourceKind.CLUSTER
    TEST_ACL = "test_acl", Permission.ADMIN, ResourceKind.CLUSTER

    # Where things are in a cluster: every client has to know. Topics it may not see are left out.
    FIND_LEADERS = "find_leaders", Permission.NOTHING, ResourceKind.NOTHING
    FIND_COORDINATOR = "find_coordinator", Permission.NOTHING, ResourceKind.NOTHING
    DESCRIBE_MOVES = "describe_moves", Permission.DESCRIBE, ResourceKind.CLUSTER
    START_MOVES = "start_moves", Permission.ALTER, ResourceKind.CLUSTER

    # Topics.
    CREATE_TOPIC = "create_topic", Permission.CREATE, ResourceKind.TOPIC
    DELETE_TOPIC = "delete_topic", Permission.DELETE, ResourceKind.TOPIC
    CONFIGURE_TOPIC = "configure_topic", Permission.ALTER, ResourceKind.TOPIC
    ADD_PARTITIONS = "add_partitions", Permission.ALTER, ResourceKind.TOPIC
    COMPACT_TOPIC = "compact_topic", Permission.ALTER, ResourceKind.TOPIC
    DESCRIBE_TOPIC = "describe_topic", Permission.DESCRIBE, ResourceKind.TOPIC
    LIST_TOPICS = "list_topics", Permission.DESCRIBE, ResourceKind.TOPIC
    SUM_UP_TOPICS = "sum_up_topics", Permission.DESCRIBE, ResourceKind.TOPIC
    FIND_OFFSETS = "find_offsets", Permission.DESCRIBE, ResourceKind.TOPIC

    # Messages.
    INIT_PRODUCER = "init_producer", Permission.WRITE, ResourceKind.TOPIC
    PUBLISH = "publish", Permission.WRITE, ResourceKind.TOPIC
    FETCH = "fetch", Permission.READ, ResourceKind.TOPIC

    # Delayed messages.
    LIST_DELAYED = "list_delayed", Permission.READ, ResourceKind.TOPIC
    FIND_DELAYED = "find_delayed", Permission.DESCRIBE, ResourceKind.TOPIC
    CANCEL_DELAYED = "cancel_delayed", Permission.WRITE, ResourceKind.TOPIC
    RESCHEDULE_DELAYED = "reschedule_delayed", Permission.WRITE, ResourceKind.TOPIC

    # Recurring schedules. Who makes one publishes by it, so the topic counts.
    CREATE_SCHEDULE = "create_schedule", Permission.WRITE, ResourceKind.TOPIC
    LIST_SCHEDULES = "list_schedules", Permission.DESCRIBE, ResourceKind.SCHEDULE
    DESCRIBE_SCHEDULE = "describe_schedule", Permission.DESCRIBE, ResourceKind.SCHEDULE
    PAUSE_SCHEDULE = "pause_schedule", Permission.ALTER, ResourceKind.SCHEDULE
    RESUME_SCHEDULE = "resume_schedule", Permission.ALTER, ResourceKind.SCHEDULE
    TRIGGER_SCHEDULE = "trigger_schedule", Permission.WRITE, ResourceKind.SCHEDULE
    DELETE_SCHEDULE = "delete_schedule", Permission.DELETE, ResourceKind.SCHEDULE

    # Consumer groups.
    JOIN_GROUP = "join_group", Permission.READ, ResourceKind.GROUP
    HEARTBEAT = "heartbeat", Permission.READ, ResourceKind.GROUP
    LEAVE_GROUP = "leave_group", Permission.READ, ResourceKind.GROUP
    REVOKE_PARTITIONS = "revoke_partitions", Permission.READ, ResourceKind.GROUP
    POLL = "poll", Permission.READ, ResourceKind.GROUP
    SETTLE = "settle", Permission.READ, ResourceKind.GROUP
    NEXT = "next", Permission.READ, ResourceKind.GROUP
    COMMIT_OFFSETS = "commit_offsets", Permission.READ, ResourceKind.GROUP
    DESCRIBE_GROUP = "describe_group", Permission.DESCRIBE, ResourceKind.GROUP
    LIST_GROUPS = "list_groups", Permission.DESCRIBE, ResourceKind.GROUP
    DESCRIBE_PROGRESS = "describe_progress", Permission.DESCRIBE, ResourceKind.GROUP
    RESET_OFFSETS = "reset_offsets", Permission.ALTER, ResourceKind.GROUP
    DELETE_GROUP = "delete_group", Permission.DELETE, ResourceKind.GROUP

    # Transactions.
    TX_INIT = "tx_init", Permission.WRITE, ResourceKind.TRANSACTION
    TX_BEGIN = "tx_begin", Permission.WRITE, ResourceKind.TRANSACTION
    TX_ADD_PARTITION = "tx_add_partition", Permission.WRITE, ResourceKind.TRANSACTION
    TX_HOLD = "tx_hold", Permission.WRITE, ResourceKind.TRANSACTION
    TX_OFFSETS = "tx_offsets", Permission.WRITE, ResourceKind.TRANSACTION
    TX_DETACH = "tx_detach", Permission.WRITE, ResourceKind.TRANSACTION
    TX_ADOPT = "tx_adopt", Permission.WRITE, ResourceKind.TRANSACTION
    TX_END = "tx_end", Permission.WRITE, ResourceKind.TRANSACTION
    TX_HEARTBEAT = "tx_heartbeat", Permission.WRITE, ResourceKind.TRANSACTION
    TX_DESCRIBE = "tx_describe", Permission.DESCRIBE, ResourceKind.TRANSACTION
    TX_LIST = "tx_list", Permission.DESCRIBE, ResourceKind.TRANSACTION
    TX_ABORT = "tx_abort", Permission.ALTER, ResourceKind.TRANSACTION

    # Dead letters. A redrive takes them out of the dead letter topic, as a purge does.
    LIST_DLQ = "list_dlq", Permission.READ, ResourceKind.TOPIC
    PEEK_DLQ = "peek_dlq", Permission.READ, ResourceKind.TOPIC
    START_REDRIVE = "start_redrive", Permission.DELETE, ResourceKind.TOPIC
    CANCEL_REDRIVE = "cancel_redrive", Permission.DELETE, ResourceKind.TOPIC
    DESCRIBE_REDRIVE = "describe_redrive", Permission.DELETE, ResourceKind.TOPIC
    LIST_REDRIVES = "list_redrives", Permission.DELETE, ResourceKind.TOPIC
    PURGE_DLQ = "purge_dlq", Permission.DELETE, ResourceKind.TOPIC

    # Schemas.
    REGISTER_SCHEMA = "register_schema", Permission.WRITE, ResourceKind.SUBJECT
    DESCRIBE_SCHEMA = "describe_schema", Permission.READ, ResourceKind.SUBJECT
    LIST_SUBJECTS = "list_subjects", Permission.READ, ResourceKind.SUBJECT
    CHECK_SCHEMA = "check_schema", Permission.READ, ResourceKind.SUBJECT
    VALIDATE_VALUES = "validate_values", Permission.READ, ResourceKind.SUBJECT
    DELETE_SCHEMA = "delete_schema", Permission.DELETE, ResourceKind.SUBJECT
    CONFIGURE_SUBJECT = "configure_subject", Permission.ALTER, ResourceKind.SUBJECT
    CONFIGURE_REGISTRY = "configure_registry", Permission.ALTER, ResourceKind.CLUSTER
    DESCRIBE_REGISTRY = "describe_registry", Permission.DESCRIBE, ResourceKind.CLUSTER

    # Traces.
    FIND_TRACE = "find_trace", Permission.READ, ResourceKind.TOPIC
    SEARCH_TRACES = "search_traces", Permission.READ, ResourceKind.TOPIC
    TAIL_TRACES = "tail_traces", Permission.READ, ResourceKind.TOPIC
    DESCRIBE_TRACING = "describe_tracing", Permission.DESCRIBE, ResourceKind.CLUSTER

    permission: Permission
    kind: ResourceKind

    def __new__(cls, name: str, permission: Permission, kind: ResourceKind) -> Self:
        """Make a deed whose value is its name."""
        deed = str.__new__(cls, name)
        deed._value_ = name
        deed.permission = permission
        deed.kind = kind
        return deed

    @property
    def need(self) -> str:
        """The permission it needs, in words: ``write topic``, or ``nothing``."""
        if self.permission is Permission.NOTHING:
            return self.permission.value
        return f"{self.permission.value} {self.kind.value}"
