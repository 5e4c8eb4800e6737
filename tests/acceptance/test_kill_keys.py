"""A real broker is killed again and again while groups work through keys in their order."""

import random
import threading
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import goqueue
from goqueue.base.errors import GoQueueError
from tests.acceptance.served import Served

KEYS = 40
KILLS = 5
LIFE_SECONDS = 0.6
ROUNDS_MIN = 20
DEADLINE_SECONDS = 120
GROUPS = {"one-owner": "exclusive", "many-owners": "shared"}


class Step(NamedTuple):
    """What a worker did, noted before it did it."""

    is_ack: bool
    key: bytes
    number: int


class Worker(threading.Thread):
    """Acks what it gets, and sends back now and then what it gets for the first time."""

    def __init__(self, client: goqueue.Client, group: str, steps: list[Step]) -> None:
        super().__init__(name=f"worker of {group}")
        self._consumer = client.consumer(
            group,
            ["orders"],
            mode=GROUPS[group],
            ordering="key",
            visibility_timeout="2s",
            max_retries=100,
            prefetch=100,
        )
        self._steps = steps
        self.over = threading.Event()

    def run(self) -> None:
        """Work until told to stop; what a kill interrupts comes again."""
        while not self.over.is_set():
            try:
                for message in self._consumer.poll(max_messages=20, timeout=0.2):
                    assert message.key is not None
                    number = int(message.value or b"-1")
                    self._steps.append(Step(is_ack=False, key=message.key, number=number))
                    if number % 11 == 5 and message.delivery_count == 1:
                        message.nack(delay=0.02, reason="again")
                        continue
                    self._steps.append(Step(is_ack=True, key=message.key, number=number))
                    message.ack()
            except GoQueueError:
                self.over.wait(0.05)


class Sender(threading.Thread):
    """Publishes the next number of every key, round after round."""

    def __init__(self, client: goqueue.Client) -> None:
        super().__init__(name="sender")
        self._producer = client.producer("orders", linger_ms=1)
        self.over = threading.Event()
        self.rounds = 0

    def run(self) -> None:
        """Publish until told to stop and enough is there."""
        while not self.over.wait(0.01) or self.rounds < ROUNDS_MIN:
            for key in range(KEYS):
                self._producer.send(b"%d" % self.rounds, key=b"key-%d" % key)
            self.rounds += 1
        self._producer.flush(timeout=60)


def lag(client: goqueue.Client, group: str) -> int:
    try:
        return sum(part.lag for part in client.group_progress(group))
    except GoQueueError:
        return -1


def check_order(steps: list[Step], rounds: int) -> None:
    """P7: a number is given out when the one before it was acked, and none is left out."""
    acked: dict[bytes, int] = defaultdict(lambda: -1)
    for step in steps:
        if step.is_ack:
            acked[step.key] = max(acked[step.key], step.number)
        else:
            # The last one again: its ack did not come through, and nothing behind it was leased.
            assert step.number in {acked[step.key], acked[step.key] + 1}, step
    assert dict(acked) == {b"key-%d" % key: rounds - 1 for key in range(KEYS)}


def test_kill_nine_keeps_the_order_of_keys(tmp_path: Path) -> None:
    """P2, P7: with retries, in both modes, with two consumers each; nothing is lost."""
    dice = random.Random(3)
    steps: dict[str, list[Step]] = {group: [] for group in GROUPS}
    with Served(tmp_path / "data") as broker, goqueue.connect(broker.address) as client:
        client.create_topic("orders", partitions=2)
        sender = Sender(client)
        workers = [Worker(client, group, steps[group]) for group in GROUPS for _ in range(2)]
        for thread in (sender, *workers):
            thread.start()
        pause = threading.Event()
        for _ in range(KILLS):
            pause.wait(LIFE_SECONDS * (0.5 + dice.random()))
            broker.kill()
            broker.start()
        sender.over.set()
        sender.join(DEADLINE_SECONDS)
        for group in GROUPS:
            for _ in range(DEADLINE_SECONDS * 10):
                if lag(client, group) == 0:
                    break
                pause.wait(0.1)
            assert lag(client, group) == 0, group
        for worker in workers:
            worker.over.set()
            worker.join(DEADLINE_SECONDS)
        dead = [part.dead for group in GROUPS for part in client.group_progress(group)]

    assert not any(dead)
    for group in GROUPS:
        check_order(steps[group], sender.rounds)
