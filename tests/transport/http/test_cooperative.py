"""Cooperative rebalancing over HTTP, as the contract has it."""

from typing import Any

from goqueue.testing.clock import FakeClock
from tests.transport.http.running import Running, error_of

ROOT = "/groups/billing"


def join(server: Running, client: str, **fields: object) -> Any:
    body = {"client_id": client, "topics": ["orders"], **fields}
    reply = server.post(f"{ROOT}/join/cooperative", body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def beat(server: Running, member: str, generation: int) -> Any:
    said = {"member_id": member, "generation": generation}
    reply = server.post(f"{ROOT}/heartbeat/cooperative", said)
    assert reply.status_code == 200, reply.text
    return reply.json()


def orders(*numbers: int) -> list[dict[str, object]]:
    return [{"topic": "orders", "partition": number} for number in numbers]


def revoke(server: Running, member: str, generation: int, *numbers: int) -> Any:
    body = {
        "member_id": member,
        "generation": generation,
        "revoked_partitions": orders(*numbers),
    }
    return server.post(f"{ROOT}/revoke", body)


def test_a_rebalance_from_its_beginning_to_its_end(server: Running, clock: FakeClock) -> None:
    """Three partitions: the first keeps two and never pauses, and all is counted (trap G1)."""
    server.create(num_partitions=3)
    first = join(server, "a")
    assert (first["rebalance_required"], first["protocol"]) == (True, "cooperative")
    assert beat(server, first["member_id"], 1) == {
        "rebalance_required": False,
        "partitions_assigned": orders(0, 1, 2),
        "generation": 1,
        "protocol": "cooperative",
        "state": "none",
    }
    second = join(server, "b")
    assert (second["generation"], second["assignments"]) == (2, [])
    assert second["state"] == "pending_assign"
    assert beat(server, first["member_id"], 1) == {
        "rebalance_required": True,
        "partitions_assigned": orders(0, 1),
        "partitions_to_revoke": orders(2),
        "generation": 2,
        "protocol": "cooperative",
        "state": "pending_revoke",
        "revocation_deadline": "2023-11-14T22:14:20.000000000Z",
    }
    shown = server.get(f"{ROOT}/cooperative").json()
    assert (shown["state"], shown["rebalance_state"]) == ("Rebalancing", "pending_revoke")
    clock.advance(250)
    acknowledged = revoke(server, first["member_id"], 2, 2)
    assert acknowledged.json() == {
        "status": "acknowledged",
        "pending_count": 0,
        "rebalance_state": "complete",
        "generation": 2,
    }
    assert beat(server, second["member_id"], 2)["partitions_assigned"] == orders(2)
    assignment = server.get(f"{ROOT}/assignment", member_id=second["member_id"]).json()
    assert assignment == {
        "member_id": second["member_id"],
        "generation": 2,
        "partitions": orders(2),
    }

    stats = server.get(f"{ROOT}/rebalance/stats").json()
    assert stats == {
        "total_rebalances": 2,
        "successful_rebalances": 2,
        "failed_rebalances": 0,
        "total_partitions_revoked": 1,
        "total_partitions_assigned": 4,
        "total_revocation_timeouts": 0,
        "last_rebalance_duration_ms": 250,
        "average_rebalance_duration_ms": 75.0,
        "rebalances_by_reason": {"member_joined": 2},
        "last_rebalance_at": "2023-11-14T22:13:20.250000000Z",
    }
    assert server.get("/rebalance/stats").json() == stats
    shown = server.get(f"{ROOT}/cooperative").json()
    assert shown["rebalance_metrics"] == stats
    assert (shown["assignment_strategy"], shown["state"]) == ("sticky", "Stable")
    assert shown["member_assignments"] == {
        first["member_id"]: orders(0, 1),
        second["member_id"]: orders(2),
    }


def test_a_partial_answer_gives_up_only_what_it_names(server: Running) -> None:
    """What is not named stays with its owner; naming anything else is an error (trap G2)."""
    server.create(num_partitions=4)
    first, second = join(server, "a")["member_id"], join(server, "b")["member_id"]
    partial = revoke(server, first, 2, 3).json()
    foreign = revoke(server, first, 2, 0)
    stale = revoke(server, first, 1, 2)
    nothing = revoke(server, second, 2).json()

    assert (partial["pending_count"], partial["rebalance_state"]) == (1, "pending_revoke")
    assert error_of(foreign) == (400, "revoked_partitions: orders/0 is not to be revoked")
    assert error_of(stale) == (409, "stale generation (rebalance occurred)")
    assert nothing["pending_count"] == 1
    assert beat(server, second, 2)["partitions_assigned"] == orders(3)
    assert revoke(server, first, 2, 2).json()["pending_count"] == 0
    assert error_of(revoke(server, first, 2, 2)) == (409, "no active rebalance")


def test_a_cooperative_member_expires_by_the_cooperative_road(
    server: Running, clock: FakeClock
) -> None:
    """The others keep what they have and their generation goes on being good (trap G2)."""
    server.create(num_partitions=4)
    first, second = join(server, "a")["member_id"], join(server, "b")["member_id"]
    revoke(server, first, 2, 2, 3)
    clock.advance(29_999)
    beat(server, second, 2)
    clock.advance(1)
    server.inside(server.broker.groups.sweep)
    told = beat(server, second, 2)

    assert told["partitions_assigned"] == orders(0, 1, 2, 3)
    assert (told["generation"], told["state"]) == (3, "complete")
    stats = server.get(f"{ROOT}/rebalance/stats").json()
    assert stats["rebalances_by_reason"] == {"member_joined": 2, "member_expired": 1}
    assert stats["successful_rebalances"] == 3
    assert server.get(f"{ROOT}/cooperative").json()["protocol"] == "cooperative"


def test_what_is_not_given_up_is_taken(server: Running, clock: FakeClock) -> None:
    """A minute after it was asked for, the partition is the heir's, and that is counted."""
    server.create(num_partitions=2)
    first, second = join(server, "a")["member_id"], join(server, "b")["member_id"]
    for _ in range(3):
        clock.advance(20_000)
        beat(server, first, 2)
        beat(server, second, 2)
    server.inside(server.broker.groups.sweep)

    assert beat(server, second, 2)["partitions_assigned"] == orders(1)
    assert beat(server, first, 2)["partitions_assigned"] == orders(0)
    stats = server.get(f"{ROOT}/rebalance/stats").json()
    assert (stats["total_revocation_timeouts"], stats["successful_rebalances"]) == (1, 2)


def test_one_group_has_one_protocol(server: Running) -> None:
    """Eager and cooperative members do not mix, but an empty group may change."""
    server.create()
    first = join(server, "a")
    body = {"client_id": "b", "topics": ["orders"]}
    refused = server.post(f"{ROOT}/join", body)
    assert error_of(refused) == (
        409, "the group has members and works by the cooperative protocol",
    )  # fmt: skip
    left = server.post(f"{ROOT}/leave/cooperative", {"member_id": first["member_id"]})
    assert left.json() == {"status": "left"}
    assert server.post(f"{ROOT}/join", body).json()["protocol"] == "eager"
    shown = server.get(f"{ROOT}/cooperative").json()
    assert shown["protocol"] == "eager"
