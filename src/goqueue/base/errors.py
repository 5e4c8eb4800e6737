"""Every error a caller can meet, with its wire code.

Transports translate ``code`` by table and never inspect messages. Anything raised that is not a
GoQueueError is a bug, not a reply. ``retryable`` says that the same request may succeed later.
"""

from goqueue.base import error, security_errors

GoQueueError = error.GoQueueError
AclNotFoundError = security_errors.AclNotFoundError
CredentialExpiredError = security_errors.CredentialExpiredError
ForbiddenError = security_errors.ForbiddenError
KeyNotFoundError = security_errors.KeyNotFoundError
TooManyAttemptsError = security_errors.TooManyAttemptsError
UnauthenticatedError = security_errors.UnauthenticatedError


class InvalidRequestError(GoQueueError):
    """A field is missing, has the wrong type or breaks a limit; the message names it."""

    code = "invalid_request"


class InvalidNameError(InvalidRequestError):
    """A topic, group or subject name breaks the naming rule."""

    code = "invalid_name"


class InvalidConfigError(InvalidRequestError):
    """A setting is unknown or its value is not allowed; every problem is listed."""

    code = "invalid_config"


class TooLargeError(InvalidRequestError):
    """A message, batch or request is larger than its limit."""

    code = "too_large"


class CorruptFrameError(InvalidRequestError):
    """Bytes that are not a frame: wrong magic, impossible lengths or a failed checksum."""

    code = "corrupt_frame"


class TopicNotFoundError(GoQueueError):
    """No such topic."""

    code = "topic_not_found"


class TopicExistsError(GoQueueError):
    """A topic of this name exists."""

    code = "topic_exists"


class PartitionNotFoundError(GoQueueError):
    """The topic has no such partition."""

    code = "partition_not_found"


class OffsetOutOfRangeError(GoQueueError):
    """The offset was deleted by retention or has never been written."""

    code = "offset_out_of_range"


class DataLossError(GoQueueError):
    """Messages the reader asked for are gone or unreadable; the message names their offsets."""

    code = "data_loss"


class ProducerFencedError(GoQueueError):
    """A newer life of this producer has begun; this one may not publish any more."""

    code = "producer_fenced"


class OutOfOrderSequenceError(GoQueueError):
    """A batch does not follow the one before it; an earlier batch is missing."""

    code = "out_of_order_sequence"


class UnknownProducerError(GoQueueError):
    """The broker does not know this producer id, or no longer remembers its sequence."""

    code = "unknown_producer"


class InvalidTransactionStateError(GoQueueError):
    """The producer's transaction is not in a state in which this can be done."""

    code = "invalid_transaction_state"


class StaleTransactionError(GoQueueError):
    """The request belongs to an earlier transaction, which has ended; nothing was changed."""

    code = "stale_transaction"


class AdoptionRefusedError(GoQueueError):
    """A transaction that was to be adopted is not there to be adopted; nothing was changed."""

    code = "adoption_refused"


class DedupWindowFullError(GoQueueError):
    """The topic's dedup window holds as many ids as it may; publish again when some expired."""

    code = "dedup_window_full"
    retryable = True


class PartitionNotAssignedError(GoQueueError):
    """The partition belongs to another member of the group."""

    code = "partition_not_assigned"


class InvalidReceiptError(InvalidRequestError):
    """The text is no receipt of ours."""

    code = "invalid_receipt"


class UnknownReceiptError(GoQueueError):
    """No delivery has this receipt."""

    code = "unknown_receipt"


class StaleReceiptError(GoQueueError):
    """The message was delivered again or settled since this receipt was issued."""

    code = "stale_receipt"


class ReceiptExpiredError(GoQueueError):
    """The lease of this delivery is over; the message will be, or was, delivered again."""

    code = "receipt_expired"


class GroupNotFoundError(GoQueueError):
    """No such consumer group."""

    code = "group_not_found"


class UnknownMemberError(GoQueueError):
    """The group has no such member; it left, or its session or connection ended. Join again."""

    code = "unknown_member"


class StaleGenerationError(GoQueueError):
    """The group was rebalanced since this generation, or never had it. Join again."""

    code = "stale_generation"


class GroupConflictError(GoQueueError):
    """The group has members and works by other options than the join asks for."""

    code = "group_conflict"


class GroupNotEmptyError(GoQueueError):
    """The group has members; it is deleted only when that is asked for with force."""

    code = "group_not_empty"


class NoRebalanceError(GoQueueError):
    """Nothing of this member's is being revoked."""

    code = "no_rebalance"


class InvalidSchemaError(InvalidRequestError):
    """The text is no schema of its type, or breaks a limit; the message says where."""

    code = "invalid_schema"


class InvalidVersionError(InvalidRequestError):
    """A version of a schema is a number from 1, or the word latest."""

    code = "invalid_version"


class InvalidCompatibilityError(InvalidRequestError):
    """There is no such compatibility mode."""

    code = "invalid_compatibility"


class SubjectNotFoundError(GoQueueError):
    """No such subject."""

    code = "subject_not_found"


class VersionNotFoundError(GoQueueError):
    """The subject has no such version."""

    code = "version_not_found"


class SchemaNotFoundError(GoQueueError):
    """No such schema."""

    code = "schema_not_found"


class IncompatibleSchemaError(GoQueueError):
    """The schema breaks the subject's compatibility mode; the message says where and why."""

    code = "incompatible_schema"


class SchemaReferencedError(GoQueueError):
    """Other schemas refer to this one, so it cannot be deleted."""

    code = "schema_referenced"


