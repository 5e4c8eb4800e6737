"""The schema registry over HTTP, as it is described in docs/schemas.md."""

import json
from typing import Any

import pytest

from tests.transport.http.running import Running

VERSIONS = "/schemas/subjects/orders/versions"
ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
    "required": ["id"],
    "additionalProperties": False,
}


def text(schema: object, **more: object) -> dict[str, object]:
    return {"schema": json.dumps(schema), **more}


def test_schemas_are_registered_shown_and_deleted(server: Running) -> None:
    """A closed object can be registered (trap S5), found by version and by id, and deleted."""
    http = server.client
    registered = http.post(VERSIONS, json=text(ORDER))

    assert registered.status_code == 200
    assert registered.json() == {"id": 1, "version": 1}
    assert http.post(VERSIONS, json=text(ORDER)).json() == {"id": 1, "version": 1}
    assert http.get(VERSIONS).json() == [1]
    shown = {
        "subject": "orders",
        "version": 1,
        "id": 1,
        "schema": json.dumps(ORDER),
        "schemaType": "JSON",
    }
    assert http.get(f"{VERSIONS}/latest").json() == shown
    assert http.get(f"{VERSIONS}/1").json() == shown
    assert http.get("/schemas/ids/1").json() == shown
    assert http.get("/v1/schemas/subjects").json() == ["orders"]
    found = http.post("/schemas/subjects/orders", json=text(ORDER))
    assert found.json() == {"subject": "orders", "version": 1, "id": 1}
    assert http.delete(f"{VERSIONS}/1").json() == {"deleted": 1}
    assert http.get(VERSIONS).status_code == 404
    assert http.get(f"{VERSIONS}?deleted=true").json() == [1]
    assert http.get("/schemas/ids/1").json() == shown
    assert http.delete("/schemas/subjects/orders?permanent=true").json() == [1]
    assert http.get("/schemas/ids/1").status_code == 404


def test_errors_say_what_is_wrong(server: Running) -> None:
    """Each refusal has the status of its kind, and both shapes of an error."""
    http = server.client
    http.post(VERSIONS, json=text(ORDER))
    narrowed = text({**ORDER, "required": ["id", "name"]})

    def told(reply: Any) -> tuple[int, str]:
        return reply.status_code, reply.json()["error"]

    assert told(http.post(VERSIONS, json={})) == (400, "schema is required")
    assert told(http.get("/schemas/subjects/nobody/versions")) == (404, "subject not found")
    assert told(http.get(f"{VERSIONS}/x")) == (400, "invalid version number")
    assert told(http.get(f"{VERSIONS}/0")) == (400, "invalid version number")
    assert http.get(f"{VERSIONS}/7").status_code == 404
    assert http.get("/schemas/ids/x").status_code == 400
    assert http.get("/schemas/ids/7").status_code == 404
    status, error = told(http.post(VERSIONS, json=narrowed))
    assert status == 409
    assert error.startswith("schema incompatible: /name: the property is required now")
    status, error = told(http.post(VERSIONS, json=text({"type": "strin"})))
    assert status == 422
    assert error.startswith("invalid schema: ")
    nothing = http.post("/schemas/subjects/orders", json=text({"type": "null"}))
    assert told(nothing) == (404, "schema not found")
    assert nothing.json()["error_code"] == 40403
    assert nothing.json()["message"] == "schema not found"


def test_compatibility_is_asked_for_and_configured(server: Running) -> None:
    """A verdict says which path breaks; unknown modes are refused, never guessed."""
    http = server.client
    http.post(VERSIONS, json=text(ORDER))
    check = "/schemas/compatibility/subjects/orders/versions/latest"
    wider = {**ORDER, "properties": {**ORDER["properties"], "note": {"type": "string"}}}

    assert http.get("/schemas/config").json() == {"compatibility": "BACKWARD"}
    assert http.post(check, json=text(wider)).json() == {"is_compatible": True}
    verdict = http.post(
        check, json=text({**ORDER, "properties": {"id": {"type": "string"}}})
    ).json()
    assert verdict["is_compatible"] is False
    assert verdict["messages"][0].startswith("/id: the type was integer and must be string")
    assert http.put("/schemas/config", json={"compatibility": "FULL_TRANSITIVE"}).status_code == 200
    assert http.get("/schemas/config/orders").json() == {"compatibility": "FULL_TRANSITIVE"}
    assert http.put("/schemas/config/orders", json={"compatibility": "none"}).status_code == 200
    assert http.get("/schemas/config/orders").json() == {"compatibility": "NONE"}
    assert http.put("/schemas/config", json={"compatibility": "SOMETIMES"}).status_code == 422
    assert http.put("/schemas/config", json={}).status_code == 422
    assert http.get("/schemas/config").json() == {"compatibility": "FULL_TRANSITIVE"}
    assert http.post(check.replace("orders", "nobody"), json=text(ORDER)).status_code == 404
    assert http.post(check, json=text(5)).status_code == 422


