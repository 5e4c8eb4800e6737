"""A real node is killed while a group consumes: what was settled is never delivered again."""

import signal
import threading
import time
from pathlib import Path

import pytest

import goqueue
from tests.acceptance.clustered import Clustered
from tests.acceptance.test_cluster_kills import QUICK

JOBS = 1_200
KEYS = 60
PARTITIONS = 6
SECONDS_MAX = 120


class Worker(threading.Thread):
    """Takes jobs and acks them, and notes which acks were confirmed."""

    def __init__(self, addresses: str, confirmed: dict[bytes, float]) -> None:
        super().__init__()
        self._addresses = addresses
        self._confirmed = confirmed
        self._over = threading.Event()
        self.again: list[bytes] = []
        """Jobs that came although their ack had been confirmed."""
        self.error: BaseException | None = None

    def run(self) -> None:
        """Work until told to stop."""
        try:
            with (
                goqueue.connect(self._addresses, timeout=60) as client,
                client.consumer("work", ["jobs"]) as consumer,
            ):
                while not self._over.is_set():
                    self._take(consumer)
        except BaseException as error:  # noqa: BLE001 - the test shows it
            self.error = error

    def _take(self, consumer: "goqueue.Consumer") -> None:
        jobs = [job for job in consumer.poll(max_messages=50, timeout=0.5) if job.value]
        for job in jobs:
            assert job.value is not None
            if job.value in self._confirmed:
                self.again.append(job.value)
            job.ack()
        if jobs:
            consumer.flush()
            self._confirmed.update({job.value: time.monotonic() for job in jobs if job.value})

    def finish(self) -> None:
        """Stop, and leave the group."""
        self._over.set()
        self.join()


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["n1", "n3"])
def test_what_was_settled_stays_settled_when_a_node_dies(tmp_path: Path, victim: str) -> None:
    """P2, P4: every job is done, and none comes again whose ack was confirmed."""
    confirmed: dict[bytes, float] = {}
    with Clustered(tmp_path, **QUICK) as cluster:
        names = list(cluster.nodes)
        for name in names:
            cluster.start(name)
        cluster.until_alive(names)
        with goqueue.connect(cluster.addresses, timeout=60) as client:
            client.create_topic("jobs", partitions=PARTITIONS)
            workers = [Worker(cluster.addresses, confirmed) for _ in range(2)]
            for worker in workers:
                worker.start()
            with client.producer("jobs") as producer:
                for number in range(JOBS):
                    producer.send(b"job-%d" % number, key=b"key-%d" % (number % KEYS))
                    if number == JOBS // 3:
                        producer.flush()
                        cluster.until(lambda: len(confirmed) > JOBS // 6)
                        cluster.nodes[victim].end(signal.SIGKILL)
            deadline, pause = time.monotonic() + SECONDS_MAX, threading.Event()
            while len(confirmed) < JOBS and time.monotonic() < deadline:
                pause.wait(0.05)
            for worker in workers:
                worker.finish()
            lag = sum(part.lag for part in client.group_progress("work"))

        assert [worker.error for worker in workers] == [None, None]
        assert len(confirmed) == JOBS
        assert [again for worker in workers for again in worker.again] == []
        assert lag == 0
