"""Dead letters over HTTP: what people see is the contract's document."""

import base64
import json
from typing import Any

import httpx
import pytest

from goqueue.core.dlq.record import STORY, Attempt, Story, write_story
from goqueue.testing.clock import FakeClock
from tests.transport.http.running import Running

SECONDS_MAX = 20


def bury(server: Running, count: int = 3, *, source: str = "orders", **fields: Any) -> None:
    """Make dead letters as the broker does."""
    server.client.post("/topics", json={"name": source, "num_partitions": 2})
    server.client.post("/topics", json={"name": f"{source}.dlq", "num_partitions": 2})
    for number in range(count):
        story = Story(
            original_topic=source,
            original_partition=1,
            original_offset=100 + number,
            original_timestamp_us=1_600_000_000_000_000,
            delivery_attempts=4,
            first_delivery_ms=1_600_000_001_000,
            last_delivery_ms=1_600_000_009_000,
            last_consumer="worker-1",
            last_group="billing",
            reason="REJECTED" if number % 2 else "MAX_RETRIES_EXCEEDED",
            last_error=f"no {number}",
            dlq_time_ms=1_600_000_010_000,
            receipt_log=[Attempt(at_ms=1_600_000_009_000, consumer="worker-1", error="boom")],
        )
        text = write_story(story, bytes_max=10_000).decode()
        message = {
            "value": f"value-{number}",
            "key": f"key-{number}",
            "partition": 1,
            "headers": {STORY: text, "color": "blue"},
            **fields,
        }
        reply = server.client.post(f"/topics/{source}.dlq/messages", json={"messages": [message]})
        assert "error" not in reply.json()["results"][0], reply.text


def finished(server: Running, job: dict[str, Any]) -> dict[str, Any]:
    """Return a job when it is over; the broker itself says when."""
    redrives = server.broker.redrives
    server.await_inside(redrives.wait(job["topic"]))
    found: dict[str, Any] = server.client.get(f"/dlq/{job['topic']}/redrives/{job['id']}").json()
    return found


def test_a_letter_is_shown_as_the_contract_says(server: Running) -> None:
    """Every field of the document, and where the letter is."""
    bury(server, 1)
    for name in ("orders", "orders.dlq"):
        page = server.client.get(f"/dlq/{name}").json()
        (letter,) = page.pop("messages")
        dlq_time = letter.pop("dlq_time")

        assert page == {
            "topic": "orders.dlq", "source": "orders", "depth": 1, "count": 1, "limit": 100,
            "skip": 0, "more": False,
        }  # fmt: skip
        assert letter == {
            "partition": 1,
            "offset": 0,
            "original_topic": "orders",
            "original_partition": 1,
            "original_offset": 100,
            "original_timestamp": "2020-09-13T12:26:40.000000000Z",
            "original_key": "key-0",
            "original_value": "value-0",
            "delivery_attempts": 4,
            "first_delivery": "2020-09-13T12:26:41.000000000Z",
            "last_delivery": "2020-09-13T12:26:49.000000000Z",
            "last_consumer": "worker-1",
            "last_group": "billing",
            "reason": "MAX_RETRIES_EXCEEDED",
            "last_error": "no 0",
            "receipt_log": [
                {"time": "2020-09-13T12:26:49.000000000Z", "consumer": "worker-1", "error": "boom"}
            ],
            "priority": "normal",
            "headers": {"color": "blue"},
        }
        assert dlq_time.endswith("Z")


def test_bytes_come_as_base64(server: Running) -> None:
    """Whatever the value is, it can be shown."""
    raw = base64.b64encode(b"\xff\x00").decode()
    bury(server, 1, value=raw, encoding="base64")
    (letter,) = server.client.get("/dlq/orders").json()["messages"]

    assert (letter["original_value"], letter["encoding"]) == (raw, "base64")


def test_the_list_says_how_many_and_since_when(server: Running) -> None:
    """Topics of dead letters, whose they are, and how deep."""
    assert server.client.get("/dlq").json() == {"dlqs": []}
    bury(server, 3)
    (one,) = server.client.get("/v1/dlq").json()["dlqs"]

    assert one.pop("oldest").endswith("Z")
    assert one == {"topic": "orders.dlq", "source": "orders", "depth": 3}


