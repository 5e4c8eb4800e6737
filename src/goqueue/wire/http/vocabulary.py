"""What the names in paths, bodies and replies stand for, for the OpenAPI document.

The same name means the same thing everywhere, so it is described once. Where a type uses a name
for something else, ``OF_TYPES`` says so.
"""

from collections.abc import Iterable
from typing import Any, Final

from goqueue.base.limits import DELAY_ID_BYTES_MAX, NAME_CHARACTERS_MAX, SUBJECT_CHARACTERS_MAX
from goqueue.core.dlq import redrive
from goqueue.core.groups.assignors import ASSIGNORS
from goqueue.core.groups.options import BY_KEY, EARLIEST, EXCLUSIVE, LATEST, SHARED, UNORDERED
from goqueue.core.groups.rebalance import PROTOCOLS
from goqueue.core.groups.states import GroupState, Phase
from goqueue.core.record.message import PRIORITY_NAMES
from goqueue.core.recurring.spec import Missed
from goqueue.core.schemas.compatibility import Compatibility
from goqueue.core.schemas.schema import SchemaType
from goqueue.core.topics.settings import FSYNC, OS
from goqueue.wire.http.messages import BASE64, TEXT
from goqueue.wire.schedule_calls import ACTIVE, PAUSED

Json = dict[str, Any]

INT32: Final = "int32"
INT64: Final = "int64"
MOMENT: Final = "date-time"
_NAME: Final = "^[A-Za-z0-9._-]+$"


def _name(characters_max: int, text: str) -> Json:
    bounds = {"minLength": 1, "maxLength": characters_max, "pattern": _NAME}
    return {"schema": {"type": "string", **bounds}, "description": text}


def _number(text: str, *, form: str = INT64, least: int = 0) -> Json:
    schema = {"type": "integer", "format": form, "minimum": least}
    return {"schema": schema, "description": text}


def _one_of(values: Iterable[str]) -> Json:
    return {"enum": [str(value) for value in values]}


PATH_PARAMETERS: Final[dict[str, Json]] = {
    "topic": _name(NAME_CHARACTERS_MAX, "Name of the topic."),
    "group": _name(NAME_CHARACTERS_MAX, "Name of the consumer group."),
    "schedule": _name(NAME_CHARACTERS_MAX, "Name of the recurring schedule."),
    "subject": _name(SUBJECT_CHARACTERS_MAX, "Name of the subject."),
    "partition": _number("Number of the partition, from 0.", form=INT32),
    "offset": _number("Offset of the message in its partition."),
    "producer_id": _number("Number of the producer."),
    "id": _number("Number of the schema, or of the redrive.", least=1),
    "key_id": _name(NAME_CHARACTERS_MAX, "Id of the API key."),
    "acl_id": _number("Number of the access rule.", least=1),
    "version": {
        "schema": {
            "anyOf": [{"type": "integer", "format": INT32, "minimum": 1}, _one_of(["latest"])]
        },
        "description": "Number of the version, or `latest`.",
    },
    "delay_id": {
        "schema": {"type": "string", "minLength": 1, "maxLength": DELAY_ID_BYTES_MAX},
        "description": "The `delay_id` the message was published with.",
    },
    "trace_id": {
        "schema": {"type": "string", "pattern": "^[0-9a-fA-F]{32}$"},
        "description": "The trace, 32 hexadecimal digits.",
    },
}

_MOMENTS: Final = (
    "created_at", "expires_at", "last_used_at", "rotated_at", "old_key_valid_until",
    "deliverAt", "deliver_at", "dlq_time", "end_time", "ended_at", "error_at",
    "first_delivery", "joined_at", "last_delivery", "last_heartbeat", "last_rebalance_at",
    "last_tick", "new_deadline",
    "next_visible_at", "oldest", "original_timestamp", "revocation_deadline", "start_time",
    "started_at", "time", "timestamp", "updated_at",
)  # fmt: skip
_COMPATIBILITY: Final = _one_of(Compatibility)
_ENCODING: Final = _one_of([BASE64, TEXT])

BY_NAME: Final[dict[str, Json]] = {
    **{key: {"format": MOMENT} for key in _MOMENTS},
    "assignment_strategy": _one_of(ASSIGNORS),
    "assignor": _one_of(ASSIGNORS),
    "auto_offset_reset": _one_of([EARLIEST, LATEST]),
    "compatibility": _COMPATIBILITY,
    "compatibilityLevel": _COMPATIBILITY,
    "durability": _one_of([FSYNC, OS]),
    "encoding": _ENCODING,
    "globalCompatibility": _COMPATIBILITY,
    "headers_encoding": _ENCODING,
    "key_encoding": _ENCODING,
    "missed": _one_of(Missed),
    "mode": _one_of([EXCLUSIVE, SHARED]),
    "on_conflict": _one_of(["error", "replace"]),
    "ordering": _one_of([UNORDERED, BY_KEY]),
    "priority": _one_of(PRIORITY_NAMES),
    "protocol": _one_of(PROTOCOLS),
    "rebalance_state": _one_of(Phase),
    "schemaType": _one_of(SchemaType),
}
"""What a field that is text, or null, may hold."""

_EITHER: Final[Json] = {}
"""Anything the description of the type allows."""

OF_TYPES: Final[dict[tuple[str, str], Json]] = {
    ("CooperativeDetail", "state"): _one_of(GroupState),
    ("CooperativeHeartbeat", "state"): _one_of(Phase),
    ("CooperativeJoined", "state"): _one_of(Phase),
    ("GroupDetail", "state"): _one_of(GroupState),
    ("GroupSummary", "state"): _one_of(GroupState),
    ("ModeText", "mode"): _one_of(["READWRITE", "READONLY"]),
    ("OffsetList", "timestamp"): _EITHER,
    ("PublishMessage", "timestamp"): _EITHER,
    ("RedriveJob", "kind"): _one_of(redrive.Kind),
    ("RedriveJob", "state"): _one_of(redrive.RedriveState),
    ("ScheduleShown", "state"): _one_of([ACTIVE, PAUSED]),
    ("ScheduleSummary", "state"): _one_of([ACTIVE, PAUSED]),
    ("TransactionPublish", "timestamp"): _EITHER,
}


def describe_fields(components: dict[str, Json]) -> None:
    """Say of every field of every type what it may hold."""
    for kind, component in components.items():
        for name, schema in component.get("properties", {}).items():
            _describe(schema, name, OF_TYPES.get((kind, name), BY_NAME.get(name, _EITHER)))


def _describe(schema: Json, name: str, words: Json) -> None:
    """Describe a field, or what is in it where it is a list, a map or may be null."""
    for inner in schema.get("anyOf", ()):
        _describe(inner, name, words)
    for inside in ("items", "additionalProperties"):
        if isinstance(schema.get(inside), dict):
            _describe(schema[inside], name, _EITHER)
    if schema.get("type") == "string" and "enum" not in schema:
        schema |= words
    if schema.get("type") == "integer" and "format" not in schema:
        is_short = name in {"partition", "partitions", "num_partitions"}
        schema["format"] = INT32 if is_short else INT64
        if schema.get("maximum") == 2**63 - 1:
            # It is what the format says.
            del schema["maximum"]
            if schema.get("minimum") == -(2**63):
                del schema["minimum"]
