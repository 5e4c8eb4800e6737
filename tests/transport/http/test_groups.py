"""Consumer groups over HTTP, as the contract has them."""

from pathlib import Path
from typing import Any

import pytest

from goqueue.testing.clock import FakeClock
from tests.transport.http.running import Running, error_of

SESSION_MS = 30_000


def join(server: Running, client: str = "a", group: str = "billing", **fields: Any) -> Any:
    body = {"client_id": client, "topics": ["orders"], **fields}
    reply = server.post(f"/groups/{group}/join", body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def sweep(server: Running) -> None:
    server.inside(server.broker.groups.sweep)


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_a_group_lives_and_dies(server: Running, clock: FakeClock, prefix: str) -> None:
    """Join, heartbeat, list, show, leave, delete: the bodies of the contract, at both addresses."""
    server.create(num_partitions=3)
    body = {"client_id": "worker", "topics": ["orders"]}
    joined = server.post(f"{prefix}/groups/billing/join", body).json()
    member = joined["member_id"]
    clock.advance(2_000)
    said = {"member_id": member, "generation": 1}
    beat = server.post(f"{prefix}/groups/billing/heartbeat", said)
    clock.advance(1_000)
    listed = server.get(f"{prefix}/groups").json()
    shown = server.get(f"{prefix}/groups/billing").json()
    left = server.post(f"{prefix}/groups/billing/leave", {"member_id": member})
    deleted = server.client.delete(f"{prefix}/groups/billing")

    assert member.startswith("worker-")
    assert (joined["generation"], joined["leader_id"]) == (1, member)
    assert joined["partitions"] == [0, 1, 2]
    assert joined["assignments"] == [{"topic": "orders", "partition": p} for p in range(3)]
    assert joined["members"] == [member]
    assert joined["options"]["mode"] == "exclusive"
    assert (beat.status_code, beat.json()) == (200, {"status": "ok"})
    assert listed == {
        "groups": [
            {
                "id": "billing",
                "state": "Stable",
                "members": 1,
                "generation": 1,
                "topics": ["orders"],
                "mode": "exclusive",
            }
        ]
    }
    assert {key: shown[key] for key in ("id", "state", "generation", "topics", "created_at")} == {
        "id": "billing",
        "state": "Stable",
        "generation": 1,
        "topics": ["orders"],
        "created_at": "2023-11-14T22:13:20.000000000Z",
    }
    assert shown["members"] == [
        {
            "id": member,
            "client_id": "worker",
            "assigned_partitions": [0, 1, 2],
            "assignments": joined["assignments"],
            "topics": ["orders"],
            "last_heartbeat": "2023-11-14T22:13:22.000000000Z",
            "joined_at": "2023-11-14T22:13:20.000000000Z",
        }
    ]
    assert left.json() == {"status": "left"}
    assert deleted.json() == {"deleted": True, "group": "billing"}
    assert server.get(f"{prefix}/groups").json() == {"groups": []}
    assert error_of(server.get(f"{prefix}/groups/billing")) == (404, "group not found")


def test_everything_is_shared_out_anew_at_once(server: Running) -> None:
    """A second member ends the first generation; the first joins again by its id and goes on."""
    server.create(num_partitions=4)
    first = join(server, "a")
    second = join(server, "b")
    said = {"member_id": first["member_id"], "generation": 1}
    stale = server.post("/groups/billing/heartbeat", said)
    again = join(server, "a", member_id=first["member_id"])

    assert second["generation"] == 2
    assert second["leader_id"] == first["member_id"]
    assert second["partitions"] == [2, 3]
    assert error_of(stale) == (409, "stale generation (rebalance occurred)")
    assert stale.json()["code"] == "stale_generation"
    assert (again["generation"], again["partitions"]) == (2, [0, 1])
    assert again["member_id"] == first["member_id"]
    assert server.post("/groups/billing/heartbeat", {**said, "generation": 2}).status_code == 200
    assert server.post("/groups/billing/heartbeat", {**said, "generation": 3}).status_code == 409


def test_all_topics_of_a_subscription_are_assigned(server: Running) -> None:
    """Two members of two topics have all partitions of both between them (trap G4)."""
    server.create("orders", num_partitions=3)
    server.create("events", num_partitions=2)
    topics = ["orders", "events"]
    one = join(server, "a", topics=topics)
    join(server, "b", topics=topics)
    again = join(server, "a", topics=topics, member_id=one["member_id"])
    shown = server.get("/groups/billing").json()

    assert one["partitions"] == [0, 1, 2]
    assert len(one["assignments"]) == 5
    places = [p for member in shown["members"] for p in member["assignments"]]
    assert sorted((p["topic"], p["partition"]) for p in places) == [
        ("events", 0), ("events", 1), ("orders", 0), ("orders", 1), ("orders", 2),
    ]  # fmt: skip
    assert sorted(len(member["assignments"]) for member in shown["members"]) == [2, 3]
    first_topic = [p["partition"] for p in again["assignments"] if p["topic"] == "orders"]
    assert again["partitions"] == first_topic


def test_who_is_silent_for_a_session_is_gone(server: Running, clock: FakeClock) -> None:
    """After thirty seconds without a word the member is unknown and the others have its part."""
    server.create(num_partitions=2)
    first, second = join(server, "a"), join(server, "b")
    clock.advance(SESSION_MS - 1)
    server.post("/groups/billing/heartbeat", {"member_id": second["member_id"], "generation": 2})
    clock.advance(1)
    sweep(server)
    reply = server.post(
        "/groups/billing/heartbeat", {"member_id": first["member_id"], "generation": 2}
    )
    shown = server.get("/groups/billing").json()

    assert error_of(reply) == (404, "member not found (may have been evicted)")
    assert reply.json()["code"] == "unknown_member"
    assert [m["id"] for m in shown["members"]] == [second["member_id"]]
    assert shown["members"][0]["assigned_partitions"] == [0, 1]
    assert server.metric('goqueue_consumer_session_timeouts_total{consumer_group="billing"}') == 1
    name = 'goqueue_consumer_heartbeat_latency_seconds_count{consumer_group="billing"}'
    assert server.metric(name) == 1


def test_options_come_with_the_first_join(server: Running) -> None:
    """They are shown, kept while there are members, and changed when there are none."""
    server.create()
    options: dict[str, Any] = {
        "mode": "shared",
        "ordering": "key",
        "visibility_timeout": "5m",
        "max_retries": 7,
        "max_in_flight": 50,
        "backoff": "2s",
        "backoff_max": "30s",
        "auto_commit": True,
        "auto_commit_interval": "1s",
        "auto_offset_reset": "latest",
        "session_timeout": "10s",
        "revocation_timeout": "20s",
        "disconnect_grace": "0s",
    }
    joined = join(server, **options)
    expected = {
        "mode": "shared",
        "ordering": "key",
        "visibility_timeout_ms": 300_000,
        "max_retries": 7,
        "max_in_flight": 50,
        "backoff_ms": 2_000,
        "backoff_max_ms": 30_000,
        "auto_commit": True,
        "auto_commit_interval_ms": 1_000,
        "auto_offset_reset": "latest",
        "session_timeout_ms": 10_000,
        "revocation_timeout_ms": 20_000,
        "disconnect_grace_ms": 0,
    }
    conflict = server.post(
        "/groups/billing/join", {"client_id": "b", "topics": ["orders"], "max_retries": 8}
    )
    same = join(server, "b", **options)

    assert joined["options"] == expected
    assert error_of(conflict) == (
        409, "the group has members and other options: max_retries is 7",
    )  # fmt: skip
    assert conflict.json()["code"] == "group_conflict"
    assert same["assignments"] == joined["assignments"]
    assert same["generation"] == 1
    for member in (joined, same):
        server.post("/groups/billing/leave", {"member_id": member["member_id"]})
    assert join(server, max_retries=8)["options"] == {**expected, "max_retries": 8}


def test_a_group_with_members_is_deleted_by_force(server: Running) -> None:
    """Without force the answer is 409 and nothing happens."""
    server.create()
    join(server)
    refused = server.client.delete("/groups/billing")
    assert error_of(refused) == (409, "the group has 1 members")
    assert server.get("/groups/billing").json()["state"] == "Stable"

    forced = server.client.delete("/groups/billing", params={"force": "true"})
    assert forced.json() == {"deleted": True, "group": "billing"}
    assert error_of(server.client.delete("/groups/billing")) == (404, "group not found")


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 400, "client_id is required"),
        ({"client_id": "", "topics": ["orders"]}, 400, "client_id is required"),
        ({"client_id": "a"}, 400, "at least one topic is required"),
        ({"client_id": "a", "topics": []}, 400, "at least one topic is required"),
        ({"client_id": "a", "topics": "orders"}, 400, "topics: expected array, got str"),
        ({"client_id": "a", "topics": ["none"]}, 404, "topic not found: none"),
        ({"client_id": "a\u001b[2J", "topics": ["orders"]}, 400, "client_id: must be 1 to 249"),
        ({"client_id": "a" * 250, "topics": ["orders"]}, 400, "client_id: must be 1 to 249"),
        ({"client_id": "a", "topics": ["../x"]}, 400, "topic name '../x' may only contain"),
        ({"client_id": "a", "topics": ["orders"] * 257}, 400, "topics: 257 are more than 256"),
        ({"client_id": "a", "topics": ["orders"], "mode": "x"}, 400, "mode: must be one of"),
        (
            {"client_id": "a", "topics": ["orders"], "visibility_timeout": "99h"},
            400,
            "visibility_timeout: 356400000 ms is not between 1000 and 43200000",
        ),
        (
            {"client_id": "a", "topics": ["orders"], "visibility_timeout": 5},
            400,
            "visibility_timeout: expected str, got int",
        ),
        (
            {"client_id": "a", "topics": ["orders"], "max_retries": 10**30},
            400,
            "max_retries",
        ),
        (
            {"client_id": "a", "topics": ["orders"], "member_id": "a-1"},
            404,
            "member not found (may have been evicted)",
        ),
    ],
)
def test_a_bad_join_is_refused(
    server: Running, body: dict[str, object], status: int, text: str
) -> None:
    """The answer names what is wrong, and no group comes of it."""
    server.create()
    for path in ("/groups/billing/join", "/groups/billing/join/cooperative"):
        answered, said = error_of(server.post(path, body))
        assert (answered, text in said) == (status, True), said
    assert server.get("/groups").json() == {"groups": []}


