"""A real broker whose fdatasync fails with EIO in the middle of work, by strace.

``GOQUEUE_FAILING_SYNCS=RUNS`` makes more runs than the one of every day.
"""

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import goqueue
from goqueue.base.errors import GoQueueError
from tests.acceptance.served import SECONDS_MAX, Served

RUNS = int(os.environ.get("GOQUEUE_FAILING_SYNCS", "1"))
ROUNDS = 25
ORDERS_EACH = 8
FIRST_FAILURES = 60
"""The sync that fails is one of so many of its thread."""
TIMEOUT_SECONDS = 5.0


def _may_trace() -> bool:
    """Try whether strace is here and may look at another process."""
    strace = shutil.which("strace")
    if strace is None:
        return False
    command = [strace, "-qq", "-e", "trace=fdatasync", "-o", os.devnull, sys.executable, "-c", ""]
    return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode == 0


@contextmanager
def failing_sync(pid: int, number: int) -> Iterator[None]:
    """Let one fdatasync of each thread of a process fail: the one of that number."""
    strace = subprocess.Popen(
        [
            *("strace", "-f", "-p", str(pid), "-o", os.devnull, "-e", "trace=fdatasync"),
            *("-e", f"inject=fdatasync:error=EIO:when={number}"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert strace.stderr is not None, "asked for"
    try:
        assert "attached" in strace.stderr.readline()
        # Whatever else it has to say must not fill the pipe.
        rest = threading.Thread(target=strace.stderr.read, daemon=True)
        rest.start()
        yield
        strace.terminate()
        rest.join(SECONDS_MAX)
    finally:
        strace.terminate()
        strace.wait(SECONDS_MAX)
        strace.stderr.close()


class Work:
    """Publishes, consumes and bills, and remembers what it was promised."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.published: set[bytes] = set()
        self.acked: set[bytes] = set()
        """Orders whose acks were confirmed, by a flush or by a commit."""
        self.tried: set[bytes] = set()
        """Orders somebody acked, whatever became of it."""
        self.bills: dict[str, bool | None] = {}
        """Transactions: committed, not asked to be, or nobody knows."""
        self.acks_of: dict[str, list[bytes]] = {}
        self.failures = 0

    def run(self, client: goqueue.Client) -> None:
        """Work for a while; what fails is told, and the rest goes on."""
        for number in range(ROUNDS):
            for act in (self.publish, self.consume, self.bill):
                try:
                    act(client, number)
                except GoQueueError:
                    self.failures += 1

    def publish(self, client: goqueue.Client, number: int) -> None:
        """Publish orders; each whose future has a place is promised."""
        values = [f"order {number}.{row}".encode() for row in range(ORDERS_EACH)]
        producer = client.producer("orders", delivery_timeout_ms=2_000)
        futures = [producer.send(value, key=value[-1:]) for value in values]
        for value, future in zip(values, futures, strict=True):
            if future.exception() is None:
                self.published.add(value)
        producer.close()

    def consume(self, client: goqueue.Client, _: int) -> None:
        """Ack some orders; they are done when the flush returns."""
        with client.consumer("packers", ["orders"]) as consumer:
            found = [(one, one.value or b"") for one in consumer.poll(5, timeout=0.1)]
            self._check_fresh(value for _, value in found)
            for message, value in found:
                message.ack()
                self.tried.add(value)
            consumer.flush()
            self.acked.update(value for _, value in found)

    def bill(self, client: goqueue.Client, number: int) -> None:
        """Bill orders in a transaction that acks them: two entries, and the acks."""
        name = f"bill-{number}"
        self.bills[name] = False
        options = {"transactional_id": "biller", "transaction_timeout_ms": 4_000}
        producer = client.producer("bills", **options)  # type: ignore[arg-type]
        with producer, client.consumer("packers", ["orders"]) as consumer:
            found = [(one, one.value or b"") for one in consumer.poll(3, timeout=0.1)]
            self._check_fresh(value for _, value in found)
            self.acks_of[name] = [value for _, value in found]
            tx = producer.transaction()
            tx.begin()
            for partition, sign in ((0, "-"), (1, "+")):
                tx.send(f"{name}{sign}".encode(), partition=partition)
            for message, _ in found:
                tx.ack(message)
            if self._dice.random() < 0.2:
                tx.abort()
                return
            self.bills[name] = None
            self.tried.update(self.acks_of[name])
            tx.commit()
            self.bills[name] = True
            self.acked.update(value for _, value in found)

    def _check_fresh(self, values: Iterator[bytes]) -> None:
        again = self.acked.intersection(values)
        assert not again, f"acked, and delivered again: {again}"

    def check(self, client: goqueue.Client) -> None:
        """Compare what there is after a restart with what was promised."""
        there = [message.value or b"" for message in client.read("orders")]
        assert self.published <= set(there)
        assert len(there) == len(set(there))
        bills = [(message.value or b"").decode() for message in client.read("bills")]
        assert len(bills) == len(set(bills))
        for name, is_committed in self.bills.items():
            found = (f"{name}-" in bills, f"{name}+" in bills)
            assert found[0] == found[1], f"half of {name}: {found}"
            assert is_committed is None or found[0] == is_committed, f"{name}: {is_committed}"
            if found[0]:
                self.acked.update(self.acks_of[name])
        self.drain(client, set(there))

    def drain(self, client: goqueue.Client, there: set[bytes]) -> None:
        """Work through the rest: everything that is not done comes, and nothing that is."""
        seen: set[bytes] = set()
        deadline = time.monotonic() + SECONDS_MAX
        with client.consumer("packers", ["orders"]) as consumer:
            while sum(part.lag for part in client.group_progress("packers")):
                assert time.monotonic() < deadline, "not everything comes"
                for message in consumer.poll(timeout=0.2):
                    self._check_fresh(iter([message.value or b""]))
                    seen.add(message.value or b"")
                    message.ack()
                consumer.flush()
        # What was acked and not confirmed may be done, or come again.
        assert there - self.acked - self.tried <= seen


@pytest.mark.slow
@pytest.mark.skipif(not _may_trace(), reason="needs strace, and the right to use it")
@pytest.mark.parametrize("run", range(RUNS))
def test_what_was_promised_holds_when_a_sync_fails(tmp_path: Path, run: int) -> None:
    """Publishes, flushed acks and commits that were answered are there after the restart."""
    dice = random.Random(run)
    work = Work(run)
    with Served(tmp_path / "data") as served:
        with goqueue.connect(served.address, timeout=TIMEOUT_SECONDS) as client:
            client.create_topic("orders", partitions=2)
            client.create_topic("bills", partitions=2)
            client.consumer("packers", ["orders"]).close()
            with failing_sync(served.pid, dice.randrange(1, FIRST_FAILURES)):
                work.run(client)
                served.kill()
        served.start()
        with goqueue.connect(served.address, timeout=60) as client:
            work.check(client)
        # Seen with -s: a run in which nothing failed shows nothing.
        failed = sum("a sync failed" in line for line in served.log_lines)
        print(f"run {run}: {failed} syncs failed, {work.failures} calls")  # noqa: T201
