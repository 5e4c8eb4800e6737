"""Delays of a real broker that is killed: nothing early, nothing lost, cancelled for good."""

import contextlib
import signal
import threading
import time
from pathlib import Path

import goqueue
from goqueue.base.errors import ConnectionLostError
from tests.acceptance.served import address_of, held_port
from tests.cli.running import BrokerProcess

TOPIC = "reminders"
ROUNDS = 4
EACH = 300


class Reader(threading.Thread):
    """Reads everything again and again, and notes whatever is seen before its time."""

    def __init__(self, client: goqueue.Client) -> None:
        super().__init__(name="reader")
        self._client = client
        self.over = threading.Event()
        self.early: list[goqueue.Message] = []
        self.rounds = 0

    def run(self) -> None:
        """Read until told to stop."""
        while not self.over.is_set():
            # Without a broker for a while there is nothing to read.
            with contextlib.suppress(ConnectionLostError):
                for message in self._client.read(TOPIC):
                    if (message.deliver_at_us or 0) > time.time_ns() // 1_000:
                        self.early.append(message)
                self.rounds += 1


def test_kill_nine_brings_delays_back_and_nothing_early(tmp_path: Path) -> None:
    """P6: acked delays wait on, those due come, the cancelled never, the moved when told to."""
    held = held_port()
    address = address_of(held)
    broker = BrokerProcess(tmp_path / "data", "--native", address)
    client = goqueue.connect(address)
    client.create_topic(TOPIC, partitions=2)
    reader = Reader(client)
    reader.start()
    sent: set[bytes] = set()
    cancelled: set[bytes] = set()
    moved: set[bytes] = set()
    for number in range(ROUNDS):
        producer = client.producer(TOPIC, linger_ms=1)
        futures = {
            b"%d-%d" % (number, row): producer.send(
                b"%d-%d" % (number, row), delay=f"{200 + row % 5 * 400}ms" if row % 3 else "1h"
            )
            for row in range(EACH)
        }
        places = {value: future.result(60) for value, future in futures.items()}
        sent |= set(places)
        for row in range(0, 60, 6):
            value = b"%d-%d" % (number, row)
            client.cancel_delayed(TOPIC, places[value].partition, places[value].offset)
            cancelled.add(value)
        for row in range(3, 60, 6):
            value = b"%d-%d" % (number, row)
            client.reschedule_delayed(
                TOPIC, places[value].partition, places[value].offset, delay="300ms"
            )
            moved.add(value)
        broker.stop(signal.SIGKILL)
        broker = BrokerProcess(tmp_path / "data", "--native", address)
    patient = (
        {value for value in sent if int(value.rpartition(b"-")[2]) % 3 == 0} - cancelled - moved
    )
    while len(client.delayed(TOPIC, limit=1_000)) > len(patient):
        pass
    while reader.rounds <= ROUNDS:
        assert reader.is_alive()
    reader.over.set()
    reader.join()
    seen = [message.value for message in client.read(TOPIC)]
    shown = {message.value for message in client.read(TOPIC, delayed="show")}
    client.close()
    held.close()

    assert broker.stop() == 0
    assert [message for message in reader.early if message.value not in moved] == []
    assert shown == sent
    assert len(seen) == len(set(seen))
    assert set(seen) == sent - cancelled - patient
