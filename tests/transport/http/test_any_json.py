"""Whatever JSON is sent, the broker answers it, and stores exactly what it says it stored."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transport.http.running import Running

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
FIELDS = {
    "key": st.text(max_size=5),
    "partition": st.integers(-1, 3),
    "priority": st.sampled_from(["low", "High", "none", ""]),
    "headers": st.dictionaries(st.text(max_size=5), st.none() | st.text(max_size=5), max_size=3),
    "encoding": st.sampled_from(["base64", "text", "hex"]),
    "key_encoding": st.sampled_from(["base64", "text"]),
    "headers_encoding": st.sampled_from(["base64", "text"]),
    "dedup_id": st.text(max_size=3),
    "timestamp": st.sampled_from(["2023-11-14T00:00:00Z", "soon", "1960-01-01T00:00:00Z"]),
    "delay": st.sampled_from(["1h", "-5s", "", "soon", "900000h"]),
    "deliverAt": st.sampled_from(["2023-11-14T00:00:00Z", "2093-11-14T00:00:00Z", "then"]),
    "delay_id": st.text(max_size=3),
    "unknown": VALUES,
}
LIKELY = st.fixed_dictionaries({"value": st.text(max_size=30)}, optional=FIELDS)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("any")) as server:
        server.create(config={"durability": "os", "dedup_window_ms": "1h"})
        yield server


def stored(server: Running) -> int:
    count: int = server.get("/topics/orders").json()["total_messages"]
    return count


@given(body=VALUES | st.fixed_dictionaries({"messages": st.lists(VALUES | LIKELY, max_size=5)}))
def test_any_json_is_answered(broker: Running, body: object) -> None:
    """A publish of anything is taken or refused with a reason, never an internal error."""
    reply = broker.post("/topics/orders/messages", body)

    assert reply.status_code in {200, 400}
    if reply.status_code == 400:
        assert reply.json()["error"]


@given(messages=st.lists(LIKELY, min_size=1, max_size=8))
def test_what_is_acknowledged_is_what_is_stored(
    broker: Running, messages: list[dict[str, Any]]
) -> None:
    """Results and the log agree: every new offset holds the message that was sent."""
    before = stored(broker)
    results = broker.publish(*messages)
    placed = [
        (message, result)
        for message, result in zip(messages, results, strict=True)
        if "error" not in result
    ]
    places = {(result["partition"], result["offset"]) for _, result in placed}

    assert len(results) == len(messages)
    assert stored(broker) - before <= len(places)
    for message, result in placed:
        page = broker.read(result["partition"], offset=result["offset"], limit=1, delayed="show")
        if "dedup_id" not in message and message.get("encoding") != "base64":
            assert page["messages"][0]["value"] == message["value"]


@given(body=VALUES | st.fixed_dictionaries({"name": VALUES}, optional={"config": VALUES}))
def test_any_topic_is_answered(broker: Running, body: object) -> None:
    """A topic made of anything is made or refused, never an internal error."""
    reply = broker.post("/topics", body)

    assert reply.status_code in {201, 400, 409}
    if reply.status_code == 201:
        assert broker.client.delete(f"/topics/{reply.json()['name']}").status_code == 200


JOINS = st.fixed_dictionaries(
    {"client_id": st.just("a") | VALUES, "topics": st.just(["orders"]) | VALUES},
    optional={
        "member_id": VALUES,
        "protocol": st.sampled_from(["eager", "cooperative"]) | VALUES,
        "assignor": st.sampled_from(["sticky", "range"]) | VALUES,
        "mode": st.sampled_from(["shared", "exclusive"]) | VALUES,
        "visibility_timeout": st.sampled_from(["1s", "13h", "-1s"]) | VALUES,
        "max_retries": st.integers() | VALUES,
        "auto_commit": VALUES,
    },
)
SAYINGS = st.fixed_dictionaries(
    {"member_id": st.text(max_size=5) | VALUES},
    optional={"generation": st.integers() | VALUES, "revoked_partitions": VALUES},
)


@given(body=VALUES | JOINS, route=st.sampled_from(["join", "join/cooperative"]))
def test_any_join_is_answered(broker: Running, body: object, route: str) -> None:
    """A join of anything makes a member or is refused with a reason; and a refused one no group."""
    reply = broker.post(f"/groups/any/{route}", body)

    assert reply.status_code in {200, 400, 404, 409}
    if reply.status_code == 200:
        assert broker.client.delete("/groups/any", params={"force": "1"}).status_code == 200
    assert broker.get("/groups").json() == {"groups": []}


@given(
    body=VALUES | SAYINGS,
    route=st.sampled_from(
        ["heartbeat", "heartbeat/cooperative", "leave", "leave/cooperative", "revoke"]
    ),
)
def test_any_word_of_a_member_is_answered(broker: Running, body: object, route: str) -> None:
    """Whatever a stranger says to a group, it is refused and the group stays as it is."""
    joined = broker.post("/groups/words/join", {"client_id": "a", "topics": ["orders"]}).json()
    reply = broker.post(f"/groups/words/{route}", body)
    shown = broker.get("/groups/words").json()
    broker.client.delete("/groups/words", params={"force": "true"})

    assert reply.status_code in {400, 404, 409}
    assert [member["id"] for member in shown["members"]] == joined["members"]
    assert shown["generation"] == joined["generation"]