@pytest.mark.parametrize("name", ["a%20b", "%2e%2e", "a" * 250, "__mine", "a%00", "caf%C3%A9"])
def test_a_hostile_name_makes_no_group(server: Running, name: str) -> None:
    """A name that breaks the rule is refused at the join and unknown everywhere else."""
    server.create()
    body = {"client_id": "a", "topics": ["orders"]}
    for path in (f"/groups/{name}/join", f"/groups/{name}/join/cooperative"):
        reply = server.post(path, body)
        assert reply.status_code in {400, 404}, reply.text
    assert server.get(f"/groups/{name}").status_code == 404
    assert server.client.delete(f"/groups/{name}").status_code == 404
    assert server.get("/groups").json() == {"groups": []}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "/heartbeat", {"member_id": "a", "generation": 1}),
        ("POST", "/leave", {"member_id": "a"}),
        ("POST", "/heartbeat/cooperative", {"member_id": "a", "generation": 1}),
        ("POST", "/leave/cooperative", {"member_id": "a"}),
        ("POST", "/revoke", {"member_id": "a", "generation": 1, "revoked_partitions": []}),
        ("GET", "/assignment?member_id=a", None),
        ("GET", "/cooperative", None),
        ("GET", "/rebalance/stats", None),
    ],
)
def test_an_unknown_group_and_an_unknown_member_answer_404(
    server: Running, method: str, path: str, body: object
) -> None:
    """Whatever is asked of a group or a member that is not there."""
    reply = server.client.request(method, f"/groups/none{path}", json=body)
    assert error_of(reply) == (404, "group not found")
    assert reply.json()["code"] == "group_not_found"
    if body is None and "member_id" not in path:
        return
    server.create()
    join(server)
    reply = server.client.request(method, f"/groups/billing{path}", json=body)
    assert error_of(reply) == (404, "member not found (may have been evicted)")


