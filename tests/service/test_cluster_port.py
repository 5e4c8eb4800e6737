"""The routes of the contract at the port between nodes: looked up, proposed, or refused."""

import json
from typing import Any

import pytest

from goqueue.base.errors import (
    ForbiddenError,
    GoQueueError,
    InvalidRequestError,
    NodeNotFoundError,
    OperationActiveError,
    TopicNotFoundError,
)
from goqueue.service.cluster_port import ClusterPort
from tests.runtime.cluster.control_fleet import ControlFleet, run_control


async def serving(fleet: ControlFleet) -> ClusterPort:
    for name in fleet.places:
        fleet.start(name)
    await fleet.all_alive()
    await fleet.until(lambda: len(fleet.node("a").metadata.image.topics) == 3)
    return ClusterPort(fleet.node("a"))


async def post(port: ClusterPort, path: str, body: object) -> tuple[int, Any]:
    found = await port.answer("POST", path, json.dumps(body).encode())
    assert found is not None
    return found.status, found.value


def test_looking_is_answered_from_the_image() -> None:
    """On any node."""

    async def scenario(fleet: ControlFleet) -> None:
        port = await serving(fleet)
        for path in ("state", "metadata", "health", "partition/__schemas/0/info"):
            found = await port.answer("GET", f"/cluster/{path}", b"")
            assert found is not None
            assert found.status == 200
        assert await port.answer("GET", "/cluster/nothing", b"") is None
        assert await port.answer("DELETE", "/cluster/state", b"") is None
        with pytest.raises(TopicNotFoundError):
            await port.answer("GET", "/cluster/partition/x/0/info", b"")
        with pytest.raises(InvalidRequestError):
            await port.answer("GET", "/cluster/partition/__schemas/x/info", b"")

    run_control(scenario)


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("vote", {"candidate_id": "b", "epoch": 9}, ForbiddenError),
        ("metadata", {"metadata": {"version": 99}}, ForbiddenError),
        (
            "isr",
            {"topic": "__schemas", "partition": 0, "node_id": "b", "type": "shrink"},
            ForbiddenError,
        ),
        (
            "isr",
            {"topic": "x", "partition": 0, "node_id": "b", "type": "shrink"},
            TopicNotFoundError,
        ),
        ("vote", {"epoch": 9}, InvalidRequestError),
        ("metadata", [], InvalidRequestError),
        ("leave", {"node_id": "b"}, OperationActiveError),
        ("leave", {"node_id": "z"}, NodeNotFoundError),
        ("heartbeat", {"node_id": "z"}, NodeNotFoundError),
    ],
)
def test_nobody_posts_state(path: str, body: object, error: type[GoQueueError]) -> None:
    """Trap C9: what is posted is read, checked and refused with its reason; nothing changes."""

    async def scenario(fleet: ControlFleet) -> None:
        port = await serving(fleet)
        version = fleet.node("a").metadata.image.version
        with pytest.raises(error):
            await post(port, f"/cluster/{path}", body)

        assert fleet.node("a").metadata.image.version == version

    run_control(scenario)


def test_an_election_is_proposed_and_a_member_is_known() -> None:
    """From a node that need not be the controller."""

    async def scenario(fleet: ControlFleet) -> None:
        port = await serving(fleet)
        status, elected = await post(
            port, "/cluster/leader-election", {"topic": "__schemas", "partition": 0}
        )
        assert (status, elected.error_code) == (200, "")
        assert (await post(port, "/cluster/join", {"node_id": "b"}))[1].success
        status, refused = await post(port, "/cluster/join", {"node_id": "z", "node_info": {}})
        assert (status, refused.success) == (409, False)
        status, beat = await post(port, "/cluster/heartbeat", {"node_id": "b"})
        assert beat.controller_id in {"a", "b", "c"}

    run_control(scenario)
