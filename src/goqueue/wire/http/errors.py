"""Errors over HTTP: one shape, and one table from code to status.

Shape: codec. A code that is not in the table is a bug, not a reply, so a test compares it with the
tree of errors.
"""

from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.errors import GoQueueError


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was refused. ``code`` is stable and meant for programs."""

    error: str
    status: int
    code: str


STATUS_BY_CODE: Final[dict[str, HTTPStatus]] = {
    "internal": HTTPStatus.INTERNAL_SERVER_ERROR,
    "invalid_request": HTTPStatus.BAD_REQUEST,
    "invalid_name": HTTPStatus.BAD_REQUEST,
    "invalid_config": HTTPStatus.BAD_REQUEST,
    "too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "corrupt_frame": HTTPStatus.BAD_REQUEST,
    "forbidden": HTTPStatus.FORBIDDEN,
    "unauthenticated": HTTPStatus.UNAUTHORIZED,
    "credential_expired": HTTPStatus.UNAUTHORIZED,
    "too_many_attempts": HTTPStatus.TOO_MANY_REQUESTS,
    "key_not_found": HTTPStatus.NOT_FOUND,
    "acl_not_found": HTTPStatus.NOT_FOUND,
    "topic_not_found": HTTPStatus.NOT_FOUND,
    "topic_exists": HTTPStatus.CONFLICT,
    "partition_not_found": HTTPStatus.NOT_FOUND,
    "offset_out_of_range": HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
    "data_loss": HTTPStatus.INTERNAL_SERVER_ERROR,
    "producer_fenced": HTTPStatus.CONFLICT,
    "out_of_order_sequence": HTTPStatus.BAD_REQUEST,
    "unknown_producer": HTTPStatus.NOT_FOUND,
    "invalid_transaction_state": HTTPStatus.CONFLICT,
    "stale_transaction": HTTPStatus.CONFLICT,
    "adoption_refused": HTTPStatus.CONFLICT,
    "dedup_window_full": HTTPStatus.TOO_MANY_REQUESTS,
    "partition_not_assigned": HTTPStatus.FORBIDDEN,
    "invalid_receipt": HTTPStatus.BAD_REQUEST,
    "unknown_receipt": HTTPStatus.NOT_FOUND,
    "stale_receipt": HTTPStatus.CONFLICT,
    "receipt_expired": HTTPStatus.GONE,
    "group_not_found": HTTPStatus.NOT_FOUND,
    "unknown_member": HTTPStatus.NOT_FOUND,
    "stale_generation": HTTPStatus.CONFLICT,
    "group_conflict": HTTPStatus.CONFLICT,
    "group_not_empty": HTTPStatus.CONFLICT,
    "no_rebalance": HTTPStatus.CONFLICT,
    "invalid_schema": HTTPStatus.UNPROCESSABLE_ENTITY,
    "invalid_version": HTTPStatus.BAD_REQUEST,
    "invalid_compatibility": HTTPStatus.UNPROCESSABLE_ENTITY,
    "subject_not_found": HTTPStatus.NOT_FOUND,
    "version_not_found": HTTPStatus.NOT_FOUND,
    "schema_not_found": HTTPStatus.NOT_FOUND,
    "incompatible_schema": HTTPStatus.CONFLICT,
    "schema_referenced": HTTPStatus.CONFLICT,
    "not_soft_deleted": HTTPStatus.CONFLICT,
    "registry_read_only": HTTPStatus.CONFLICT,
    "schema_violation": HTTPStatus.UNPROCESSABLE_ENTITY,
    "delayed_not_found": HTTPStatus.NOT_FOUND,
    "trace_not_found": HTTPStatus.NOT_FOUND,
    "delayed_full": HTTPStatus.TOO_MANY_REQUESTS,
    "delay_conflict": HTTPStatus.CONFLICT,
    "schedule_not_found": HTTPStatus.NOT_FOUND,
    "schedule_exists": HTTPStatus.CONFLICT,
    "schedules_full": HTTPStatus.TOO_MANY_REQUESTS,
    "redrive_active": HTTPStatus.CONFLICT,
    "redrive_not_found": HTTPStatus.NOT_FOUND,
    "disk_full": HTTPStatus.INSUFFICIENT_STORAGE,
    "storage_failed": HTTPStatus.INTERNAL_SERVER_ERROR,
    "data_dir_locked": HTTPStatus.INTERNAL_SERVER_ERROR,
    "overloaded": HTTPStatus.SERVICE_UNAVAILABLE,
    "shutting_down": HTTPStatus.SERVICE_UNAVAILABLE,
    "not_coordinator": HTTPStatus.SERVICE_UNAVAILABLE,
    "not_leader": HTTPStatus.SERVICE_UNAVAILABLE,
    "not_enough_replicas": HTTPStatus.SERVICE_UNAVAILABLE,
    "leader_not_available": HTTPStatus.SERVICE_UNAVAILABLE,
    "stale_epoch": HTTPStatus.SERVICE_UNAVAILABLE,
    "stale_metadata": HTTPStatus.SERVICE_UNAVAILABLE,
    "node_fenced": HTTPStatus.SERVICE_UNAVAILABLE,
    "node_refused": HTTPStatus.CONFLICT,
    "node_not_found": HTTPStatus.NOT_FOUND,
    "reassignment_not_found": HTTPStatus.NOT_FOUND,
    "operation_active": HTTPStatus.CONFLICT,
    "protocol_error": HTTPStatus.BAD_REQUEST,
    "untrusted_broker": HTTPStatus.BAD_GATEWAY,
    "wrong_port": HTTPStatus.BAD_REQUEST,
    "unsupported": HTTPStatus.NOT_IMPLEMENTED,
    "connection_lost": HTTPStatus.SERVICE_UNAVAILABLE,
    "deadline_exceeded": HTTPStatus.GATEWAY_TIMEOUT,
    "buffer_full": HTTPStatus.SERVICE_UNAVAILABLE,
    "closed": HTTPStatus.SERVICE_UNAVAILABLE,
}

ROUTE_NOT_FOUND: Final = "not_found"
METHOD_NOT_ALLOWED: Final = "method_not_allowed"
REQUEST_TIMEOUT: Final = "request_timeout"
HEAD_TOO_LARGE: Final = "head_too_large"
CROSS_SITE: Final = "cross_site"
WRONG_HOST: Final = "wrong_host"
"""Codes of HTTP's own, for requests that never reach the broker."""


def status_of(error: GoQueueError) -> HTTPStatus:
    """Return the status of an error."""
    return STATUS_BY_CODE.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
