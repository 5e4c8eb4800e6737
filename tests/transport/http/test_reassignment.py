"""Moves of replicas over HTTP on a broker that has no other nodes; clusters are in acceptance."""

import pytest

from tests.transport.http.running import Running, error_of


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/reassign-1"),
        ("DELETE", "/reassign-1"),
        ("POST", "/reassign-1/pause"),
        ("POST", "/reassign-1/resume"),
        ("POST", "/plan"),
    ],
)
def test_a_broker_by_itself_has_none(server: Running, method: str, path: str) -> None:
    """It says so, on every route."""
    reply = server.client.request(method, f"/admin/reassignment{path}", json={})

    assert reply.status_code == 501
    assert "not a node of a cluster" in error_of(reply)[1]


def test_a_body_is_read_before_anything_is_asked(server: Running) -> None:
    """What is missing is named."""
    reply = server.client.post("/admin/reassignment", json={"throttle_bytes_per_sec": -1})

    assert reply.status_code == 400
