"""Topics made, described and deleted over HTTP on any node, and whether it can have happened so.

One request is one operation: nothing in between repeats it. A topic is a register: absent, or there
with so many partitions.
"""

import http.client
import json
import threading
import time
from collections import Counter
from random import Random
from typing import Final

from goqueue.testing.linearizability import NEVER, TimedOperation, by_key, find_violation

Asked = tuple[str, str, int]
"""Verb, topic, partitions."""
ABSENT: Final = 0
TIMEOUT_S: Final = 8.0
_KNOWN: Final = {
    "create": {201: "made", 200: "made", 409: "exists"},
    "delete": {200: "gone", 204: "gone", 404: "missing"},
}


def step(state: int, asked: Asked, output: str | int | None) -> int | None:
    """Return the partitions of a topic behind an operation; None if it cannot have said so."""
    verb, _, partitions = asked
    is_there = state != ABSENT
    if verb == "describe":
        return state if output is None or output == state else None
    if output is None:
        # Nobody knows whether it did anything.
        return ABSENT if verb == "delete" else state or partitions
    if verb == "create":
        wanted = "exists" if is_there else "made"
        return (state or partitions) if output == wanted else None
    return ABSENT if output == ("gone" if is_there else "missing") else None


def violations(history: list[TimedOperation[Asked, str | int]]) -> list[str]:
    """Return the topics whose history cannot have happened one after the other."""
    found: list[str] = []
    for topic, operations in by_key(history, lambda asked: asked[1]).items():
        longest = find_violation(operations, initial=ABSENT, step=step)
        if longest is not None:
            rest = [one for one in operations if one not in longest]
            found.append(
                f"{topic} is not linearizable: after {_show(longest[-6:])}"
                f" nothing allows {_show(rest[:6])}"
            )
    return found


def _show(operations: object) -> str:
    assert isinstance(operations, list)
    shown = [
        f"{one.client} {' '.join(map(str, one.input))} -> {one.output}"
        f" [{one.called / 1e9:.3f}..{'' if one.returned == NEVER else f'{one.returned / 1e9:.3f}'}]"
        for one in operations
    ]
    return "; ".join(shown)


class Registrar(threading.Thread):
    """Asks nodes in turn, and notes what it asked, when, and what it was told."""

    def __init__(self, name: str, http_addresses: list[str], seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self._addresses = http_addresses
        self._chance = Random(seed)
        self.over = threading.Event()
        self.round = 0
        """Topics have other names in each round, so that histories stay short."""
        self.history: list[TimedOperation[Asked, str | int]] = []
        self.statuses: Counter[str] = Counter()

    def run(self) -> None:
        """Ask until told to stop."""
        while not self.over.wait(0.1):
            verb = self._chance.choice(("create", "describe", "describe", "describe", "delete"))
            topic = f"meta-{self.round}-{self._chance.randrange(2)}"
            asked = (verb, topic, self._chance.randint(1, 3))
            address = self._chance.choice(self._addresses)
            called = time.monotonic_ns()
            output = self._ask(address, asked)
            if output is None and verb == "describe":
                continue
            returned = NEVER if output is None else time.monotonic_ns()
            self.history.append(
                TimedOperation(
                    client=f"{self.name}@{address.partition(':')[0].rpartition('.')[2]}",
                    input=asked,
                    output=output,
                    called=called,
                    returned=returned,
                )
            )

    def _ask(self, address: str, asked: Asked) -> str | int | None:
        """Return what was answered; None where it is not known what became of it."""
        verb, topic, partitions = asked
        host, _, port = address.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)
        body = json.dumps({"name": topic, "num_partitions": partitions})
        headers = {"content-type": "application/json"}
        try:
            if verb == "create":
                connection.request("POST", "/topics", body=body, headers=headers)
            else:
                method = "GET" if verb == "describe" else "DELETE"
                connection.request(method, f"/topics/{topic}")
            reply = connection.getresponse()
            text = reply.read()
        except (OSError, http.client.HTTPException) as error:
            self.statuses[f"{verb} {type(error).__name__}"] += 1
            return None
        finally:
            connection.close()
        self.statuses[f"{verb} {reply.status}"] += 1
        if verb == "describe":
            return _described(reply.status, text)
        return _KNOWN[verb].get(reply.status)


def _described(status: int, text: bytes) -> int | None:
    if status == http.HTTPStatus.NOT_FOUND:
        return ABSENT
    if status != http.HTTPStatus.OK:
        return None
    return int(json.loads(text)["partitions"])
