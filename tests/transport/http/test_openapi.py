"""The OpenAPI document is the API, and the API is the document."""

import json
import re
from typing import Any

import pytest

from goqueue.base.deeds import Deed
from goqueue.service.service import Service
from goqueue.transport.http.api import operations
from goqueue.transport.http.app import App
from tests.transport.http.running import Running

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
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
        for path, resource in App(operations(Service(server.broker))).resources.items()
        for method in resource.methods
    }
    described = {
        (place["url"].rstrip("/") + path if path != "/" else path, method)
        for path, item in document["paths"].items()
        for place in item["servers"]
        for method in METHODS & set(item)
    }

    assert described == {(path, method) for path, method in routed if method != "head"}


def test_every_operation_says_which_permission_it_needs(document: dict[str, Any]) -> None:
    """Who writes a client, or grants access, sees what each request will be asked for."""
    needs = {
        one["operationId"]: one["x-goqueue-permission"] for *_, one in every_operation(document)
    }

    assert needs["publish_messages"] == "write topic"
    assert needs["poll_group"] == "read group"
    assert needs["health"] == "nothing"
    assert set(needs.values()) == {deed.need for deed in Deed} - {Deed.TX_ABORT.need}


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
    is_moment = schema.get("format") == "date-time"
    is_right = not is_moment or MOMENT.fullmatch(str(value)) is not None
    return bool(schema["type"] == kinds[type(value)] and is_right)


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
        (
            "POST",
            "/groups/g/join",
            "/groups/{group}/join",
            {"client_id": "c", "topics": ["orders"]},
        ),
        ("GET", "/groups", "/groups", None),
        ("GET", "/groups/known", "/groups/{group}", None),
        ("GET", "/groups/known/cooperative", "/groups/{group}/cooperative", None),
        ("GET", "/groups/known/lag", "/groups/{group}/lag", None),
        ("GET", "/groups/known/offsets", "/groups/{group}/offsets", None),
        ("GET", "/groups/known/rebalance/stats", "/groups/{group}/rebalance/stats", None),
        ("GET", "/traces", "/traces", None),
        ("GET", "/dlq", "/dlq", None),
        ("GET", "/topics/orders/delayed", "/topics/{topic}/delayed", None),
        (
            "POST",
            "/schedules",
            "/schedules",
            {"name": "s", "topic": "orders", "value": "v", "cron": "* * * * *", "priority": "low"},
        ),
        (
            "POST",
            "/schedules",
            "/schedules",
            {"name": "t", "topic": "orders", "value": "v", "every": "1h", "key": "k"},
        ),
        ("GET", "/schedules", "/schedules", None),
        ("POST", "/schedules/none/pause", "/schedules/{schedule}/pause", None),
        ("GET", "/transactions", "/transactions", None),
        ("GET", "/config", "/config", None),
        ("PUT", "/config", "/config", {"compatibility": "FULL"}),
        ("GET", "/mode", "/mode", None),
        ("GET", "/schemas/types", "/schemas/types", None),
        ("POST", "/subjects/s/versions", "/subjects/{subject}/versions", {"schema": "{}"}),
        ("GET", "/subjects/none/versions", "/subjects/{subject}/versions", None),
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
    server.publish({"value": "later", "delay": "1h"})
    server.post("/groups/known/join", {"client_id": "c", "topics": ["orders"]})
    reply = server.client.request(method, path, json=body)

    operation = document["paths"][described][method.lower()]
    answer = operation["responses"][str(reply.status_code)]
    schema = answer["content"][reply.headers["content-type"]]["schema"]
    assert conforms(reply.json(), schema, document["components"]["schemas"]), reply.text


def test_the_document_says_what_names_stand_for(document: dict[str, Any]) -> None:
    """A generated client has numbers for numbers, and knows what may be chosen."""
    read = document["paths"]["/topics/{topic}/partitions/{partition}/messages"]
    path = {one["name"]: one["schema"] for one in read["parameters"]}
    query = {one["name"]: one["schema"] for one in read["get"]["parameters"]}
    schemas = document["components"]["schemas"]

    assert path["partition"] == {"type": "integer", "format": "int32", "minimum": 0}
    assert path["topic"]["maxLength"] == 249
    assert query["offset"]["type"] == "integer"
    assert (query["limit"]["minimum"], query["limit"]["maximum"]) == (1, 1_000)
    assert query["isolation"]["enum"] == ["read_committed", "read_uncommitted"]
    delayed = document["paths"]["/topics/{topic}/delayed/{partition}/{offset}"]["parameters"]
    assert [one["schema"]["type"] for one in delayed] == ["string", "integer", "integer"]
    stored = schemas["StoredMessage"]["properties"]
    assert stored["timestamp"]["format"] == "date-time"
    assert stored["priority"]["enum"] == ["critical", "high", "normal", "low", "background"]
    assert schemas["GroupSummary"]["properties"]["state"]["enum"][0] == "Empty"


def test_every_whole_number_says_how_large_it_may_be(document: dict[str, Any]) -> None:
    """With a format, and without bounds that are those of the format."""
    numbers = [*_integers(document["components"]), *_integers(document["paths"])]

    assert {number["format"] for number in numbers} == {"int32", "int64"}
    assert all(abs(number.get("minimum", 0)) < 2**63 for number in numbers)


def _integers(part: object) -> list[dict[str, Any]]:
    """Return every schema of a whole number that is a field, a parameter or a part of one."""
    if isinstance(part, list):
        return [one for item in part for one in _integers(item)]
    if not isinstance(part, dict):
        return []
    found = [one for name, item in part.items() if name != "content" for one in _integers(item)]
    return [*found, part] if part.get("type") == "integer" else found


def test_every_operation_and_parameter_is_described(document: dict[str, Any]) -> None:
    """In words, the whole story in one place; topics come before what is done with them."""
    for path, method, operation in every_operation(document):
        assert operation["description"].startswith(operation["summary"]), (path, method)
        parameters = [
            *operation.get("parameters", ()),
            *document["paths"][path].get("parameters", ()),
        ]
        assert all(parameter["description"] for parameter in parameters), (path, method)
    tags = [tag["name"] for tag in document["tags"]]
    assert tags.index("topics") < tags.index("messages") < tags.index("groups")


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
