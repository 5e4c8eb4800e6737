"""The words of etcd's JSON gateway: requests, replies and errors.

Numbers of 64 bits come as text, keys and values as base64. Every field that etcd leaves out because
it is zero or empty has that value here.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from goqueue.runtime.cluster.etcd.api import (
    DeleteKeys,
    EtcdCompactedError,
    EtcdError,
    EtcdLeaseLostError,
    EtcdRefusedError,
    EtcdTooLargeError,
    EtcdUnavailableError,
    KeyEvent,
    KeyOperation,
    KeyValue,
    ModifiedAt,
    PutKey,
    ReadKeys,
)

MESSAGE_CHARACTERS_MAX: Final = 300

T = TypeVar("T")


class GatewayHeader(msgspec.Struct):
    """What every reply begins with."""

    cluster_id: int = 0
    revision: int = 0


class GatewayKey(msgspec.Struct):
    """A key as the gateway shows it."""

    key: bytes
    value: bytes = b""
    mod_revision: int = 0
    lease: int = 0

    def as_item(self) -> KeyValue:
        """Return it in our own words."""
        return KeyValue(self.key, self.value, self.mod_revision, self.lease)


class GatewayReply(msgspec.Struct):
    """The head of any reply, for those of which nothing else counts."""

    header: GatewayHeader = msgspec.field(default_factory=GatewayHeader)


class GatewayRange(GatewayReply):
    """Keys that were read."""

    kvs: tuple[GatewayKey, ...] = ()
    more: bool = False


class GatewayAnswer(msgspec.Struct):
    """What one operation of a transaction found; only reads do."""

    response_range: GatewayRange | None = None


class GatewayTxn(GatewayReply):
    """The end of a transaction."""

    succeeded: bool = False
    responses: tuple[GatewayAnswer, ...] = ()


class GatewayGrant(GatewayReply):
    """A lease that was granted."""

    ID: int = 0
    TTL: int = 0


class GatewayKept(msgspec.Struct):
    """A lease that was kept, in the frame of a stream; without time it is over."""

    result: GatewayGrant


class GatewayToken(GatewayReply):
    """A token that stands for name and password."""

    token: str = ""


class GatewayEvent(msgspec.Struct):
    """A change; PUT is left out."""

    kv: GatewayKey
    type: str = "PUT"

    def as_event(self) -> KeyEvent:
        """Return it in our own words."""
        kv = self.kv
        value = None if self.type == "DELETE" else kv.value
        return KeyEvent(kv.key, value, kv.mod_revision, kv.lease)


class GatewayWatched(GatewayReply):
    """What a watch shows."""

    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: tuple[GatewayEvent, ...] = ()


class GatewayFault(msgspec.Struct):
    """An error, in a reply (``code``) or in a stream (``grpc_code``)."""

    message: str = ""
    code: int = 2
    grpc_code: int = 0


class GatewayLine(msgspec.Struct):
    """A line of a watch."""

    result: GatewayWatched | None = None
    error: GatewayFault | None = None


_encode: Final = msgspec.json.Encoder().encode
_fault: Final = msgspec.json.Decoder(GatewayFault, strict=False)

_UNKNOWN, _INVALID, _NOT_FOUND, _DENIED, _EXHAUSTED, _PRECONDITION, _RANGE = 2, 3, 5, 7, 8, 9, 11
UNAUTHENTICATED: Final = 16
_CERTAIN: Final = (_INVALID, _NOT_FOUND, _DENIED, _EXHAUSTED, _PRECONDITION, _RANGE)
"""Codes with which etcd says that it did nothing; after all others that is not known."""
_TOKEN_WORDS: Final = ("auth token", "user name is empty", "revision in header is old")


class EtcdTokenError(EtcdRefusedError):
    """The token is missing or no longer good."""


def encode_request(request: dict[str, Any]) -> bytes:
    """Return the body of a request."""
    return _encode(request)


def decode_reply(raw: bytes, kind: type[T]) -> T:
    """Read a reply; what cannot be read counts as none."""
    try:
        return msgspec.json.decode(raw, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EtcdUnavailableError(f"a reply of etcd cannot be read: {error}") from None


def error_in(raw: bytes) -> EtcdError:
    """Return the error that the body of a reply describes."""
    try:
        fault = _fault.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return EtcdUnavailableError("etcd answered with an error that cannot be read")
    return error_of(fault)


def error_of(fault: GatewayFault) -> EtcdError:
    """Return an error in our own words."""
    code, message = fault.grpc_code or fault.code, fault.message[:MESSAGE_CHARACTERS_MAX]
    if code == UNAUTHENTICATED or any(word in message for word in _TOKEN_WORDS):
        return EtcdTokenError(message)
    if "larger than max" in message:
        return EtcdTooLargeError(message)
    if "compacted" in message:
        return EtcdCompactedError(message)
    if "lease not found" in message:
        return EtcdLeaseLostError(message)
    if code not in _CERTAIN or "too many requests" in message:
        return EtcdUnavailableError(message)
    return EtcdRefusedError(message)


def range_request(keys: ReadKeys, *, revision: int = 0) -> dict[str, Any]:
    """Return a read."""
    request: dict[str, Any] = {"key": keys.key, "limit": keys.limit, "revision": revision}
    return request | ({"range_end": keys.end} if keys.end else {})


def txn_request(
    conditions: Sequence[ModifiedAt],
    then: Sequence[KeyOperation],
    otherwise: Sequence[KeyOperation],
) -> dict[str, Any]:
    """Return a transaction."""
    return {
        "compare": [
            {"target": "MOD", "result": "EQUAL", "key": key, "mod_revision": revision}
            for key, revision in conditions
        ],
        "success": [_operation(one) for one in then],
        "failure": [_operation(one) for one in otherwise],
    }


def _operation(operation: KeyOperation) -> dict[str, Any]:
    match operation:
        case ReadKeys():
            return {"request_range": range_request(operation)}
        case PutKey(key, value, lease):
            return {"request_put": {"key": key, "value": value, "lease": lease}}
        case DeleteKeys(key, end):
            request = {"key": key} | ({"range_end": end} if end else {})
            return {"request_delete_range": request}