@pytest.mark.parametrize("path", ["heartbeat", "leave", "heartbeat/cooperative", "revoke"])
def test_a_member_must_be_named(server: Running, path: str) -> None:
    """Without a member id the answer is 400, on every route that needs one."""
    server.create()
    join(server)
    body = {"generation": 1, "revoked_partitions": []}
    for wrong in (body, {**body, "member_id": ""}, {**body, "member_id": None}):
        assert error_of(server.post(f"/groups/billing/{path}", wrong)) == (
            400, "member_id is required",
        )  # fmt: skip
    assert error_of(server.get("/groups/billing/assignment")) == (400, "member_id is required")


def test_groups_survive_a_restart(tmp_path: Path) -> None:
    """A new process on the same data has the groups, their members and generations (trap G3)."""
    with Running(tmp_path / "data") as server:
        server.create(num_partitions=2)
        member = join(server, visibility_timeout="7s")["member_id"]
        join(server, "b")
        before = server.get("/groups/billing").json()
    with Running(tmp_path / "data") as server:
        after = server.get("/groups/billing").json()
        said = {"member_id": member, "generation": 2}
        assert server.post("/groups/billing/heartbeat", said).status_code == 200

    for shown in (before, after):
        for one in shown["members"]:
            del one["last_heartbeat"]
    assert after == before
    assert after["options"]["visibility_timeout_ms"] == 7_000
