"""Compaction over HTTP, as the contract has it."""

from pathlib import Path

import pytest

from goqueue.runtime.log.fetch import FetchPart, fetch
from goqueue.storage.read_only import ReadOnlyDisk
from goqueue.storage.verify import Verification
from goqueue.testing.clock import FakeClock
from tests.runtime.grants import FETCHING
from tests.transport.http.running import Running, error_of

URL = "/admin/topics/state/compact"


def fill(server: Running, **settings: object) -> None:
    """Make a compacted topic with three keys, each written five times, and two messages without."""
    config = {"cleanup_policy": "compact", **settings}
    server.create("state", num_partitions=1, config=config)
    for version in range(5):
        server.publish(
            *[{"key": f"k{n}", "value": f"{n}.{version}"} for n in range(3)], topic="state"
        )
    server.publish({"value": "bare"}, {"value": "bare"}, topic="state")


def values(server: Running, **query: int) -> list[tuple[int, str]]:
    page = server.read(topic="state", **query)
    assert page.get("gaps") is None
    return [(one["offset"], one["value"]) for one in page["messages"]]


LAST = [(12, "0.4"), (13, "1.4"), (14, "2.4"), (15, "bare"), (16, "bare")]


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_a_topic_is_compacted_on_request(server: Running, prefix: str) -> None:
    """The last value of each key stays, keyless messages stay, offsets and the log stay usable."""
    fill(server)
    reply = server.client.post(prefix + URL)
    server.publish({"key": "k0", "value": "new"}, topic="state")

    assert reply.status_code == 200
    assert reply.json() == {
        "success": True,
        "topic": "state",
        "dry_run": False,
        "results": [
            {
                "partition": 0,
                "records_before": 17,
                "records_after": 5,
                "records_removed": 12,
                "dirty_ratio": 1.0,
            }
        ],
    }
    assert values(server) == [*LAST, (17, "new")]
    for offset in range(18):
        assert values(server, offset=offset) == [
            one for one in [*LAST, (17, "new")] if one[0] >= offset
        ]
    assert values(server, limit=1) == LAST[:1]


def test_a_dry_run_tells_and_changes_nothing(server: Running) -> None:
    """What it says would go is what goes; any topic may be asked."""
    fill(server)
    server.create("plain", num_partitions=1)
    before = values(server)
    dry = server.post(URL, {"dry_run": True}).json()
    after = values(server)
    real = server.post(URL, {"dry_run": False, "partitions": [0]}).json()

    assert dry["dry_run"] is True
    assert before == after
    assert dry["results"] == real["results"]
    assert server.post("/admin/topics/plain/compact", {"dry_run": True}).status_code == 200
    assert server.post(URL, {}).json()["results"][0]["records_removed"] == 0


def test_what_is_refused(server: Running) -> None:
    """Unknown topics and partitions, bodies that make no sense, topics that keep everything."""
    fill(server)
    server.create("plain")

    assert error_of(server.post("/admin/topics/none/compact")) == (404, "topic not found")
    bodies: list[object] = [{"partitions": [1]}, {"partitions": [-1]}, {"partitions": 1}, []]
    for body in [*bodies, {"dry_run": 1}]:
        status, text = error_of(server.post(URL, body))
        assert status == 400, body
        assert text.partition(":")[0] in {"partitions", "dry_run", "body", "partitions[...]"}
    assert error_of(server.client.post(URL, content=b"{"))[0] == 400
    status, text = error_of(server.post("/admin/topics/plain/compact"))
    assert (status, "cleanup_policy is delete" in text) == (400, True)


def test_compaction_is_counted(server: Running) -> None:
    """Runs, time and bytes given back; the ratio tells what is left to do."""
    fill(server)
    server.post(URL)
    server.post(URL)

    name = "goqueue_storage_compaction"
    assert server.metric(f'{name}_runs_total{{topic="state"}}') == 2
    assert server.metric(f'{name}_latency_seconds_count{{topic="state"}}') == 2
    assert server.metric(f'{name}_bytes_reclaimed_total{{topic="state"}}') > 300
    assert f'{name}_dirty_ratio{{topic="state"}} 0.0' in server.get("/metrics").text


def test_only_messages_count_as_read(server: Running) -> None:
    """What a hole stands for was not handed to anybody."""
    fill(server)
    server.post(URL)

    async def read(offset: int) -> None:
        topic = server.broker.topic("state")
        parts = [FetchPart(partition=0, offset=offset)]
        await fetch(FETCHING, topic, parts, bytes_max=100_000, wait_ms=0)

    name = 'goqueue_broker_messages_consumed_total{consumer_group="",topic="state"}'
    server.await_inside(read(0))
    assert server.metric(name) == 5
    server.await_inside(read(7))
    assert server.metric(name) == 10


def test_a_compacted_topic_survives_a_restart(tmp_path: Path, clock: FakeClock) -> None:
    """The same messages at the same offsets, and nothing a check complains of."""
    with Running(tmp_path / "data", clock=clock) as server:
        fill(server, dedup_window_ms="1h")
        server.post(URL)
    verification = Verification(ReadOnlyDisk(tmp_path / "data"), is_deep=True)
    for _ in verification.run():
        pass
    with Running(tmp_path / "data", clock=clock) as server:
        assert values(server) == LAST
        assert server.post(URL, {}).json()["results"][0]["records_removed"] == 0
        assert server.get("/topics/state/config").json()["config"]["cleanup_policy"] == "compact"

    assert verification.report.findings == []
    assert verification.report.messages == 5
