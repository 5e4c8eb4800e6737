"""Transactions over HTTP, as anybody with curl meets them (A11, A12, A13)."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from goqueue.testing.clock import FakeClock
from tests.client.consuming import eventually
from tests.transport.http.running import Running, error_of

NOTE = "batch 7"
FENCED = "producer fenced by newer instance"


class Speaker:
    """A producer with curl."""

    def __init__(self, server: Running, name: str = "billing-1", **fields: object) -> None:
        self.server = server
        reply = server.post("/producers/init", {"transactional_id": name, **fields})
        assert reply.status_code == 200, reply.text
        self.life = reply.json()
        self.who = {
            "producer_id": self.life["producer_id"],
            "epoch": self.life["epoch"],
            "transactional_id": name,
        }

    def say(self, verb: str, **fields: object) -> httpx.Response:
        return self.server.post(f"/transactions/{verb}", {**self.who, **fields})

    def done(self, verb: str, **fields: object) -> Any:
        reply = self.say(verb, **fields)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def publish(self, value: str, **fields: object) -> Any:
        return self.done("publish", topic="orders", value=value, **fields)


def refused(reply: httpx.Response, status: int) -> str:
    """Return why a request was refused, with the status it must have."""
    found, text = error_of(reply)
    assert found == status, reply.text
    return text


@pytest.fixture(autouse=True)
def _orders(server: Running) -> None:
    server.create(num_partitions=2)


def values(server: Running, partition: int = 0, **query: str) -> list[str]:
    page = server.read(partition=partition, **query)
    return [message["value"] for message in page["messages"]]


def test_a_transaction_from_begin_to_commit(server: Running, clock: FakeClock) -> None:
    """Nothing is seen before the commit, everything after it, in every partition."""
    speaker = Speaker(server)
    assert speaker.life == {"producer_id": speaker.life["producer_id"], "epoch": 0, "token": ""}
    begun = speaker.done("begin")["transaction_id"]
    assert re.fullmatch(r"txn-\d+-[0-9a-f]{16}", begun)
    assert int(begun.split("-")[1]) == clock.now_ms() * 1_000_000
    assert speaker.publish("a", sequence=0) == {"partition": 0, "offset": 0, "duplicate": False}
    assert speaker.publish("b", sequence=0, partition=1, transaction_id=begun)["partition"] == 1
    placed = speaker.publish(
        "Yw==", encoding="base64", key="k", headers={"h": "v"}, priority="high", partition=-1
    )
    assert placed["duplicate"] is False
    assert speaker.done("add-partition", topic="orders", partition=1) == {"status": "added"}
    assert values(server) == values(server, 1) == []
    assert values(server, isolation="read_uncommitted")[0] == "a"

    listed = server.get("/transactions").json()
    assert listed["count"] == 1
    (one,) = listed["transactions"]
    assert one["transaction_id"] == begun
    assert (one["state"], one["transactional_id"]) == ("Ongoing", "billing-1")
    assert one["partitions"] == [
        {"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}
    ]  # fmt: skip
    assert speaker.done("commit", token=NOTE) == {"status": "committed"}
    assert speaker.done("commit", transaction_id=begun) == {"status": "committed"}
    assert sorted(values(server) + values(server, 1)) == ["a", "b", "c"]
    assert server.get("/transactions").json() == {"transactions": [], "count": 0}
    assert Speaker(server).life["token"] == NOTE


def test_an_aborted_one_was_never_there(server: Running) -> None:
    """Readers pass it over; abort may be asked again; a commit after it is refused."""
    speaker = Speaker(server)
    first = speaker.done("begin")["transaction_id"]
    speaker.publish("aborted")
    assert speaker.done("abort") == speaker.done("abort") == {"status": "aborted"}
    assert refused(speaker.say("commit"), 409).startswith("invalid transaction state")
    speaker.done("begin")
    speaker.publish("kept")
    for verb in ("commit", "abort"):
        assert "is over" in refused(speaker.say(verb, transaction_id=first), 409)
    late = speaker.say("publish", topic="orders", value="late", transaction_id=first)
    assert "is over" in refused(late, 409)
    speaker.done("commit")
    assert values(server) == ["kept"]


def test_sequences_are_checked_and_repeats_found(server: Running) -> None:
    """A repeat gets its original's offset; a new life begins at 0; a gap is refused (A11)."""
    speaker = Speaker(server)
    speaker.done("begin")
    first = speaker.publish("a", sequence=0)
    second = speaker.publish("b", sequence=1)
    assert speaker.publish("b", sequence=1) == {**second, "duplicate": True}
    assert speaker.publish("a", sequence=0) == {**first, "duplicate": True}
    for wrong in (5, -1):
        reply = speaker.say("publish", topic="orders", value="c", sequence=wrong)
        assert refused(reply, 400).startswith("sequence check failed: ")
    speaker.done("commit")
    successor = Speaker(server)
    assert successor.life["epoch"] == 1
    successor.done("begin")
    wrong_start = successor.say("publish", topic="orders", value="c", sequence=2)
    assert refused(wrong_start, 400).startswith("sequence check failed: ")
    assert successor.publish("c", sequence=0)["duplicate"] is False
    successor.done("commit")
    assert values(server) == ["a", "b", "c"]


def test_a_zombie_is_refused_everywhere(server: Running) -> None:
    """What an earlier life asks for changes nothing; what it left open is aborted (A11, A13)."""
    zombie = Speaker(server)
    zombie.done("begin")
    zombie.publish("left open", sequence=0)
    successor = Speaker(server)
    assert values(server) == []
    for verb in ("begin", "commit", "abort"):
        assert refused(zombie.say(verb), 409) == FENCED
    added = zombie.say("add-partition", topic="orders", partition=0)
    published = zombie.say("publish", topic="orders", value="late", sequence=1)
    beat = server.post(f"/producers/{zombie.life['producer_id']}/heartbeat", {"epoch": 0})
    assert {refused(one, 409) for one in (added, published, beat)} == {FENCED}
    successor.done("begin")
    successor.publish("mine", sequence=0)
    successor.done("commit")
    assert values(server) == ["mine"]


