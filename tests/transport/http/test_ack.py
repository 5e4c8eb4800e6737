"""Settling over HTTP, one message at a time: the contract's answers and its refusals."""

from typing import Any

import pytest

from goqueue.testing.clock import FakeClock
from tests.transport.http.queueing import Worker, fill, tick, values
from tests.transport.http.running import Running, error_of

VERBS = ["ack", "nack", "reject", "visibility"]
EXTRA: dict[str, dict[str, Any]] = {"visibility": {"extension_seconds": 5}}


@pytest.fixture
def worker(server: Running) -> Worker:
    server.create(num_partitions=1)
    fill(server, 4)
    return Worker(server)


def test_acks_commit_in_order(worker: Worker) -> None:
    """An ack advances the committed offset when the prefix is done, and not before (trap A2)."""
    first, second, third = worker.poll(3)
    later = worker.settle("ack", second, consumer_id="ignored").json()
    earlier = worker.settle("ack", first).json()

    assert later == {
        "success": True,
        "topic": "orders",
        "partition": 0,
        "offset": 1,
        "committed_offset": 0,
        "offset_advanced": False,
        "in_flight_count": 2,
    }
    assert (earlier["committed_offset"], earlier["offset_advanced"]) == (2, True)
    assert earlier["in_flight_count"] == 1
    assert values(worker.poll()) == ["m3"]
    assert third["offset"] == 2


def test_a_nack_brings_the_message_back(worker: Worker, clock: FakeClock) -> None:
    """It is delivered again after the group's backoff, under a new receipt (trap A4)."""
    (message,) = worker.poll(1)
    nacked = worker.settle("nack", message, reason="busy").json()
    before = worker.poll(1)
    clock.advance(1_000)
    tick(worker.server)
    (again,) = [one for one in worker.poll() if one["offset"] == 0]

    assert nacked == {
        "success": True,
        "action": "requeued",
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "delivery_count": 1,
        "next_visible_at": "2023-11-14T22:13:21.000000000Z",
    }
    assert values(before) == ["m1"]
    assert again["delivery_count"] == 2
    assert again["receipt_handle"] != message["receipt_handle"]


def test_a_nack_may_choose_its_delay(worker: Worker, clock: FakeClock) -> None:
    """``delay`` takes the place of the backoff."""
    (message,) = worker.poll(1)
    nacked = worker.settle("nack", message, delay="1m").json()
    clock.advance(59_999)
    tick(worker.server)

    assert nacked["next_visible_at"] == "2023-11-14T22:14:20.000000000Z"
    assert "m0" not in values(worker.poll())


def test_too_many_failures_make_a_dead_letter(server: Running) -> None:
    """After ``max_retries`` the answer is "dlq", and the message does not come again (trap A4)."""
    server.create(num_partitions=1)
    fill(server, 1)
    worker = Worker(server, max_retries=2)
    actions = []
    for _ in range(3):
        (message,) = worker.poll()
        actions.append(worker.settle("nack", message, delay="0s").json())

    assert [one["action"] for one in actions] == ["requeued", "requeued", "dlq"]
    assert actions[-1]["dlq_topic"] == "orders.dlq"
    assert "next_visible_at" not in actions[-1]
    assert worker.poll() == []


@pytest.mark.parametrize("reason", ["malformed", "", None])
def test_a_rejection_settles(worker: Worker, reason: str | None) -> None:
    """A rejected message is a dead letter and is not delivered again (trap A5)."""
    (message,) = worker.poll(1)
    fields = {} if reason is None else {"reason": reason}
    rejected = worker.settle("reject", message, **fields).json()

    assert rejected == {
        "success": True,
        "action": "rejected",
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "dlq_topic": "orders.dlq",
        "reason": reason or "",
    }
    assert values(worker.poll()) == ["m1", "m2", "m3"]


