"""From requests about schemas to what the registry takes, and back."""

import base64
import re
from collections.abc import Awaitable, Callable
from functools import wraps
from http import HTTPStatus
from typing import Any, Final

import msgspec

from goqueue.base.errors import GoQueueError, InvalidRequestError, InvalidVersionError
from goqueue.base.ids import SchemaVersion, SubjectName
from goqueue.base.limits import SCHEMA_BODY_BYTES_MAX
from goqueue.core.schemas.registry import Registry
from goqueue.core.schemas.schema import Reference, Schema, Stored, read_schema
from goqueue.transport.http.call import Call
from goqueue.transport.http.reply import JSON, Response, encode, raw_reply
from goqueue.wire.http.schemas import (
    MEDIA_TYPE,
    ReferenceText,
    SchemaDetail,
    SchemaText,
    error_of,
)

LATEST: Final = ("latest", "-1")
SERIALIZED: Final = "serialized"
_VERSION: Final = re.compile(r"[1-9]\d{0,8}", re.ASCII)
_SCHEMA: Final = msgspec.json.Decoder(SchemaText)

Method = Callable[[Any, Call], Awaitable[Response]]


def reply(
    value: Any,  # noqa: ANN401 - whatever msgspec can write
    *,
    is_confluent: bool = False,
    status: HTTPStatus = HTTPStatus.OK,
) -> Response:
    """Answer with a value as JSON."""
    return raw_reply(encode(value), status, media_type=MEDIA_TYPE if is_confluent else JSON)


def told(method: Method) -> Method:
    """Tell errors in the shape of these routes; the class says whose clients they are for."""

    @wraps(method)
    async def answer(self: Any, call: Call) -> Response:  # noqa: ANN401 - routes of either kind
        try:
            return await method(self, call)
        except GoQueueError as error:
            shown = error_of(error, is_confluent=self.is_confluent)
            status = HTTPStatus(shown.status)
            return reply(shown, is_confluent=self.is_confluent, status=status)

    return answer


async def read_text(call: Call, *, default: str) -> Schema:
    """Return the schema in a request's body."""
    text = await call.body(_SCHEMA, bytes_max=SCHEMA_BODY_BYTES_MAX)
    references = [
        Reference(
            name=one.name, subject=SubjectName(one.subject), version=SchemaVersion(one.version)
        )
        for one in text.references or ()
    ]
    return read_schema(text.schema, text.schema_type or default, references)


def read_version(call: Call) -> int | None:
    """Return the version in the path; None is the latest."""
    text = call.path["version"]
    if text in LATEST:
        return None
    if not _VERSION.fullmatch(text):
        raise InvalidVersionError("invalid version number")
    return int(text)


def read_id(call: Call) -> int:
    """Return the schema id in the path."""
    text = call.path["id"]
    if not _VERSION.fullmatch(text):
        raise InvalidRequestError("invalid schema ID")
    return int(text)


def references_of(schema: Schema) -> list[ReferenceText]:
    """Return what a schema refers to."""
    return [
        ReferenceText(name=one.name, subject=one.subject, version=one.version)
        for one in schema.references
    ]


def detail_of(registry: Registry, stored: Stored, call: Call) -> SchemaDetail:
    """Return a version; a Protobuf file as a descriptor if the request asks for that."""
    text = stored.schema.text
    if call.text("format") == SERIALIZED:
        serialized = registry.definition(stored.id).serialized()
        if serialized is not None:
            text = base64.b64encode(serialized).decode()
    return SchemaDetail(
        subject=stored.subject,
        version=stored.version,
        id=stored.id,
        schema=text,
        schema_type=stored.schema.type.value,
        references=references_of(stored.schema),
    )
