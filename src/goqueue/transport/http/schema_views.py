"""From requests about schemas to what the registry takes, and back."""

import base64
import re
from collections.abc import Awaitable, Callable
from functools import wraps
from http import HTTPStatus
from typing import Any, Final

import msgspec

from goqueue.base.errors import GoQueueError, InvalidRequestError, InvalidVersionError
from goqueue.base.limits import SCHEMA_BODY_BYTES_MAX
from goqueue.service.schemas import Compatibility, Schema, Stored
from goqueue.service.service import Service
from goqueue.transport.http.call import Call
from goqueue.transport.http.reply import JSON, Response, encode, raw_reply
from goqueue.wire.http.schemas import JSON as JSON_SCHEMA
from goqueue.wire.http.schemas import (
    MEDIA_TYPE,
    CompatibilityWanted,
    SchemaDetail,
    SchemaText,
    detail_of,
    error_of,
    level_of,
    schema_of,
)

LATEST: Final = ("latest", "-1")
SERIALIZED: Final = "serialized"
_VERSION: Final = re.compile(r"[1-9]\d{0,8}", re.ASCII)
_LEVEL: Final = msgspec.json.Decoder(CompatibilityWanted)
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


class RegistryRoutes:
    """What both kinds of routes have in common; the subclass says whose clients it is for."""

    is_confluent = False
    language = JSON_SCHEMA
    """What a schema is written in that does not say so."""

    def __init__(self, service: Service) -> None:
        self._schemas = service.schemas

    async def _text(self, call: Call) -> Schema:
        """Return the schema in a request's body."""
        text = await call.body(_SCHEMA, bytes_max=SCHEMA_BODY_BYTES_MAX)
        return schema_of(text, default=self.language)

    async def _level_in(self, call: Call) -> Compatibility:
        """Return the compatibility mode in a request's body."""
        return level_of(await call.body(_LEVEL, bytes_max=SCHEMA_BODY_BYTES_MAX))

    def _detail(self, call: Call, stored: Stored) -> SchemaDetail:
        """Return a version; a Protobuf file as a descriptor if the request asks for that."""
        text = stored.schema.text
        if call.text("format") == SERIALIZED:
            serialized = self._schemas.serialized(call.grant, stored.id)
            if serialized is not None:
                text = base64.b64encode(serialized).decode()
        return detail_of(stored, text)
