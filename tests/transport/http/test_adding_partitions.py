"""More partitions of a topic over HTTP, as the contract has it."""

import pytest

from tests.transport.http.running import Running, error_of

URL = "/admin/topics/grows/partitions"


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_a_topic_gets_more_partitions(server: Running, prefix: str) -> None:
    """The count is the new total; the new partitions take messages."""
    server.create("grows", num_partitions=2)
    reply = server.client.post(prefix + URL, json={"count": 4})
    published = server.publish({"value": "v", "partition": 3}, topic="grows")
    status = server.client.get(prefix + "/admin/topics/grows/scaling-status").json()

    assert reply.status_code == 200
    assert reply.json() == {
        "success": True,
        "topic_name": "grows",
        "old_partition_count": 2,
        "new_partition_count": 4,
        "partitions_added": [2, 3],
    }
    assert published[0]["partition"] == 3
    assert status == {"topic": "grows", "scaling_in_progress": False}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"count": 2}, "count"),
        ({"count": 1}, "count"),
        ({"count": 0}, "count"),
        ({"count": -5}, "count"),
        ({"count": 10_001}, "count"),
        ({"count": 3, "replica_assignments": {"2": ["other"]}}, "replica_assignments"),
        ({"count": 3, "replica_assignments": {"two": ["other"]}}, "replica_assignments"),
        ({"count": 3, "replica_assignments": {"2": []}}, "replica_assignments"),
        ({"count": 3, "replica_assignments": {"2": ["x" * 1_000]}}, "replica_assignments"),
    ],
)
def test_what_is_wrong_is_named(server: Running, body: dict[str, object], field: str) -> None:
    """The topic stays as it is."""
    server.create("grows", num_partitions=2)
    refused = server.client.post(URL, json=body)

    assert refused.status_code == 400
    assert field in error_of(refused)[1]
    assert server.client.get("/topics/grows").json()["partitions"] == 2


def test_a_topic_that_is_not_there(server: Running) -> None:
    """Both routes say so."""
    assert server.client.post(URL, json={"count": 4}).status_code == 404
    assert server.client.get("/admin/topics/grows/scaling-status").status_code == 404
