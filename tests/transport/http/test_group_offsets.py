"""Committed offsets over HTTP: commit, show, reset, lag."""

from typing import Any

import pytest

from goqueue.testing.clock import FakeClock
from tests.transport.http.queueing import Worker, fill, values
from tests.transport.http.running import Running, error_of


@pytest.fixture
def worker(server: Running) -> Worker:
    server.create(num_partitions=2)
    for partition in (0, 1):
        fill(server, 5, partition=partition)
    return Worker(server)


def commit(worker: Worker, offsets: Any, **fields: Any) -> Any:
    body = {"member_id": worker.member, "offsets": offsets, **fields}
    return worker.server.post(f"/groups/{worker.group}/offsets", body)


def test_an_owner_commits_offsets(worker: Worker) -> None:
    """What lies before a committed offset is settled; the group shows where it reads on."""
    done = commit(worker, {"orders": {"0": 3, "1": 5}}, generation=worker.generation)
    shown = worker.server.get("/groups/billing/offsets").json()

    assert (done.status_code, done.json()) == (
        200,
        {"status": "committed", "group": "billing", "offsets": {"orders": {"0": 3, "1": 5}}},
    )
    assert shown == {
        "group_id": "billing",
        "topics": {"orders": {"0": 3, "1": 5}},
        "generation": 1,
        "updated_at": "2023-11-14T22:13:20.000000000Z",
    }
    assert values(worker.poll()) == ["m3", "m4"]


def test_only_the_owner_commits(worker: Worker) -> None:
    """A partition of another member answers 403, an old generation 409 (traps G3, E3)."""
    other = Worker(worker.server)
    commits = worker.server.metric
    series = (
        'goqueue_consumer_offset_commit_errors_total{consumer_group="billing",'
        'error_type="stale_generation",topic="orders"}'
    )
    taken = [commit(other, {"orders": {str(p): 1}}, generation=0) for p in (0, 1)]
    stale = commit(worker, {"orders": {"0": 1}}, generation=worker.generation)

    assert sorted(one.status_code for one in taken) == [200, 403]
    refused = next(one for one in taken if one.status_code == 403)
    assert error_of(refused) == (403, "partition not assigned to this member")
    assert error_of(stale)[0] == 409
    assert commits(series) == 1


BAD_COMMITS = [
    ({"offsets": {"orders": {"0": 1}}}, 400, "member_id is required"),
    ({"member_id": "", "offsets": {}}, 400, "member_id is required"),
    ({"member_id": "ME"}, 400, "offsets is required"),
    ({"member_id": "ME", "offsets": {"orders": {"x": 1}}}, 400, "offsets.orders.x: not"),
    ({"member_id": "ME", "offsets": {"orders": {"-1": 1}}}, 400, "offsets.orders.-1: not"),
    ({"member_id": "ME", "offsets": {"orders": {"0": -1}}}, 400, "offsets"),
    ({"member_id": "ME", "offsets": {"orders": {"0": 2**63}}}, 400, "offsets"),
    ({"member_id": "ME", "offsets": {"orders": {"0": 6}}}, 400, "orders"),
    ({"member_id": "ME", "offsets": {"orders": {"9": 0}}}, 403, "partition not assigned"),
    ({"member_id": "ME", "offsets": {"nothing": {"0": 0}}}, 403, "partition not assigned"),
    ({"member_id": "stranger", "offsets": {"orders": {"0": 1}}}, 404, "member not found"),
]


@pytest.mark.parametrize(("body", "status", "text"), BAD_COMMITS)
def test_bad_commits_are_refused(
    worker: Worker, body: dict[str, Any], status: int, text: str
) -> None:
    """What cannot be committed is refused as a whole, and nothing moves."""
    said = {**body, **({"member_id": worker.member} if body.get("member_id") == "ME" else {})}
    found = error_of(worker.server.post("/groups/billing/offsets", said))
    shown = worker.server.get("/groups/billing/offsets").json()

    assert found[0] == status
    assert found[1].startswith(text)
    assert set(shown["topics"].get("orders", {}).values()) <= {0}


def test_an_unknown_group_has_no_offsets(server: Running) -> None:
    """Showing the offsets of nobody is no error; committing for nobody is."""
    shown = server.get("/groups/nobody/offsets")
    committed = server.post("/groups/nobody/offsets", {"member_id": "a", "offsets": {}})

    assert (shown.status_code, shown.json()) == (200, {"group_id": "nobody", "topics": {}})
    assert error_of(committed) == (404, "group not found")
    assert error_of(server.get("/groups/nobody/lag")) == (404, "group not found")


def reset(worker: Worker, **body: Any) -> Any:
    return worker.server.post("/groups/billing/offsets/reset", {"topic": "orders", **body})


