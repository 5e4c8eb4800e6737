"""A broker is killed in a loop under a sink whose tasks' work its driver adopts: exactly once."""

import random
import threading
from collections import Counter
from pathlib import Path

import goqueue
from goqueue.base.errors import GoQueueError
from tests.acceptance.served import Served

KILLS = 4
LIFE_SECONDS = 0.7
TASKS = 3
ROWS = 40
SECONDS_MAX = 90


class Sink(threading.Thread):
    """Writes batches one after the other; a failed one is written again until it is committed."""

    def __init__(self, client: goqueue.Client) -> None:
        super().__init__(name="sink")
        self._client = client
        self._over = threading.Event()
        self.failures: list[GoQueueError] = []
        self.done = 0
        """Batches the sink knows to be committed."""

    def run(self) -> None:
        """Batch after batch, each known by its token."""
        while not self._over.is_set():
            try:
                self._write(self.done)
            except GoQueueError as error:
                self.failures.append(error)
            else:
                self.done += 1

    def _write(self, batch: int) -> None:
        with self._client.producer("rows", transactional_id="sink") as driver:
            if int(driver.last_token or -1) >= batch:
                return
            tasks = range(TASKS)
            handles = [self._attempt(batch, task, attempt=0) for task in tasks]
            # As a speculative attempt does: it writes the same rows and is not adopted.
            spare = self._attempt(batch, 0, attempt=1)
            with driver.transaction() as tx:
                tx.adopt(handles)
                tx.commit(token=str(batch))
            self._client.abort_detached([spare])

    def _attempt(self, batch: int, task: int, *, attempt: int) -> goqueue.Detached:
        name = f"sink-{task}-{attempt}"
        with self._client.producer("rows", transactional_id=name) as producer:
            tx = producer.transaction()
            tx.begin()
            for row in range(ROWS):
                tx.send(b"%d %d %d" % (batch, task, row))
            return tx.detach()

    def finish(self) -> None:
        """Stop behind a committed batch."""
        self._over.set()
        self.join(SECONDS_MAX)
        assert not self.is_alive()


def test_every_row_is_there_once(tmp_path: Path) -> None:
    """P9 over many producers: each batch is seen whole and once, whenever the broker dies."""
    dice = random.Random(7)
    with Served(tmp_path / "data") as broker, goqueue.connect(broker.address) as client:
        client.create_topic("rows", partitions=3, segment_bytes="256KiB")
        sink = Sink(client)
        sink.start()
        pause = threading.Event()
        for _ in range(KILLS):
            pause.wait(LIFE_SECONDS * (0.5 + dice.random()))
            broker.kill()
            broker.start()
        while sink.done < KILLS and sink.is_alive():
            pause.wait(0.05)
        sink.finish()
        token = client.describe_transaction("sink").token
        for task in range(TASKS):
            for attempt in range(2):
                client.producer("rows", transactional_id=f"sink-{task}-{attempt}").close()
        client.producer("rows", transactional_id="sink").close()
        found = Counter((message.value or b"").decode() for message in client.read("rows"))

        assert int(token or -1) >= sink.done - 1
        wanted = (
            f"{batch} {task} {row}"
            for batch in range(int(token or -1) + 1)
            for task in range(TASKS)
            for row in range(ROWS)
        )
        assert found == Counter(wanted), sink.failures
        assert client.list_transactions(open_only=True) == []
        assert broker.complaints() == []
