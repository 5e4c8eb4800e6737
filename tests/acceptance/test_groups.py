"""A real broker is killed while members come and go; the group is there when it is back."""

import signal
from pathlib import Path
from typing import Any

import httpx

from tests.cli.running import SECONDS_MAX, BrokerProcess

KILLS = 4
MEMBERS = 6
PARTITIONS = 12


def post(broker: BrokerProcess, path: str, **body: object) -> Any:
    reply = httpx.post(f"http://{broker.http}{path}", json=body, timeout=SECONDS_MAX)
    assert reply.status_code in {200, 201}, reply.text
    return reply.json()


def show(broker: BrokerProcess) -> Any:
    path = f"http://{broker.http}/groups/billing/cooperative"
    shown = httpx.get(path, timeout=SECONDS_MAX).json()
    for member in shown["members"]:
        # By the clock of this process; after a restart everybody was heard of just now.
        del member["last_heartbeat"]
    del shown["rebalance_metrics"]
    return shown


def settle(broker: BrokerProcess, members: list[str]) -> None:
    """Let every member give up what it is asked for, until nobody is asked any more."""
    for member in members:
        told = post(broker, "/groups/billing/heartbeat/cooperative", member_id=member)
        if told["state"] == "pending_revoke":
            post(
                broker,
                "/groups/billing/revoke",
                member_id=member,
                generation=told["generation"],
                revoked_partitions=told["partitions_to_revoke"],
            )


def test_kill_nine_brings_the_group_back_as_it_was(tmp_path: Path) -> None:
    """Members, generation, assignment and a rebalance half done survive every kill (trap G3)."""
    broker = BrokerProcess(tmp_path / "data")
    post(broker, "/topics", name="orders", num_partitions=PARTITIONS)
    members: list[str] = []
    for kill in range(KILLS):
        for number in range(MEMBERS // 2):
            body = {"client_id": f"c-{kill}-{number}", "topics": ["orders"]}
            joined = post(broker, "/groups/billing/join/cooperative", **body)
            members.append(joined["member_id"])
            if number:
                settle(broker, members)
        post(broker, "/groups/billing/leave", member_id=members.pop(0))
        before = show(broker)
        broker.stop(signal.SIGKILL)
        broker = BrokerProcess(tmp_path / "data")

        assert show(broker) == before
        assert [member["id"] for member in before["members"]] == members
    settle(broker, members)
    shown = show(broker)
    owned = [place["partition"] for one in shown["members"] for place in one["assigned_partitions"]]
    sizes = [len(one["assigned_partitions"]) for one in shown["members"]]

    assert shown["state"] == "Stable"
    assert sorted(owned) == list(range(PARTITIONS))
    assert max(sizes) - min(sizes) <= 1
    assert broker.stop() == 0
