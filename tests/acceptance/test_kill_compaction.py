"""A real broker is killed again and again while it compacts what is published to it."""

import random
import signal
import threading
from pathlib import Path

import goqueue
from goqueue.base.errors import GoQueueError
from goqueue.storage.read_only import ReadOnlyDisk
from goqueue.storage.verify import Verification
from tests.acceptance.served import address_of, held_port
from tests.cli.running import BrokerProcess

KILLS = 6
KEYS = 40
REMOVED_MIN = 100
TOPIC = "state"


class Load(threading.Thread):
    """Writes keys over and over and remembers the last value of each that was acknowledged."""

    def __init__(self, client: goqueue.Client) -> None:
        super().__init__(name="load")
        self._producer = client.producer(TOPIC, linger_ms=1, buffer_bytes=1 << 20)
        self.is_over = threading.Event()
        self.sent = 0
        self.offsets: dict[bytes, int] = {}

    def run(self) -> None:
        while not self.is_over.wait(0.001):
            futures = []
            for _ in range(20):
                key = b"k%d" % (self.sent % KEYS)
                futures.append((key, self._producer.send(b"%d" % self.sent + bytes(200), key=key)))
                self.sent += 1
            for key, future in futures:
                self.offsets[key] = future.result(60).offset


class Admin(threading.Thread):
    """Asks for one compaction after the other."""

    def __init__(self, client: goqueue.Client) -> None:
        super().__init__(name="admin")
        self._client = client
        self.is_over = threading.Event()
        self.removed = 0

    def run(self) -> None:
        while not self.is_over.wait(0.005):
            try:
                parts = self._client.compact_topic(TOPIC)
            except GoQueueError:
                continue
            self.removed += sum(part.records_removed for part in parts)


def test_kill_nine_while_compacting_keeps_the_last_value_of_every_key(tmp_path: Path) -> None:
    """P1, P3: what was acked last for a key is there, at its offset, once, and nothing is bad."""
    dice = random.Random(2)
    held = held_port()
    address = address_of(held)
    broker = BrokerProcess(tmp_path / "data", "--native", address)
    client = goqueue.connect(address)
    client.create_topic(TOPIC, partitions=1, segment_bytes="64KiB", cleanup_policy="compact")
    load, admin = Load(client), Admin(client)
    load.start()
    admin.start()
    pause = threading.Event()
    for _ in range(KILLS):
        pause.wait(0.3 + dice.random() * 0.5)
        broker.stop(signal.SIGKILL)
        broker = BrokerProcess(tmp_path / "data", "--native", address)
    while admin.removed <= REMOVED_MIN and load.is_alive():
        pause.wait(0.05)
    for thread in (load, admin):
        thread.is_over.set()
        thread.join()
    client.compact_topic(TOPIC)
    messages = list(client.read(TOPIC))
    client.close()
    held.close()
    assert broker.stop() == 0
    verification = Verification(ReadOnlyDisk(tmp_path / "data"), is_deep=True)
    for _ in verification.run():
        pass

    assert admin.removed > REMOVED_MIN
    assert {message.key: message.offset for message in messages} == load.offsets
    assert len(messages) == len(load.offsets) == KEYS
    assert len({(message.value or b"").rstrip(b"\0") for message in messages}) == KEYS
    assert verification.report.is_clean, verification.report.findings
