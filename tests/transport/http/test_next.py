"""Settling messages and leasing the next ones in one request."""

from typing import Any

import pytest

from tests.transport.http.queueing import Worker, fill, values
from tests.transport.http.running import Running, error_of


def take_next(worker: Worker, **fields: Any) -> Any:
    """Ask for the next message without waiting, unless the fields say otherwise."""
    body = {"member_id": worker.member, "timeout": "0s", **fields}
    reply = worker.server.post(f"/groups/{worker.group}/next", body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def messages_of(body: Any) -> list[dict[str, Any]]:
    return [one for part in body["messages"].values() for one in part]


def receipts_of(body: Any) -> list[str]:
    return [one["receipt_handle"] for one in messages_of(body)]


def test_each_job_is_one_request(server: Running) -> None:
    """What is acked does not come again, and the next one comes with the answer."""
    server.create(num_partitions=1)
    fill(server, 3)
    worker = Worker(server)
    seen: list[str] = []
    body = take_next(worker)
    while messages_of(body):
        seen += values(messages_of(body))
        body = take_next(worker, ack=receipts_of(body))

    assert seen == ["m0", "m1", "m2"]
    assert set(body) == {"messages", "next_offset", "generation", "settled", "errors"}
    assert (body["settled"], body["errors"]) == (1, [])
    offsets = server.get(f"/groups/{worker.group}/offsets").json()
    assert offsets["topics"] == {"orders": {"0": 3}}


def test_every_verb_has_its_list(server: Running) -> None:
    """Messages nacked without a delay come again with the same answer."""
    server.create(num_partitions=1)
    fill(server, 4)
    worker = Worker(server)
    first, second, third, fourth = receipts_of(take_next(worker, limit=4))
    body = take_next(
        worker, ack=[first], nack=[second], reject=[third], extend=[fourth],
        reason="why", delay="0s", extension_seconds=60,
    )  # fmt: skip

    assert (body["settled"], body["errors"]) == (4, [])
    assert [(one["value"], one["delivery_count"]) for one in messages_of(body)] == [("m1", 2)]


def test_receipts_that_settle_nothing_are_named(server: Running) -> None:
    """By verb and place; those of another group are unknown here, and the rest is settled."""
    server.create(num_partitions=1)
    fill(server, 3)
    worker, other = Worker(server), Worker(server, "shipping")
    (mine,) = receipts_of(take_next(worker))
    (theirs,) = receipts_of(take_next(other))
    body = take_next(worker, ack=[theirs, mine, mine])

    assert body["settled"] == 1
    assert sorted((one["verb"], one["index"], one["code"]) for one in body["errors"]) == [
        ("ack", 0, "unknown_receipt"),
        ("ack", 2, "stale_receipt"),
    ]
    assert values(messages_of(body)) == ["m1"]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"member_id": ""}, 400),
        ({"member_id": "stranger"}, 404),
        ({"limit": 0}, 400),
        ({"generation": -1}, 400),
        ({"timeout": "soon"}, 400),
        ({"timeout": "-1s"}, 400),
        ({"encoding": "hex"}, 400),
        ({"ack": ["none"]}, 400),
        ({"ack": "none"}, 400),
        ({"nack": ["orders:0:0:1:0000000000000000"], "delay": "soon"}, 400),
        ({"extend": ["orders:0:0:1:0000000000000000"]}, 400),
        ({"generation": 99}, 409),
    ],
)
def test_bad_requests_change_nothing(server: Running, fields: Any, status: int) -> None:
    """Not even what is good in them is done."""
    server.create(num_partitions=1)
    fill(server, 2)
    worker = Worker(server)
    (receipt,) = receipts_of(take_next(worker))
    body = {"member_id": worker.member, "timeout": "0s", "reject": [receipt], **fields}
    reply = server.post(f"/groups/{worker.group}/next", body)

    assert reply.status_code == status, error_of(reply)
    assert take_next(worker, ack=[receipt])["settled"] == 1
