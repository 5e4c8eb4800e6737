"""A real broker is killed again and again while messages die and while they go back."""

import random
import threading
from collections import Counter
from pathlib import Path

import goqueue
from goqueue.base.errors import GoQueueError
from tests.acceptance.served import Served

MESSAGES = 1_500
KILLS = 4
LIFE_SECONDS = 0.5
DEADLINE_SECONDS = 120


class Worker(threading.Thread):
    """Rejects every third message and acks the others, whatever becomes of the broker."""

    def __init__(self, client: goqueue.Client) -> None:
        super().__init__(name="worker")
        self._consumer = client.consumer(
            "billing", ["orders"], visibility_timeout="2s", max_retries=100
        )
        self.over = threading.Event()

    def run(self) -> None:
        """Work until told to stop; what a kill interrupts comes again."""
        while not self.over.is_set():
            try:
                for message in self._consumer.poll(max_messages=50, timeout=0.2):
                    if int(message.value or b"0") % 3:
                        message.ack()
                    else:
                        message.reject("poison")
            except GoQueueError:
                self.over.wait(0.05)


def numbers(client: goqueue.Client, topic: str) -> Counter[int]:
    try:
        return Counter(int(message.value or b"-1") for message in client.read(topic))
    except GoQueueError:
        return Counter()


def wait_until(test: object, what: str) -> None:
    pause = threading.Event()
    for _ in range(DEADLINE_SECONDS * 10):
        if test():  # type: ignore[operator]
            return
        pause.wait(0.1)
    raise AssertionError(f"{what} does not happen")


def test_kill_nine_while_messages_die_and_go_back(tmp_path: Path) -> None:
    """P5: every poison message is a dead letter once; every dead letter goes back once."""
    dice = random.Random(7)
    poison = Counter(range(0, MESSAGES, 3))
    pause = threading.Event()
    with Served(tmp_path / "data") as served, goqueue.connect(served.address) as client:
        client.create_topic("orders", partitions=3)
        client.create_topic("repairs", partitions=2)
        producer = client.producer("orders")
        for number in range(MESSAGES):
            producer.send(b"%d" % number, key=b"key-%d" % (number % 40))
        producer.flush()
        worker = Worker(client)
        worker.start()
        for _ in range(KILLS):
            pause.wait(LIFE_SECONDS * dice.random())
            served.kill()
            served.start()
        wait_until(lambda: numbers(client, "orders.dlq") == poison, "the last death")
        worker.over.set()
        worker.join()
        client.dlq_redrive("orders", target="repairs", rate=400, wait=False, by="test")
        for _ in range(KILLS):
            pause.wait(LIFE_SECONDS * dice.random())
            served.kill()
            served.start()
        wait_until(lambda: client.dlq_history("orders")[0].state == "done", "the end of a redrive")
        (job,) = client.dlq_history("orders")

        assert numbers(client, "orders.dlq") == poison
        assert numbers(client, "repairs") == poison
        assert (job.moved, job.total, job.by) == (len(poison), len(poison), "test")
        assert client.dlq_peek("orders").depth == 0
        assert served.complaints() == []