@pytest.mark.parametrize("fields", [{"extension_seconds": 90}, {"timeout": "1m30s"}])
def test_a_lease_can_be_extended(worker: Worker, clock: FakeClock, fields: dict[str, Any]) -> None:
    """The new deadline counts from now; the message is held until then and no longer."""
    (message,) = worker.poll(1)
    clock.advance(10_000)
    extended = worker.settle("visibility", message, **fields).json()
    clock.advance(89_999)
    tick(worker.server)
    in_time = worker.settle("visibility", message, extension_seconds=1)
    clock.advance(1_000)
    too_late = worker.settle("ack", message)

    assert extended == {
        "success": True,
        "new_deadline": "2023-11-14T22:15:00.000000000Z",
        "extended_by": "1m30s",
    }
    assert in_time.status_code == 200
    assert too_late.status_code == 410


@pytest.mark.parametrize("verb", VERBS)
def test_a_used_receipt_settles_nothing(worker: Worker, verb: str) -> None:
    """What is settled, or was delivered again, answers 409 and is left as it is."""
    first, second = worker.poll(2)
    assert worker.settle("ack", first).status_code == 200
    assert worker.settle("nack", second, delay="0s").status_code == 200
    (again,) = worker.poll(1)
    used = worker.settle(verb, first, **EXTRA.get(verb, {}))
    superseded = worker.settle(verb, second, **EXTRA.get(verb, {}))

    assert (used.status_code, used.json()["code"]) == (409, "stale_receipt")
    assert (superseded.status_code, superseded.json()["code"]) == (409, "stale_receipt")
    assert worker.settle("ack", again).json()["committed_offset"] == 2


@pytest.mark.parametrize("verb", VERBS)
def test_an_expired_receipt_settles_nothing(worker: Worker, clock: FakeClock, verb: str) -> None:
    """When the lease is over the answer is 410, before and after the broker noticed."""
    (message,) = worker.poll(1)
    clock.advance(30_000)
    unnoticed = worker.settle(verb, message, **EXTRA.get(verb, {}))
    tick(worker.server)
    noticed = worker.settle(verb, message, **EXTRA.get(verb, {}))

    assert (unnoticed.status_code, unnoticed.json()["code"]) == (410, "receipt_expired")
    assert (noticed.status_code, noticed.json()["code"]) == (410, "receipt_expired")


@pytest.mark.parametrize("verb", VERBS)
def test_forged_receipts_are_unknown(worker: Worker, verb: str) -> None:
    """Another nonce, offset, count, partition or topic than was given out answers 404 (trap D3)."""
    (message,) = worker.poll(1)
    topic, partition, offset, count, nonce = message["receipt_handle"].split(":")
    forged = [
        f"{topic}:{partition}:{offset}:{count}:{'0' * 16}",
        f"{topic}:{partition}:3:{count}:{nonce}",
        f"{topic}:{partition}:{offset}:7:{nonce}",
        f"{topic}:9:{offset}:{count}:{nonce}",
        f"refunds:{partition}:{offset}:{count}:{nonce}",
        f"{topic}:{partition}:{'9' * 19}:{count}:{nonce}",
    ]
    replies = [
        worker.settle(verb, {"receipt_handle": text}, **EXTRA.get(verb, {})) for text in forged
    ]

    assert [(one.status_code, one.json()["code"]) for one in replies] == [
        (404, "unknown_receipt")
    ] * len(forged)
    assert worker.settle("ack", message).status_code == 200


GARBAGE = [
    "",
    "x",
    "orders:0:0:1",
    "orders:0:0:1:XYZ",
    "orders:-1:0:1:" + "0" * 16,
    "../etc:0:0:1:" + "0" * 16,
    "orders:0:0:1:" + "0" * 16 + "\n",
    "orders:0:0:1:" + "0" * 17,
    "é:0:0:1:" + "0" * 16,
    "a" * 100_000,
]


@pytest.mark.parametrize("verb", VERBS)
def test_garbage_is_no_receipt(worker: Worker, verb: str) -> None:
    """What was never a receipt answers 400 with the contract's text where it is absent."""
    replies = [
        worker.settle(verb, {"receipt_handle": text}, **EXTRA.get(verb, {})) for text in GARBAGE
    ]
    absent = worker.server.post(f"/messages/{verb}", EXTRA.get(verb, {}))
    wrong = worker.server.post(f"/messages/{verb}", {"receipt_handle": 5})

    assert {one.status_code for one in replies} == {400}
    assert error_of(absent) == (400, "receipt_handle is required")
    assert error_of(replies[0]) == (400, "receipt_handle is required")
    assert error_of(wrong)[0] == 400


