"""A member of a group that speaks HTTP, for tests of the queue."""

from collections.abc import Sequence
from typing import Any

import httpx

from tests.transport.http.running import Running


class Worker:
    """Joins a group, polls and settles."""

    def __init__(
        self,
        server: Running,
        group: str = "billing",
        topics: Sequence[str] = ("orders",),
        **options: Any,
    ) -> None:
        self.server = server
        self.group = group
        body = {"client_id": "worker", "topics": list(topics), **options}
        reply = server.post(f"/groups/{group}/join", body)
        assert reply.status_code == 200, reply.text
        self.member = reply.json()["member_id"]
        self.generation = reply.json()["generation"]

    def ask(self, **query: str | int) -> httpx.Response:
        """Poll without waiting, unless the query says otherwise."""
        asked: dict[str, str | int] = {"member_id": self.member, "timeout": "0s", **query}
        return self.server.get(f"/groups/{self.group}/poll", **asked)

    def poll(self, limit: int = 100, **query: str | int) -> list[dict[str, Any]]:
        """Return the messages of all partitions, one after the other."""
        reply = self.ask(limit=limit, **query)
        assert reply.status_code == 200, reply.text
        return [one for part in reply.json()["messages"].values() for one in part]

    def settle(self, verb: str, message: dict[str, Any], **fields: Any) -> httpx.Response:
        body = {"receipt_handle": message["receipt_handle"], **fields}
        return self.server.post(f"/messages/{verb}", body)

    def batch(self, verb: str, messages: Sequence[dict[str, Any]], **fields: Any) -> Any:
        body = {"receipts": [one["receipt_handle"] for one in messages], **fields}
        reply = self.server.post(f"/messages/{verb}/batch", body)
        assert reply.status_code == 200, reply.text
        return reply.json()


def values(messages: Sequence[dict[str, Any]]) -> list[str]:
    return [one["value"] for one in messages]


def fill(server: Running, count: int, topic: str = "orders", partition: int = 0) -> None:
    """Publish messages with the values m0, m1 and so on."""
    server.publish(
        *({"value": f"m{number}", "partition": partition} for number in range(count)), topic=topic
    )


def tick(server: Running) -> None:
    """Let the broker look at the clock."""
    server.inside(server.broker.consume.ledgers.tick)