class NotSoftDeletedError(GoQueueError):
    """A subject or version is deleted for good only after it was deleted."""

    code = "not_soft_deleted"


class RegistryReadOnlyError(GoQueueError):
    """The registry or the subject takes no changes for now."""

    code = "registry_read_only"


class SchemaViolationError(GoQueueError):
    """A message does not fit its topic's schema; the message names subject, version and path."""

    code = "schema_violation"


class DelayedNotFoundError(GoQueueError):
    """No such message waits for its time: it was delivered, cancelled or never delayed."""

    code = "delayed_not_found"


class TraceNotFoundError(GoQueueError):
    """No span of this trace is remembered: it was not sampled, is forgotten, or never was."""

    code = "trace_not_found"


class DelayedFullError(GoQueueError):
    """As many messages of the topic wait for their time as may; publish again when some are due."""

    code = "delayed_full"
    retryable = True


class DelayConflictError(GoQueueError):
    """A message of this ``delay_id`` waits already, and was not to be replaced."""

    code = "delay_conflict"


class ScheduleNotFoundError(GoQueueError):
    """No such recurring schedule."""

    code = "schedule_not_found"


class ScheduleExistsError(GoQueueError):
    """A recurring schedule of this name exists."""

    code = "schedule_exists"


class SchedulesFullError(GoQueueError):
    """There are as many recurring schedules as there may be, or their messages are as large."""

    code = "schedules_full"


class RedriveActiveError(GoQueueError):
    """Another redrive or purge of the same dead letters is still running."""

    code = "redrive_active"


class RedriveNotFoundError(GoQueueError):
    """No redrive or purge of these dead letters has this number."""

    code = "redrive_not_found"


class DiskFullError(GoQueueError):
    """There is no room on the disk; nothing was written."""

    code = "disk_full"
    retryable = True


class StorageFailedError(GoQueueError):
    """The disk failed to make bytes durable; the partition takes no more writes until restart."""

    code = "storage_failed"


class DataDirLockedError(GoQueueError):
    """Another process uses this data directory."""

    code = "data_dir_locked"


class OverloadedError(GoQueueError):
    """The broker has no room for this connection or request now."""

    code = "overloaded"
    retryable = True


class ShuttingDownError(GoQueueError):
    """The broker is stopping; connect again later."""

    code = "shutting_down"
    retryable = True


class NotCoordinatorError(GoQueueError):
    """The broker does not hold the state that this is about, or not any more; ask again."""

    code = "not_coordinator"
    retryable = True


class NotLeaderError(GoQueueError):
    """The broker does not lead the partition, or not any more; ask again."""

    code = "not_leader"
    retryable = True


class NotEnoughReplicasError(GoQueueError):
    """Fewer replicas are in sync than the topic asks for; nothing was appended, try again."""

    code = "not_enough_replicas"
    retryable = True


class LeaderNotAvailableError(GoQueueError):
    """No node can serve this at present: there is no leader, no controller or no node alive."""

    code = "leader_not_available"
    retryable = True


class StaleEpochError(GoQueueError):
    """The request was made for an earlier state of a node or partition; learn the new one."""

    code = "stale_epoch"
    retryable = True


class StaleMetadataError(GoQueueError):
    """The request was made with an outdated view of the cluster; ask for the metadata again."""

    code = "stale_metadata"
    retryable = True


class NodeFencedError(GoQueueError):
    """The node is not alive as far as the cluster knows; it must register and be heard first."""

    code = "node_fenced"
    retryable = True


class NodeRefusedError(GoQueueError):
    """The node cannot be a part of this cluster as it is; the message says why."""

    code = "node_refused"


class NodeNotFoundError(GoQueueError):
    """The cluster has no such node."""

    code = "node_not_found"


class ReassignmentNotFoundError(GoQueueError):
    """No such reassignment is remembered."""

    code = "reassignment_not_found"


class OperationActiveError(GoQueueError):
    """Another operation on the same topic, partition or node must be finished first."""

    code = "operation_active"


class ProtocolError(GoQueueError):
    """The bytes on a connection are not our protocol; the connection is closed."""

    code = "protocol_error"


class WrongPortError(ProtocolError):
    """A native client called an HTTP port, or an HTTP client the native one."""

    code = "wrong_port"


class UntrustedBrokerError(GoQueueError):
    """The broker could not prove by its certificate who it is; nothing was sent to it."""

    code = "untrusted_broker"


class UnsupportedError(GoQueueError):
    """This broker does not know the operation."""

    code = "unsupported"


class ConnectionLostError(GoQueueError):
    """The broker cannot be reached, or the connection ended before the answer came."""

    code = "connection_lost"
    retryable = True


class DeadlineExceededError(GoQueueError):
    """The answer did not come in time; what was asked may or may not have happened."""

    code = "deadline_exceeded"
    retryable = True


class BufferFullError(GoQueueError):
    """The producer's buffer stayed full for longer than it may block."""

    code = "buffer_full"
    retryable = True


class ClosedError(GoQueueError):
    """The client, producer or broker was closed."""

    code = "closed"


def _tree(root: type[GoQueueError]) -> list[type[GoQueueError]]:
    return [root, *(error for child in root.__subclasses__() for error in _tree(child))]


BY_CODE: dict[str, type[GoQueueError]] = {error.code: error for error in _tree(GoQueueError)}
"""Every error by its wire code, so that a client raises what the broker raised."""


def from_code(code: str, message: str) -> GoQueueError:
    """Rebuild an error from the wire; an unknown code becomes the base class."""
    return BY_CODE.get(code, GoQueueError)(message)
