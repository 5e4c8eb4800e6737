"""The OpenAPI document is the API, and the API is the document."""

import json
import re
from typing import Any

import pytest

from goqueue.transport.http.api import operations
from goqueue.transport.http.app import App
from tests.transport.http.running import Running

METHODS = {"get", "post", "put", "patch", "delete"}


@pytest.fixture
def document(server: Running) -> dict[str, Any]:
    reply = server.get("/openapi.json")
    assert reply.headers["content-type"] == "application/json"
    document: dict[str, Any] = reply.json()
    return document


def every_operation(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, item[method])
        for path, item in document["paths"].items()
        for method in METHODS & set(item)
    ]


def test_every_route_is_described_and_every_description_is_a_route(
    server: Running, document: dict[str, Any]
) -> None:
    """No route is missing from the document, and nothing in it is made up."""
    routed = {
        (path, method.lower())
        for path, resource in App(operations(server.broker)).resources.items()
        for method in resource.methods
    }
    described = {
        (place["url"].rstrip("/") + path if path != "/" else path, method)
        for path, item in document["paths"].items()
        for place in item["servers"]
        for method in METHODS & set(item)
    }

    assert described == {(path, method) for path, method in routed if method != "head"}


def test_the_document_is_well_formed(document: dict[str, Any]) -> None:
    """OpenAPI 3.1 with unique names, a description of every reply, and no loose reference."""
    names = [operation["operationId"] for _, _, operation in every_operation(document)]
    references = set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(document)))
    tags = {tag["name"] for tag in document["tags"]}

    assert document["openapi"] == "3.1.0"
    assert len(names) == len(set(names))
    assert references <= set(document["components"]["schemas"])
    for path, method, operation in every_operation(document):
        assert operation["summary"], (path, method)
        assert set(operation["tags"]) <= tags
        assert operation["responses"]
        assert all(reply["description"] for reply in operation["responses"].values())
        declared = {
            parameter["name"] for parameter in document["paths"][path].get("parameters", ())
        }
        assert declared == set(re.findall(r"{(\w+)}", path))


def conforms(value: object, schema: dict[str, Any], schemas: dict[str, Any]) -> bool:
    """Check a value against the few words of JSON Schema the document uses."""
    if "$ref" in schema:
        return conforms(value, schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "anyOf" in schema:
        return any(conforms(value, one, schemas) for one in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return (
            schema["type"] == "object"
            and set(schema.get("required", ())) <= set(value)
            and (not properties or set(value) <= set(properties))
            and all(
                conforms(
                    item, properties.get(name, schema.get("additionalProperties", {})), schemas
                )
                for name, item in value.items()
                if name in properties or isinstance(schema.get("additionalProperties"), dict)
            )
        )
    if isinstance(value, list):
        return schema["type"] == "array" and all(
            conforms(item, schema["items"], schemas) for item in value
        )
    kinds = {bool: "boolean", int: "integer", str: "string", float: "number", type(None): "null"}
    return bool(schema["type"] == kinds[type(value)])


@pytest.mark.parametrize(
    ("method", "path", "described", "body"),
    [
        ("POST", "/topics", "/topics", {"name": "new"}),
        ("GET", "/topics", "/topics", None),
        ("GET", "/topics/orders", "/topics/{topic}", None),
        ("GET", "/topics/orders/config", "/topics/{topic}/config", None),
        ("PATCH", "/topics/orders/config", "/topics/{topic}/config", {"retention_ms": "1h"}),
        ("PUT", "/topics/orders/config", "/topics/{topic}/config", {}),
        ("GET", "/topics/orders/partitions", "/topics/{topic}/partitions", None),
        (
            "POST",
            "/topics/orders/messages",
            "/topics/{topic}/messages",
            {"messages": [{"value": "a", "priority": "low"}, {"value": "b", "partition": 99}]},
        ),
        (
            "POST",
            "/topics/orders/messages/forward",
            "/topics/{topic}/messages/forward",
            {"value": "", "partition": 0},
        ),
        (
            "POST",
            "/topics/orders/messages/forward",
            "/topics/{topic}/messages/forward",
            {"value": "", "partition": 99},
        ),
        (
            "POST",
            "/topics/orders/messages/forward",
            "/topics/{topic}/messages/forward",
            {"value": 5},
        ),
        (
            "GET",
            "/topics/orders/partitions/0/messages",
            "/topics/{topic}/partitions/{partition}/messages",
            None,
        ),
        ("POST", "/admin/topics/kept/compact", "/admin/topics/{topic}/compact", None),
        ("POST", "/admin/topics/orders/compact", "/admin/topics/{topic}/compact", {}),
        ("POST", "/admin/topics/none/compact", "/admin/topics/{topic}/compact", {}),
        ("GET", "/topics/orders/offsets?timestamp=latest", "/topics/{topic}/offsets", None),
        ("GET", "/health", "/health", None),
        ("GET", "/healthz", "/healthz", None),
        ("GET", "/livez", "/livez", None),
        ("GET", "/readyz?verbose=true", "/readyz", None),
        ("GET", "/version", "/version", None),
        ("GET", "/stats", "/stats", None),
        ("DELETE", "/topics/orders", "/topics/{topic}", None),
        ("GET", "/topics/none", "/topics/{topic}", None),
        ("POST", "/topics", "/topics", {"name": ".."}),
    ],
)
def test_a_reply_is_what_the_document_says(
    server: Running,
    document: dict[str, Any],
    method: str,
    path: str,
    described: str,
    body: object,
) -> None:
    """The body of each reply conforms to the schema given for its status."""
    server.create()
    server.create("kept", config={"cleanup_policy": "compact"})
    server.publish({"value": "v", "key": "k", "headers": {"a": "b"}, "partition": 0})
    reply = server.client.request(method, path, json=body)

    operation = document["paths"][described][method.lower()]
    answer = operation["responses"][str(reply.status_code)]
    schema = answer["content"]["application/json"]["schema"]
    assert conforms(reply.json(), schema, document["components"]["schemas"]), reply.text


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/metrics"])
def test_a_failing_probe_is_what_the_document_says(
    server: Running, document: dict[str, Any], path: str
) -> None:
    """Where a probe fails its reply conforms too."""
    server.await_inside(server.broker.stop())
    reply = server.get(path)

    answer = document["paths"][path]["get"]["responses"]["503"]
    schema = answer["content"]["application/json"]["schema"]
    assert reply.status_code == 503
    assert conforms(reply.json(), schema, document["components"]["schemas"]), reply.text
