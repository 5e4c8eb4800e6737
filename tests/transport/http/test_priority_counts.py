"""The lanes in numbers: pending, consumed and the oldest of each, as groups settle."""

from typing import Any

from goqueue.testing.clock import FakeClock
from tests.transport.http.queueing import Worker, values
from tests.transport.http.running import Running


def lanes(server: Running) -> Any:
    stats = server.get("/priority/stats").json()
    return stats["topics"]["orders"]["partitions"]["0"]


def test_lanes_are_counted_as_groups_settle(server: Running, clock: FakeClock) -> None:
    """Pending falls when every group has settled, consumed grows with each ack."""
    server.create(num_partitions=1)
    server.publish({"value": "c", "priority": "critical"}, {"value": "n"})
    clock.advance(5_000)
    server.publish({"value": "n2"}, {"value": "b", "priority": "background"})
    unread = lanes(server)
    one, two = Worker(server, "one"), Worker(server, "two")
    first, second = one.poll(), two.poll()
    assert one.batch("ack", first)["settled"] == 4
    half = lanes(server)
    some = [message for message in second if message["value"] in {"c", "n"}]
    assert two.batch("ack", some)["settled"] == 2
    rest = lanes(server)

    assert sorted(values(first)) == ["b", "c", "n", "n2"]
    assert (unread["pending"], unread["consumed"]) == ([1, 0, 2, 0, 1], [0] * 5)
    assert unread["oldest_pending"] == [
        "2023-11-14T22:13:20.000000000Z",
        "",
        "2023-11-14T22:13:20.000000000Z",
        "",
        "2023-11-14T22:13:25.000000000Z",
    ]
    assert (half["pending"], half["consumed"]) == ([1, 0, 2, 0, 1], [1, 0, 2, 0, 1])
    assert (rest["pending"], rest["consumed"]) == ([0, 0, 1, 0, 1], [2, 0, 3, 0, 1])
    assert rest["oldest_pending"][2] == "2023-11-14T22:13:25.000000000Z"
    assert rest["total"] == [1, 0, 2, 0, 1]