BAD_TERMS = [
    ("visibility", {}, "extension_seconds must be positive"),
    ("visibility", {"extension_seconds": 0}, "extension_seconds must be positive"),
    ("visibility", {"extension_seconds": -1}, "extension_seconds must be positive"),
    ("visibility", {"extension_seconds": 2**62}, "extension_seconds: the longest is 12h0m0s"),
    ("visibility", {"timeout": "soon"}, "timeout: 'soon' is not a duration"),
    ("visibility", {"timeout": "0s"}, "timeout must be positive"),
    ("nack", {"delay": "tomorrow"}, "delay: 'tomorrow' is not a duration"),
    ("nack", {"delay": "-1s"}, "delay: must be between 0s and 168h0m0s"),
    ("nack", {"delay": "8d"}, "delay: must be between 0s and 168h0m0s"),
]


@pytest.mark.parametrize(("verb", "fields", "text"), BAD_TERMS)
def test_bad_terms_are_refused(
    worker: Worker, verb: str, fields: dict[str, Any], text: str
) -> None:
    """A delay or extension that makes no sense answers 400 and leaves the message leased."""
    (message,) = worker.poll(1)
    status, found = error_of(worker.settle(verb, message, **fields))

    assert status == 400
    assert found.startswith(text)
    assert worker.settle("ack", message).status_code == 200


def test_long_reasons_are_cut(worker: Worker) -> None:
    """A reason of any length is taken, and what is kept of it survives a restart."""
    (message,) = worker.poll(1)
    rejected = worker.settle("reject", message, reason="é" * 100_000).json()

    assert len(rejected["reason"]) == 1_000


def test_a_receipt_outlives_neither_its_group_nor_its_topic(worker: Worker) -> None:
    """When the group or the topic is gone, so are its receipts: 404."""
    first, second = worker.poll(2)
    worker.server.client.delete("/topics/orders")
    gone = worker.settle("ack", first)
    worker.server.create(num_partitions=1)
    fill(worker.server, 4)
    made_anew = worker.settle("ack", first)
    worker.server.client.delete("/groups/billing", params={"force": "true"})
    groupless = worker.settle("ack", second)

    assert [one.status_code for one in (gone, made_anew, groupless)] == [404, 404, 404]


def test_settling_keeps_a_member_alive(worker: Worker, clock: FakeClock) -> None:
    """An ack counts as a heartbeat: a member that only works is not thrown out."""
    messages = worker.poll()
    for message in messages[:3]:
        clock.advance(20_000)
        worker.settle("visibility", messages[3], extension_seconds=60)
        worker.server.inside(worker.server.broker.groups.sweep)
        worker.settle("ack", message)

    assert worker.ask().status_code == 200


def test_the_reliability_stats_count(worker: Worker, clock: FakeClock) -> None:
    """``/reliability/stats`` has the contract's counts, all of them really counted."""
    first, second, third, fourth = worker.poll()
    worker.settle("ack", first)
    worker.settle("nack", second)
    worker.settle("reject", third)
    worker.settle("visibility", fourth, extension_seconds=20)
    worker.server.await_inside(worker.server.broker.dead_letters.idle())
    before = worker.server.get("/reliability/stats").json()
    clock.advance(20_000)
    tick(worker.server)
    after = worker.server.get("/reliability/stats").json()

    assert before["ack_manager"] == {
        "total_acks": 1,
        "total_nacks": 1,
        "total_rejects": 1,
        "total_expired": 0,
        "total_retries": 1,
        "total_dlq": 1,
        "current_queued": 1,
    }
    assert before["visibility_tracker"] == {
        "total_tracked": 4,
        "current_in_flight": 1,
        "total_expired": 0,
        "total_acked": 1,
        "total_extended": 1,
    }
    assert before["dlq"] == {
        "total_routed": 1,
        "routes_by_reason": {"REJECTED": 1},
        "routes_by_topic": {"orders": 1},
        "create_errors": 0,
        "publish_errors": 0,
    }
    assert after["visibility_tracker"]["current_in_flight"] == 0
    assert after["ack_manager"]["total_expired"] == 1
