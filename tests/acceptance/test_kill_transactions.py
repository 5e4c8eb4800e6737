"""A real broker is killed in a loop while transactions run: both entries are there, or none."""

import random
import threading
from collections import Counter
from pathlib import Path

import goqueue
from goqueue.base.errors import GoQueueError
from tests.acceptance.served import Served

KILLS = 5
LIFE_SECONDS = 0.7
ORDERS = 300
COMMITTED_MIN = 20
SECONDS_MAX = 90


class Transfers(threading.Thread):
    """Moves money between two accounts until told to stop; some transfers are given up."""

    def __init__(self, client: goqueue.Client, name: str, seed: int) -> None:
        super().__init__(name=name)
        self._producer = client.producer("accounts", transactional_id=name)
        self._dice = random.Random(seed)
        self._over = threading.Event()
        self.committed: set[str] = set()
        self.given_up: set[str] = set()
        self.failures: list[GoQueueError] = []

    def run(self) -> None:
        """Transfer after transfer, whatever happens to one of them."""
        number = 0
        while not self._over.wait(0.002):
            number += 1
            name = f"{self.name}-{number}"
            try:
                self._transfer(name)
            except GoQueueError as error:
                self.failures.append(error)

    def _transfer(self, name: str) -> None:
        tx = self._producer.transaction()
        tx.begin()
        for partition, sign in ((0, "+"), (1, "-")):
            for row in range(self._dice.choice((1, 1, 3, 40))):
                tx.send(f"{name} {sign}{row}".encode(), partition=partition)
        if self._dice.random() < 0.2:
            self.given_up.add(name)
            tx.abort()
        else:
            tx.commit(token=name)
            self.committed.add(name)

    def finish(self) -> None:
        """Stop, and have nothing open."""
        self._over.set()
        self.join(SECONDS_MAX)
        assert not self.is_alive()
        self._producer.close()


class Worker(threading.Thread):
    """Consumes orders and writes one bill for each, both in one transaction."""

    def __init__(self, client: goqueue.Client) -> None:
        super().__init__(name="worker")
        self._client = client
        self._consumer = client.consumer(
            "billing", ["orders"], visibility_timeout="2s", max_retries=1_000
        )
        self._producer = client.producer("bills", transactional_id="worker")
        self._over = threading.Event()
        self.failures: list[GoQueueError] = []

    def run(self) -> None:
        """A message at a time; one whose transaction failed is given back or comes again."""
        for message in self._consumer:
            try:
                with self._producer.transaction() as tx:
                    tx.send(b"bill of " + (message.value or b""))
                    tx.ack(message)
            except GoQueueError as error:
                self.failures.append(error)
                if not message.is_settled:
                    message.nack(delay=0)

    def finish(self) -> None:
        """Stop when the group has settled everything."""
        pause = threading.Event()
        for _ in range(SECONDS_MAX * 10):
            if sum(part.lag for part in self._client.group_progress("billing")) == 0:
                break
            pause.wait(0.1)
        self._consumer.stop()
        self.join(SECONDS_MAX)
        assert not self.is_alive()
        self._consumer.close()
        self._producer.close()


class Follower(threading.Thread):
    """Reads what is committed, as it comes."""

    def __init__(self, client: goqueue.Client) -> None:
        super().__init__(name="follower", daemon=True)
        self._messages = client.read("accounts", follow=True)
        self.seen: list[tuple[int, int, str]] = []

    def run(self) -> None:
        """Read until the client is closed."""
        try:
            for message in self._messages:
                self.seen.append((message.partition, message.offset, text(message)))
        except GoQueueError:
            return


def text(message: goqueue.Message) -> str:
    return (message.value or b"").decode()


def test_kills_leave_both_entries_or_none(tmp_path: Path) -> None:
    """P9: all or nothing over partitions and acks, whenever the broker dies."""
    dice = random.Random(7)
    with Served(tmp_path / "data") as broker, goqueue.connect(broker.address) as client:
        client.create_topic("accounts", partitions=2, segment_bytes="256KiB")
        client.create_topic("orders", partitions=2)
        client.create_topic("bills", partitions=2)
        with client.producer("orders") as producer:
            for number in range(ORDERS):
                producer.send(b"%d" % number)
        transfers = [Transfers(client, "left", 1), Transfers(client, "right", 2)]
        worker, follower = Worker(client), Follower(client)
        for thread in (*transfers, worker, follower):
            thread.start()
        pause = threading.Event()
        for _ in range(KILLS):
            pause.wait(LIFE_SECONDS * (0.5 + dice.random()))
            broker.kill()
            broker.start()
        while sum(len(one.committed) for one in transfers) <= COMMITTED_MIN:
            assert all(one.is_alive() for one in transfers)
            pause.wait(0.05)
        for one in transfers:
            one.finish()
        worker.finish()
        judge_transfers(client, transfers, follower)
        bills = Counter(text(message) for message in client.read("bills"))
        assert bills == Counter(f"bill of {number}" for number in range(ORDERS)), worker.failures
        assert client.list_transactions(open_only=True) == []
        assert broker.complaints() == []


def judge_transfers(client: goqueue.Client, transfers: list[Transfers], follower: Follower) -> None:
    """Compare what readers of committed messages got with what was promised."""
    read = {(one.partition, one.offset): text(one) for one in client.read("accounts")}
    assert set(follower.seen) <= {(*place, value) for place, value in read.items()}
    assert len(set(follower.seen)) == len(follower.seen)
    sides: dict[str, set[int]] = {}
    for (partition, _), value in read.items():
        sides.setdefault(value.split()[0], set()).add(partition)
    assert len(read.values()) == len(set(read.values())), "an entry is there twice"
    committed = set().union(*(one.committed for one in transfers))
    given_up = set().union(*(one.given_up for one in transfers))
    assert all(found == {0, 1} for found in sides.values())
    assert committed <= set(sides)
    assert not given_up & set(sides)
    for one in transfers:
        last = [
            name for name in one.committed if client.describe_transaction(one.name).token == name
        ]
        assert last or one.failures