@pytest.mark.parametrize("route", ["/schemas/config", "/schemas/config/a", "/config", "/config/a"])
def test_a_mode_is_set_by_either_of_its_names(server: Running, route: str) -> None:
    """Clients say ``compatibility`` or ``compatibilityLevel``; two different modes are refused."""

    def put(**body: object) -> tuple[int, object]:
        reply = server.client.put(route, json=body)
        return reply.status_code, reply.json().get("compatibility") or reply.json()["code"]

    assert put(compatibilityLevel="full") == (200, "FULL")
    assert server.get("/schemas/config/a").json() == {"compatibility": "FULL"}
    assert put(compatibility="NONE", compatibilityLevel=None) == (200, "NONE")
    assert put(compatibility="FORWARD", compatibilityLevel="FORWARD") == (200, "FORWARD")
    assert put(compatibility="FORWARD", compatibilityLevel="NONE") == (422, "invalid_compatibility")
    assert put(compatibilityLevel="SOMETIMES") == (422, "invalid_compatibility")
    assert server.get("/schemas/config/a").json() == {"compatibility": "FORWARD"}


def test_the_numbers_of_the_registry(server: Running) -> None:
    """Statistics name every subject, and whether a topic enforces it."""
    http = server.client
    config = {"schema_validation": "on"}
    http.post("/topics", json={"name": "orders", "config": config})
    http.post(VERSIONS, json=text(ORDER))

    assert http.get("/schemas/stats").json() == {
        "subjectCount": 1,
        "totalSchemas": 1,
        "globalCompatibility": "BACKWARD",
        "validationEnabled": True,
        "cachedValidators": 1,
        "subjects": [
            {
                "subject": "orders",
                "versionCount": 1,
                "latestVersion": 1,
                "latestSchemaId": 1,
                "compatibility": "BACKWARD",
                "validationEnabled": True,
            }
        ],
    }


def test_what_does_not_fit_is_refused_and_the_rest_is_published(server: Running) -> None:
    """Every message of a batch has its own result; offsets go on without a hole."""
    http = server.client
    http.post("/topics", json={"name": "orders", "num_partitions": 1})
    http.post(VERSIONS, json=text(ORDER))
    http.patch("/topics/orders/config", json={"schema_validation": "on"})
    values = ['{"id": 1}', '{"id": "x"}', "no json", '{"id": 2, "more": 1}', '{"id": 3}']

    for extra in ({}, {"priority": "high"}):
        body = {"messages": [{"value": value, **extra} for value in values]}
        results = http.post("/topics/orders/messages", json=body).json()["results"]

        assert [one["offset"] >= 0 for one in results] == [True, False, False, False, True]
        assert results[4]["offset"] == results[0]["offset"] + 1
        assert {one["code"] for one in results[1:4]} == {"schema_violation"}
        assert results[1]["error"] == (
            'subject orders version 1: /id: "x" is not of type "integer"'
        )
    read = http.get("/topics/orders/partitions/0/messages?offset=0").json()["messages"]
    assert [one["value"] for one in read] == ['{"id": 1}', '{"id": 3}'] * 2
    forwarded = {"partition": 0, "value": "e30="}
    assert http.post("/topics/orders/messages/forward", json=forwarded).status_code == 422
    metrics = http.get("/metrics").text
    assert 'goqueue_broker_schema_validations_total{result="invalid",topic="orders"} 7.0' in metrics