def test_a_redrive_is_tried_begun_watched_and_remembered(server: Running) -> None:
    """Dry run, job, progress, history: all tell the same."""
    bury(server, 5)
    body: dict[str, Any] = {"filter": {"reason": "REJECTED"}, "by": "ann", "max_redrives": 2}
    dry = server.client.post("/dlq/orders/redrive", json={**body, "dry_run": True})
    begun = server.client.post("/dlq/orders/redrive", json=body)
    job = finished(server, begun.json()["job"])
    history = server.client.get("/dlq/orders/redrives").json()["redrives"]
    back = server.client.get("/topics/orders/partitions/1/messages").json()["messages"]

    assert dry.status_code == 200
    assert dry.json()["matched"] == 2
    assert dry.json()["unmatched"] == 3
    assert [one["original_value"] for one in dry.json()["sample"]] == ["value-1", "value-3"]
    assert begun.status_code == 202
    assert (job["state"], job["moved"], job["unmatched"], job["total"]) == ("done", 2, 3, 5)
    assert (job["target"], job["by"], job["max_redrives"]) == ("orders", "ann", 2)
    assert job["filter"] == {"reason": "REJECTED"}
    assert history == [job]
    assert [message["value"] for message in back] == ["value-1", "value-3"]
    assert back[0]["headers"] == {"color": "blue", "goqueue-redrives": "1"}
    assert server.client.get("/dlq/orders").json()["depth"] == 3
    assert server.client.delete(f"/dlq/orders/redrives/{job['id']}").json() == job


def test_purging_throws_away_what_is_meant(server: Running) -> None:
    """First counted, then done, then gone."""
    bury(server, 4)
    dry = server.client.delete("/dlq/orders/messages?key=key-2&dry_run=true")
    begun = server.client.delete("/dlq/orders/messages?key=key-2&by=ann")
    job = finished(server, begun.json()["job"])
    left = server.client.get("/dlq/orders").json()["messages"]

    assert (dry.status_code, dry.json()["matched"]) == (200, 1)
    assert begun.status_code == 202
    assert (job["kind"], job["state"], job["moved"]) == ("purge", "done", 1)
    assert [letter["original_key"] for letter in left] == ["key-0", "key-1", "key-3"]


def test_pages_can_be_turned(server: Running) -> None:
    """By skipping, or by partition and offset; filters count."""
    bury(server, 5)

    def keys(query: str) -> list[str]:
        page = server.client.get(f"/dlq/orders?{query}").json()
        return [letter["original_key"] for letter in page["messages"]]

    assert keys("limit=2") == ["key-0", "key-1"]
    assert keys("limit=2&skip=2") == ["key-2", "key-3"]
    assert keys("partition=1&offset=3") == ["key-3", "key-4"]
    assert keys("partition=0") == []
    assert keys("reason=REJECTED&skip=1") == ["key-3"]
    assert keys("header=color%3Dblue&key_prefix=key-4") == ["key-4"]
    assert keys("header=color%3Dred") == []
    assert keys("text=NO%203") == ["key-3"]
    assert keys("until=2020-01-01T00:00:00Z") == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/dlq/nowhere", None, 404, "topic_not_found"),
        ("GET", "/dlq/nowhere.dlq", None, 404, "topic_not_found"),
        ("GET", "/dlq/__consumer_offsets", None, 404, "topic_not_found"),
        ("GET", "/dlq/%2e%2e", None, 404, "topic_not_found"),
        ("GET", "/dlq/orders?partition=7", None, 404, "partition_not_found"),
        ("GET", "/dlq/orders?offset=7", None, 400, "invalid_request"),
        ("GET", "/dlq/orders?limit=0", None, 400, "invalid_request"),
        ("GET", "/dlq/orders?since=yesterday", None, 400, "invalid_request"),
        ("GET", "/dlq/orders?key=%25&key_encoding=base64", None, 400, "invalid_request"),
        ("GET", "/dlq/orders?key=a&key_encoding=rot13", None, 400, "invalid_request"),
        ("GET", "/dlq/orders?encoding=rot13", None, 400, "invalid_request"),
        ("GET", "/dlq/orders/redrives/1", None, 404, "redrive_not_found"),
        ("GET", "/dlq/orders/redrives/one", None, 400, "invalid_request"),
        ("DELETE", "/dlq/orders/redrives/1", None, 404, "redrive_not_found"),
        ("DELETE", "/dlq/nowhere/messages", None, 404, "topic_not_found"),
        ("POST", "/dlq/orders/redrive", {"rate": -1}, 400, "invalid_request"),
        ("POST", "/dlq/orders/redrive", {"rate": 2**62}, 400, "invalid_request"),
        ("POST", "/dlq/orders/redrive", {"rate": "fast"}, 400, "invalid_request"),
        ("POST", "/dlq/orders/redrive", {"max_redrives": 10**9}, 400, "invalid_request"),
        ("POST", "/dlq/orders/redrive", {"target": "nowhere"}, 404, "topic_not_found"),
        ("POST", "/dlq/orders/redrive", {"target": "orders.dlq"}, 400, "invalid_request"),
        ("POST", "/dlq/orders/redrive", {"by": "x" * 999}, 400, "invalid_request"),
        ("POST", "/dlq/orders/redrive", {"filter": {"key": "k" * 70_000}}, 400, "invalid_request"),
        ("POST", "/dlq/orders/redrive", {"filter": {"until": "9" * 15}}, 400, "invalid_request"),
        ("POST", "/dlq/orders/redrive", {"filter": []}, 400, "invalid_request"),
    ],
)
def test_bad_requests_change_nothing(
    server: Running, method: str, path: str, body: Any, status: int, code: str
) -> None:
    """A clear error that names what is wrong."""
    bury(server, 1)
    reply = server.client.request(method, path, content=json.dumps(body) if body else None)

    assert (reply.status_code, reply.json()["code"]) == (status, code)
    assert server.client.get("/dlq/orders").json()["depth"] == 1
    assert server.client.get("/dlq/orders/redrives").json() == {"redrives": []}


