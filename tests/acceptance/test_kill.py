"""A real broker is killed again and again while it is published to and read from."""

import random
import signal
import threading
from pathlib import Path

import goqueue
from goqueue.base.errors import GoQueueError
from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.client.producer.pile import SendFuture
from goqueue.core.producers.partitioner import partition_of_key
from goqueue.testing.log_checker import LogChecker
from tests.acceptance.served import address_of, held_port
from tests.cli.running import BrokerProcess

KILLS = 6
PARTITIONS = 3
LIFE_SECONDS = 0.6
TOPIC = TopicName("orders")


class Load(threading.Thread):
    """Publishes numbered messages until told to stop, and remembers every future."""

    def __init__(self, client: goqueue.Client, name: str) -> None:
        super().__init__(name=name)
        self._producer = client.producer(TOPIC, linger_ms=1, buffer_bytes=1 << 20)
        self._over = threading.Event()
        self.sent: list[tuple[bytes, SendFuture]] = []

    def run(self) -> None:
        """Send in small bursts, so that a kill finds requests at every stage."""
        number = 0
        while not self._over.wait(0.001):
            for _ in range(20):
                payload = f"{self.name}-{number}".encode()
                future = self._producer.send(payload, key=b"key-%d" % (number % 50))
                self.sent.append((payload, future))
                number += 1

    def finish(self) -> None:
        """Stop sending and wait until every message is settled."""
        self._over.set()
        self.join()
        self._producer.flush(timeout=60)


class Follower(threading.Thread):
    """Reads along; what it saw must still be there afterwards."""

    def __init__(self, client: goqueue.Client) -> None:
        super().__init__(name="follower", daemon=True)
        self._messages = client.read(TOPIC, follow=True)
        self.seen: list[tuple[int, int, bytes]] = []

    def run(self) -> None:
        """Read until the client is closed."""
        try:
            for message in self._messages:
                assert message.value is not None
                self.seen.append((message.partition, message.offset, message.value))
        except GoQueueError:
            return


def place(payload: bytes) -> TopicPartition:
    number = int(payload.rpartition(b"-")[2])
    return TopicPartition(TOPIC, partition_of_key(b"key-%d" % (number % 50), PARTITIONS))


def test_kill_nine_in_a_loop_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """P1, P3: acked messages survive at their offsets, retried ones are there once, in order."""
    dice = random.Random(1)
    held = held_port()
    address = address_of(held)
    broker = BrokerProcess(tmp_path / "data", "--native", address)
    client = goqueue.connect(address)
    client.create_topic(TOPIC, partitions=PARTITIONS, segment_bytes="256KiB")
    loads = [Load(client, "a"), Load(client, "b")]
    follower = Follower(client)
    for thread in (*loads, follower):
        thread.start()
    pause = threading.Event()
    for _ in range(KILLS):
        pause.wait(LIFE_SECONDS * (0.5 + dice.random()))
        broker.stop(signal.SIGKILL)
        broker = BrokerProcess(tmp_path / "data", "--native", address)
    for load in loads:
        load.finish()
    checker = LogChecker()
    judge(checker, client, loads, follower)
    client.close()
    held.close()

    assert broker.stop() == 0
    assert sum(len(load.sent) for load in loads) > 1_000
    checker.check()


def judge(
    checker: LogChecker, client: goqueue.Client, loads: list[Load], follower: Follower
) -> None:
    """Tell the checker what was sent, acked, followed and finally read."""
    for load in loads:
        for payload, future in load.sent:
            checker.sent(place(payload), payload, producer=load.name)
            answer = future.result(timeout=60)
            partition = TopicPartition(TOPIC, PartitionId(answer.partition))
            checker.acked(partition, answer.offset, payload)
    for number in range(PARTITIONS):
        name = TopicPartition(TOPIC, PartitionId(number))
        followed = [(o, v) for p, o, v in list(follower.seen) if p == number]
        if followed:
            checker.read(
                name, followed, start_offset=followed[0][0], end_offset=followed[-1][0] + 1
            )
        read = [(m.offset, m.value or b"") for m in client.read(TOPIC, partitions=[number])]
        checker.read(name, read, start_offset=0, end_offset=len(read))
