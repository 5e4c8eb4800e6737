"""The OpenAPI document, made from the operations and the types they really use."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from goqueue.transport.http.operation import PATH_NAME, VERSION_PREFIX, Operation, Parameter
from goqueue.wire.http.vocabulary import INT32, INT64, PATH_PARAMETERS, describe_fields

Json = dict[str, Any]

_REFERENCE: Final = "#/components/schemas/{name}"
_TEXT: Final = """\
A durable message broker: one log, read as a stream or as a queue.

Errors are always `{"error", "status", "code"}`; programs look at `code`. Unknown fields are ignored
and null counts as absent. Times are RFC 3339, durations text such as "30s" or "1h30m".
"""
_TAGS: Final = {
    "topics": "Making, showing, changing and removing topics.",
    "messages": "Publishing and reading.",
    "groups": "Consumer groups: their members, their options and who reads what.",
    "admin": "Looking after topics.",
    "delayed": "Messages that wait for their time.",
    "schedules": "Messages that are published again and again.",
    "transactions": "Messages that are seen together, or never.",
    "stats": "What waits and what is urgent, in numbers.",
    "dlq": "Dead letters: looking at them, sending them back, throwing them away.",
    "traces": "What happened to messages, step by step.",
    "schemas": "The schema registry: what messages may look like.",
    "confluent": "The same registry at the paths of Confluent's clients.",
    "security": "Who may do what: API keys, access rules.",
    "health": "Probes, sizes and metrics.",
    "pages": "This documentation.",
}


def build_document(operations: Sequence[Operation], *, version: str) -> Json:
    """Return the document that describes these operations."""
    types: list[Any] = []
    for operation in operations:
        kinds = (operation.body, operation.reply, operation.failure)
        types += [kind for kind in kinds if _is_type(kind)]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    schema_of = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    for component in components.values():
        component["description"] = _prose(component.get("description", ""))
    describe_fields(components)
    paths: Json = {}
    for operation in operations:
        item = paths.setdefault(operation.path, _new_item(operation))
        item[operation.method.lower()] = _describe(operation, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "GoQueue", "version": version, "description": _TEXT},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {"schemas": components},
    }


def _prose(docstring: str) -> str:
    """Return what a docstring says, as Markdown on one line."""
    return " ".join(docstring.split()).replace("``", "`")


def _is_type(kind: object) -> bool:
    return kind is not None and not isinstance(kind, str)


def _new_item(operation: Operation) -> Json:
    prefixes = ["/", VERSION_PREFIX] if operation.is_versioned else ["/"]
    item: Json = {"servers": [{"url": prefix} for prefix in prefixes]}
    names = PATH_NAME.findall(operation.path)
    if names:
        item["parameters"] = [
            {"name": name, "in": "path", "required": True, **PATH_PARAMETERS[name]}
            for name in names
        ]
    return item


def _describe(operation: Operation, schema_of: Mapping[int, Json]) -> Json:
    summary = operation.text.partition("\n\n")[0]
    described: Json = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": _prose(summary),
        "description": _prose(operation.text),
        "x-goqueue-permission": operation.deed.need,
        "responses": _responses(operation, schema_of),
    }
    if operation.parameters:
        described["parameters"] = [_parameter(one) for one in operation.parameters]
    if operation.body is not None:
        content = {operation.media_type: {"schema": schema_of[id(operation.body)]}}
        described["requestBody"] = {
            "required": not operation.is_body_optional,
            "content": content,
        }
    return described


def _responses(operation: Operation, schema_of: Mapping[int, Json]) -> Json:
    content: Json
    if isinstance(operation.reply, str):
        content = {operation.reply: {"schema": {"type": "string"}}}
    else:
        content = {operation.media_type: {"schema": schema_of[id(operation.reply)]}}
    responses = {str(operation.status.value): _response(operation.status, content)}
    for status in operation.errors:
        content = {operation.media_type: {"schema": schema_of[id(operation.failure)]}}
        responses[str(status.value)] = _response(status, content)
    return responses


def _response(status: HTTPStatus, content: Json) -> Json:
    return {"description": status.phrase, "content": content}


def _parameter(parameter: Parameter) -> Json:
    schema: Json = {"type": parameter.kind}
    if parameter.kind == "integer":
        schema["format"] = INT32 if parameter.name == "partition" else INT64
    words = {
        "format": parameter.format,
        "enum": list(parameter.choices) or None,
        "minimum": parameter.least,
        "maximum": parameter.most,
        "default": parameter.default,
    }
    schema |= {word: value for word, value in words.items() if value is not None}
    return {
        "name": parameter.name,
        "in": "query",
        "required": parameter.is_required,
        "description": parameter.text,
        "schema": schema,
    }