LOOP = {"definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}}}
CHAIN = {
    "definitions": {f"d{n}": {"$ref": f"#/definitions/d{n + 1}"} for n in range(15_000)},
    "$ref": "#/definitions/d0",
}
DEEP: dict[str, Any] = {}
for _ in range(200):
    DEEP = {"properties": {"a": DEEP}}


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("JSON", json.dumps({"$ref": "#"})),
        ("JSON", json.dumps({**LOOP, "$ref": "#/definitions/a"})),
        ("JSON", json.dumps({"allOf": [{"$ref": "#"}]})),
        ("JSON", json.dumps(DEEP)),
        ("JSON", json.dumps(CHAIN)),
        ("JSON", json.dumps({"$ref": "#/" + "%41" * 300_000})),
        ("JSON", "[" * 100_000),
        ("JSON", json.dumps({"pattern": "(?=look)"})),
        ("JSON", json.dumps({"pattern": "(a{1000}){1000}"})),
        ("JSON", json.dumps({"$ref": "file:///etc/passwd"})),
        ("JSON", json.dumps({"$schema": "http://example.com/mine"})),
        ("JSON", json.dumps({"enum": ["x" * 1_100_000]})),
        (
            "JSON",
            json.dumps(
                {
                    "definitions": {
                        **{
                            f"d{n}": {"allOf": [{"$ref": f"#/definitions/d{n + 1}"}] * 2}
                            for n in range(30)
                        },
                        "d30": {"type": "integer"},
                    },
                    "$ref": "#/definitions/d0",
                }
            ),
        ),
        ("AVRO", '{"type": "record", "name": "A", "fields": [{"name": "a", "type": "B"}]}'),
        ("AVRO", '{"type": "record"}'),
        ("AVRO", '{"type": "fixed", "name": "F", "size": "x"}'),
        ("AVRO", "5"),
        ("AVRO", "{"),
        ("PROTOBUF", "message {"),
        ("PROTOBUF", 'syntax = "proto9"; message A {}'),
        ("PROTOBUF", 'syntax = "proto3"; import "missing.proto";'),
        ("PROTOBUF", 'syntax = "proto3"; message A { A.B.C x = 1; }'),
        ("PROTOBUF", 'syntax = "proto3"; message A { int32 x = 0; }'),
        ("PROTOBUF", 'syntax = "proto3";' + "message A {" * 5_000),
        ("PROTOBUF", "/*" + "*" * 500_000),
        ("PROTOBUF", " " * 900_000 + "{"),
        ("PROTOBUF", "message A { int32 x = " + "1" * 900_000 + "; }"),
        ("PROTOBUF", "AAAA"),
        ("PROTOBUF", "\x00"),
        ("COBOL", "01 ORDER."),
    ],
)
def test_hostile_schemas_are_refused(server: Running, kind: str, schema: str) -> None:
    """What loops, explodes, fetches or is no schema is refused, and nothing of it is stored."""
    reply = server.client.post(VERSIONS, json={"schema": schema, "schemaType": kind})

    assert reply.status_code == 422, reply.text
    assert reply.json()["code"] == "invalid_schema"
    assert server.client.get("/schemas/subjects").json() == []


def test_hostile_bodies_are_refused(server: Running) -> None:
    """Bodies that are too large, no JSON or no Unicode are refused, and nothing is stored."""
    http = server.client

    assert http.post(VERSIONS, content=b"x" * 10_000_000).status_code == 413
    assert http.post(VERSIONS, content=b"{").status_code == 400
    assert http.post(VERSIONS, content=b'{"schema": "\xff"}').status_code == 400
    assert http.post(VERSIONS, content=b'{"schema": "\\ud800"}').status_code in {400, 422}
    assert http.post(VERSIONS, json={"schema": {"type": "object"}}).status_code == 400
    many = [{"name": str(n), "subject": "a", "version": 1} for n in range(500)]
    assert http.post(VERSIONS, json={"schema": "{}", "references": many}).status_code == 422
    assert http.post("/schemas/subjects/a b/versions", json={"schema": "{}"}).status_code == 400
    assert http.get("/schemas/subjects").json() == []


def test_a_transaction_is_no_way_around(server: Running) -> None:
    """What is published in a transaction is judged, too; the good ones are committed."""
    http = server.client
    http.post("/topics", json={"name": "orders", "num_partitions": 1})
    http.post(VERSIONS, json=text(ORDER))
    http.patch("/topics/orders/config", json={"schema_validation": "on"})
    who = http.post("/producers/init", json={"transactional_id": "t"}).json()
    who = {"producer_id": who["producer_id"], "epoch": who["epoch"], "transactional_id": "t"}
    http.post("/transactions/begin", json=who)
    message = {**who, "topic": "orders", "partition": 0}

    for _ in range(2):
        bad = {**message, "value": "{}", "sequence": 0}
        refused = http.post("/transactions/publish", json=bad)
        assert refused.status_code == 422, refused.text
        assert refused.json()["code"] == "schema_violation"
    good = {**message, "value": '{"id": 1}', "sequence": 1}
    assert http.post("/transactions/publish", json=good).json()["offset"] == 0
    assert http.post("/transactions/commit", json=who).status_code == 200
    read = http.get("/topics/orders/partitions/0/messages?offset=0").json()["messages"]
    assert [one["value"] for one in read] == ['{"id": 1}']