def test_offsets_are_reset(worker: Worker, clock: FakeClock) -> None:
    """To an end, an offset or a time; in some or all partitions; what was leased comes anew."""
    held = worker.poll()
    clock.advance(3_600_000)
    fill(worker.server, 1)
    latest = reset(worker, to="latest").json()
    at_time = reset(worker, to="2023-11-14T23:00:00Z").json()
    at_offset = reset(worker, to=2, partitions=[1]).json()
    as_text = reset(worker, to="4", partitions=[1]).json()
    earliest = reset(worker, to="earliest").json()
    stale = worker.settle("ack", held[0])

    assert latest == {
        "group": "billing",
        "topic": "orders",
        "dry_run": False,
        "offsets": {
            "0": {"new_offset": 6, "old_offset": 0},
            "1": {"new_offset": 5, "old_offset": 0},
        },
    }
    assert at_time["offsets"]["0"]["new_offset"] == 5
    assert at_offset["offsets"] == {"1": {"new_offset": 2, "old_offset": 5}}
    assert as_text["offsets"]["1"]["new_offset"] == 4
    assert {one["new_offset"] for one in earliest["offsets"].values()} == {0}
    assert stale.status_code in {404, 409}
    assert len(worker.poll()) == 11


def test_a_dry_run_changes_nothing(worker: Worker) -> None:
    """It tells where the group would begin; receipts stay good."""
    (message,) = worker.poll(1)
    tried = reset(worker, to="latest", dry_run=True).json()

    assert tried["dry_run"] is True
    assert tried["offsets"]["0"]["new_offset"] == 5
    assert worker.settle("ack", message).status_code == 200


BAD_RESETS = [
    ({}, 400, "to is required"),
    ({"to": "yesterday"}, 400, 'to: write "earliest"'),
    ({"to": -1}, 400, "to: -1 is not an offset"),
    ({"to": "earliest", "topic": "nothing"}, 404, "topic not found"),
    ({"to": "earliest", "topic": "../x"}, 404, "topic not found"),
    ({"to": "earliest", "partitions": [9]}, 404, ""),
    ({"to": "earliest", "partitions": [-1]}, 400, "partitions"),
]


@pytest.mark.parametrize(("body", "status", "text"), BAD_RESETS)
def test_bad_resets_are_refused(
    worker: Worker, body: dict[str, Any], status: int, text: str
) -> None:
    """What names no place answers 400, what does not exist 404."""
    found = error_of(reset(worker, **body))

    assert found[0] == status
    assert found[1].startswith(text)


def test_lag_is_told_in_messages_and_seconds(worker: Worker, clock: FakeClock) -> None:
    """By partition: committed, end, lag, its age, and where the unsettled messages are."""
    held = [one for one in worker.poll() if one["partition"] == 0]
    worker.batch("ack", held[:2])
    worker.settle("nack", held[2], delay="1h")
    worker.settle("reject", held[3])
    worker.server.await_inside(worker.server.broker.dead_letters.idle())
    clock.advance(7_000)
    lag = worker.server.get("/groups/billing/lag").json()
    first = lag["partitions"][0]

    assert (lag["group_id"], lag["lag"], lag["lag_seconds"]) == ("billing", 7, 7.0)
    assert first == {
        "topic": "orders",
        "partition": 0,
        "committed": 2,
        "end": 5,
        "lag": 2,
        "lag_seconds": 7.0,
        "in_flight": 1,
        "waiting": 1,
        "delayed": 0,
        "dead": 1,
    }


def test_what_is_delayed_is_not_behind(server: Running, clock: FakeClock) -> None:
    """A message that waits for its time counts as delayed, and its age not yet as lag."""
    server.create(num_partitions=1)
    server.publish({"value": "later", "delay": "1h"})
    worker = Worker(server)
    assert worker.poll() == []
    clock.advance(60_000)
    lag = server.get("/groups/billing/lag").json()
    fill(server, 1)
    clock.advance(5_000)
    behind = server.get("/groups/billing/lag").json()

    assert (lag["lag"], lag["partitions"][0]["delayed"], lag["lag_seconds"]) == (1, 1, 0.0)
    assert (behind["lag"], behind["lag_seconds"]) == (2, 5.0)


def test_the_gauges_of_consumers_are_read_off_the_ledgers(worker: Worker, clock: FakeClock) -> None:
    """Committed offset, lag in messages and seconds, in flight, waiting, members: all move."""
    worker.batch("ack", worker.poll(3))
    worker.settle("nack", worker.poll(1)[0], delay="1h")
    worker.poll(2)
    clock.advance(9_000)
    labels = '{consumer_group="billing",topic="orders"}'
    alike = '{topic="orders",consumer_group="billing"}'
    metrics = worker.server.get("/metrics").text.replace(alike, labels)
    found = {
        name: float(line.rpartition(" ")[2])
        for line in metrics.splitlines()
        for name in (
            "consumer_committed_offset",
            "consumer_lag",
            "consumer_lag_seconds",
            "consumer_in_flight",
            "consumer_waiting",
            "broker_active_consumers",
        )
        if line.startswith(f"goqueue_{name}{labels} ")
    }

    assert found == {
        "consumer_committed_offset": 3,
        "consumer_lag": 7,
        "consumer_lag_seconds": 9,
        "consumer_in_flight": 2,
        "consumer_waiting": 1,
        "broker_active_consumers": 1,
    }
