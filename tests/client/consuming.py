"""What the tests of consumers share."""

import threading
import time
from collections.abc import Callable, Iterable

import goqueue

SECONDS_MAX = 120


def publish(client: goqueue.Client, topic: str, count: int, *, keys: int = 0) -> list[bytes]:
    """Publish numbered messages; return their values."""
    values = [b"%d" % number for number in range(count)]
    with client.producer(topic) as producer:
        for number, value in enumerate(values):
            producer.send(value, key=b"key-%d" % (number % keys) if keys else None)
    return values


def take(messages: Iterable[goqueue.Delivery], count: int) -> list[goqueue.Delivery]:
    """Return the first messages, which are not settled."""
    found: list[goqueue.Delivery] = []
    for message in messages:
        found.append(message)
        if len(found) == count:
            break
    return found


def eventually(condition: Callable[[], object], what: str = "it") -> None:
    """Return when a condition holds; it has a while to do so."""
    deadline = time.monotonic() + SECONDS_MAX
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in {SECONDS_MAX} s"
        pause.wait(0.005)


def outlive(message: goqueue.Delivery, *, seconds: float) -> None:
    """Return when the lease of a message was extended by so much behind its first end."""
    lease = message.lease
    end_s = lease.deadline_s + seconds
    eventually(lambda: lease.deadline_s >= end_s, "the extension of a lease")


def lag(client: goqueue.Client, group: str) -> int:
    """Return how many messages a group has not settled."""
    return sum(part.lag for part in client.group_progress(group))


def in_flight(client: goqueue.Client, group: str) -> int:
    """Return how many messages a group holds."""
    return sum(part.in_flight for part in client.group_progress(group))