def test_what_is_wrong_is_said(server: Running) -> None:
    """Each fault has its status and names what is missing."""
    speaker = Speaker(server)
    pid = speaker.life["producer_id"]
    text = refused(server.post("/producers/init", {"transactional_id": ""}), 400)
    assert text == "transactional_id is required"
    for timeout in (-1, 3_600_000):
        body = {"transactional_id": "t", "transaction_timeout_ms": timeout}
        assert "transaction_timeout_ms" in refused(server.post("/producers/init", body), 400)
    assert refused(speaker.say("publish", value="a"), 400) == "topic is required"
    assert refused(speaker.say("publish", topic="orders"), 400) == "value is required"
    assert refused(speaker.say("publish", topic="none", value="a"), 404) == "topic not found"
    closed = speaker.say("publish", topic="orders", value="a", sequence=0)
    assert refused(closed, 409).startswith("invalid transaction state")
    assert refused(speaker.say("commit"), 409).startswith("invalid transaction state")
    speaker.done("begin")
    assert refused(speaker.say("begin"), 409) == "transaction already in progress"
    assert refused(speaker.say("commit", transaction_id="txn-1"), 400) == "invalid transaction_id"
    absent = speaker.say("add-partition", topic="orders", partition=9)
    assert "partition" in refused(absent, 404)
    for path in (f"/producers/{pid + 1}/heartbeat", "/producers/-1/heartbeat"):
        refused(server.post(path, {"epoch": 0}), 404)
    refused(server.post("/producers/abc/heartbeat", {"epoch": 0}), 400)
    refused(server.post(f"/producers/{pid}/heartbeat", {}), 400)
    for wrong in ({"producer_id": 999}, {"transactional_id": "somebody-else"}):
        for verb in ("begin", "commit", "abort", "add-partition"):
            refused(speaker.say(verb, topic="orders", **wrong), 404)
    assert server.post(f"/producers/{pid}/heartbeat", {"epoch": 0}).json() == {"status": "ok"}
    speaker.done("abort")
    assert values(server, isolation="read_uncommitted") == []


def test_a_producer_without_an_id_has_no_transactions(server: Running) -> None:
    """It gets an identity of its own."""
    first = server.post("/producers/init", {}).json()
    second = server.post("/producers/init", {}).json()
    assert second["producer_id"] == first["producer_id"] + 1
    body = {"producer_id": first["producer_id"], "epoch": 0}
    refused(server.post("/transactions/begin", body), 404)


def test_numbers_of_transactions(server: Running) -> None:
    """Stats count ids by the state of their latest transaction."""
    for name in ("one", "two", "three"):
        Speaker(server, name).done("begin")
    done = Speaker(server, "done")
    done.done("begin")
    done.publish("a", sequence=0)
    done.done("commit")
    stats = server.get("/transactions/stats").json()
    assert stats["active_transactions"] == 3
    assert stats["transactions_by_state"] == {"CompleteCommit": 1, "Ongoing": 3}
    assert stats["producers"]["active"] == 4
    assert stats["producers"]["sequence_states"] == 1
    assert stats["producers"]["next_producer_id"] == done.life["producer_id"] + 1
    assert stats["log"]["records"] > 0
    assert stats["log"]["size_bytes"] > 0


def test_time_ends_what_nobody_ends(server: Running, clock: FakeClock) -> None:
    """A client that went away: its session or its time is over, readers go on (A13)."""
    gone = Speaker(server, "gone")
    gone.done("begin")
    gone.publish("of one who went away")
    slow = Speaker(server, "slow", transaction_timeout_ms=60_000)
    slow.done("begin")
    slow.publish("too slow")
    server.publish({"value": "behind", "partition": 0})
    assert values(server) == []
    for _ in range(2):
        clock.advance(29_000)
        path = f"/producers/{slow.life['producer_id']}/heartbeat"
        assert server.post(path, {"epoch": 0}).status_code == 200
        server.inside(server.broker.transactions.sweep)

    def names() -> list[str]:
        return [
            one["transactional_id"] for one in server.get("/transactions").json()["transactions"]
        ]

    eventually(lambda: names() == ["slow"], "the end of who went away")
    clock.advance(2_000)
    server.inside(server.broker.transactions.sweep)
    assert refused(slow.say("commit"), 409).startswith("invalid transaction state")
    assert slow.done("abort") == {"status": "aborted"}
    assert values(server) == ["behind"]
    assert names() == []


def test_a_restart_keeps_what_is_open(tmp_path: Path, clock: FakeClock) -> None:
    """Open stays open and hidden, decided stays decided, over a clean restart (A12)."""
    with Running(tmp_path / "other", clock=clock) as first:
        first.create(num_partitions=1)
        speaker = Speaker(first)
        begun = speaker.done("begin")["transaction_id"]
        speaker.publish("open", sequence=0)
        other = Speaker(first, "other")
        other.done("begin")
        other.publish("aborted", sequence=0)
        other.done("abort")
    with Running(tmp_path / "other", clock=clock) as second:
        assert values(second) == []
        again = Speaker.__new__(Speaker)
        again.server, again.who = second, speaker.who
        assert again.publish("open", sequence=0)["duplicate"] is True
        assert again.done("commit", transaction_id=begun) == {"status": "committed"}
        assert values(second) == ["open"]