def test_a_topic_without_dead_letters_has_an_empty_page(server: Running) -> None:
    """Nothing has died yet: that is no error."""
    server.client.post("/topics", json={"name": "quiet"})
    page = server.client.get("/dlq/quiet").json()

    assert (page["depth"], page["messages"], page["topic"]) == (0, [], "quiet.dlq")
    assert server.client.get("/dlq/quiet?partition=9").json()["code"] == "partition_not_found"


def test_a_topic_without_dead_letters_has_nothing_to_redrive(server: Running) -> None:
    """A redrive or purge of nothing is done at once and leaves no trace; its terms are checked."""
    http = server.client
    http.post("/topics", json={"name": "quiet"})
    redriven = http.post("/dlq/quiet/redrive", json={})
    purged = http.delete("/dlq/quiet/messages")

    assert (redriven.status_code, purged.status_code) == (202, 202)
    job = redriven.json()["job"]
    assert (job["id"], job["state"], job["moved"], job["total"]) == (0, "done", 0, 0)
    assert (job["topic"], job["target"]) == ("quiet.dlq", "quiet")
    assert purged.json()["job"]["kind"] == "purge"
    trial = http.post("/dlq/quiet/redrive", json={"dry_run": True})
    assert (trial.status_code, trial.json()["matched"]) == (200, 0)
    assert http.get("/dlq/quiet/redrives").json() == {"redrives": []}
    assert http.get("/dlq/quiet/redrives/1").json()["code"] == "redrive_not_found"
    assert http.get("/topics").json()["topics"] == ["quiet"]
    assert http.post("/dlq/quiet/redrive", json={"target": "gone"}).status_code == 404
    assert http.post("/dlq/quiet/redrive", json={"rate": -1}).status_code == 400


@pytest.mark.parametrize(
    "story",
    [
        b"", b"null", b"[]", b"{", b'{"receipt_log": 7}', b'{"original_offset": -1}',
        b'{"dlq_time_ms": 9e300}', b'{"original_timestamp_us": 4611686018427387903}', b"\xff",
        b"[" * 5_000,
    ],
    ids=repr,
)  # fmt: skip
def test_stories_of_strangers_are_harmless(server: Running, clock: FakeClock, story: bytes) -> None:
    """Anybody may publish to the topic; what is no story is shown as none and goes back by key."""
    del clock
    server.client.post("/topics", json={"name": "orders", "num_partitions": 2})
    server.client.post("/topics", json={"name": "orders.dlq", "num_partitions": 1})
    message = {
        "value": "v", "key": "k", "headers_encoding": "base64",
        "headers": {STORY: base64.b64encode(story).decode()},
    }  # fmt: skip
    server.client.post("/topics/orders.dlq/messages", json={"messages": [message]})
    peeked = server.client.get("/dlq/orders")
    begun: httpx.Response = server.client.post("/dlq/orders/redrive", json={})
    job = finished(server, begun.json()["job"])

    assert peeked.status_code == 200
    assert peeked.json()["messages"][0]["original_value"] == "v"
    assert peeked.json()["messages"][0]["reason"] == ""
    assert (job["state"], job["moved"]) == ("done", 1)


def test_the_depth_is_a_metric(server: Running) -> None:
    """Scraped, not counted: it cannot drift."""
    bury(server, 2)
    text = server.client.get("/metrics").text
    assert 'goqueue_consumer_dlq_depth{topic="orders.dlq"} 2.0' in text
