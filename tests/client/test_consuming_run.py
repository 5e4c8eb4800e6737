"""Handlers in several threads: acks on return, nacks on errors, slow ones, and the end."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import goqueue
from goqueue.base.errors import InvalidRequestError
from tests.acceptance.served import Served
from tests.client.consuming import SECONDS_MAX, eventually, in_flight, lag, outlive, publish


class Handling:
    """Counts what it handles, and stops its consumer at a number."""

    def __init__(self, consumer: goqueue.Consumer, count: int) -> None:
        self.seen: list[goqueue.Delivery] = []
        self.threads: set[str] = set()
        self._consumer = consumer
        self._count = count

    def note(self, message: goqueue.Delivery) -> None:
        self.seen.append(message)
        self.threads.add(threading.current_thread().name)
        if len(self.seen) >= self._count:
            self._consumer.stop()


def test_returning_acks(broker: goqueue.Client, orders: str, group: str) -> None:
    """Every message is handled once and settled when ``run`` has returned."""
    values = publish(broker, orders, 2_000)
    with broker.consumer(group, [orders]) as consumer:
        handling = Handling(consumer, len(values))
        consumer.run(handling.note, concurrency=4)

        assert sorted(m.value or b"" for m in handling.seen) == sorted(values)
        assert lag(broker, group) == 0


def test_raising_nacks(broker: goqueue.Client, orders: str, group: str) -> None:
    """A message whose handler failed comes again; the loop goes on."""
    publish(broker, orders, 4)
    with broker.consumer(group, [orders]) as consumer:
        handling = Handling(consumer, 5)

        def handle(message: goqueue.Delivery) -> None:
            handling.note(message)
            if message.value == b"2" and message.delivery_count == 1:
                raise RuntimeError("not now")

        consumer.run(handle, concurrency=2)

    counts = [m.delivery_count for m in handling.seen if m.value == b"2"]
    assert counts == [1, 2]
    assert lag(broker, group) == 0


def test_handlers_work_side_by_side(broker: goqueue.Client, orders: str, group: str) -> None:
    """As many as were asked for are under way at once."""
    publish(broker, orders, 8)
    together = threading.Barrier(8)
    with broker.consumer(group, [orders]) as consumer:
        handling = Handling(consumer, 8)

        def handle(message: goqueue.Delivery) -> None:
            together.wait(SECONDS_MAX)
            handling.note(message)

        consumer.run(handle, concurrency=8)

    assert len(handling.threads) == 8


def test_slow_handlers_keep_their_leases(broker: goqueue.Client, orders: str, group: str) -> None:
    """A handler may take several times the visibility timeout, and so may those who wait."""
    publish(broker, orders, 3)
    with broker.consumer(group, [orders], visibility_timeout="2s", max_retries=0) as consumer:
        handling = Handling(consumer, 3)

        def handle(message: goqueue.Delivery) -> None:
            if not handling.seen:
                outlive(message, seconds=4)
            handling.note(message)

        consumer.run(handle)

        assert [m.delivery_count for m in handling.seen] == [1, 1, 1]
        assert lag(broker, group) == 0


def test_stopping_drains(broker: goqueue.Client, orders: str, group: str) -> None:
    """``stop`` lets handlers finish and acks what they did; the rest goes back on close."""
    publish(broker, orders, 100)
    begun, go_on = threading.Semaphore(0), threading.Event()
    with broker.consumer(group, [orders]) as consumer:

        def handle(_: goqueue.Delivery) -> None:
            begun.release()
            go_on.wait(SECONDS_MAX)

        running = threading.Thread(target=lambda: consumer.run(handle, concurrency=3))
        running.start()
        for _ in range(3):
            assert begun.acquire(timeout=SECONDS_MAX)
        consumer.stop()
        go_on.set()
        running.join(SECONDS_MAX)
        assert not running.is_alive()
        assert lag(broker, group) == 97

    assert in_flight(broker, group) == 0


def test_closing_waits_for_handlers(broker: goqueue.Client, orders: str, group: str) -> None:
    """What a handler under way does at the time of ``close`` counts."""
    publish(broker, orders, 1)
    begun, go_on = threading.Event(), threading.Event()
    consumer = broker.consumer(group, [orders])

    def handle(_: goqueue.Delivery) -> None:
        begun.set()
        go_on.wait(SECONDS_MAX)

    running = threading.Thread(target=lambda: consumer.run(handle))
    running.start()
    assert begun.wait(SECONDS_MAX)
    threading.Timer(0.1, go_on.set).start()
    consumer.close()
    running.join(SECONDS_MAX)

    assert not running.is_alive()
    assert lag(broker, group) == 0


def test_what_ends_a_worker_is_raised(broker: goqueue.Client, orders: str, group: str) -> None:
    """An error that is no Exception ends the run and reaches the caller."""
    publish(broker, orders, 10)
    with broker.consumer(group, [orders]) as consumer:

        def handle(_: goqueue.Delivery) -> None:
            raise SystemExit(3)

        with pytest.raises(SystemExit):
            consumer.run(handle, concurrency=2)
        with pytest.raises(InvalidRequestError, match="concurrency"):
            consumer.run(handle, concurrency=0)


PROGRAM = r"""
import os, sys, threading, goqueue
client = goqueue.connect(sys.argv[1])
def handle(message):
    os.write(1, b"handling\n")
    threading.Event().wait(0.05)
with client, client.consumer("billing", ["orders"]) as consumer:
    try:
        consumer.run(handle, concurrency=2)
    except KeyboardInterrupt:
        os.write(1, b"interrupted\n")
"""


def test_ctrl_c_drains(tmp_path: Path) -> None:
    """An interrupt waits for handlers, settles, gives back the rest, and is raised then."""
    with Served(tmp_path / "data") as served, goqueue.connect(served.address) as client:
        client.create_topic("orders", partitions=1)
        publish(client, "orders", 50)
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, served.address], stdout=subprocess.PIPE, bufsize=0
        )
        assert program.stdout is not None
        assert program.stdout.readline() == b"handling\n"
        program.send_signal(signal.SIGINT)
        output, _ = program.communicate(timeout=SECONDS_MAX)

        assert program.returncode == 0
        assert output.endswith(b"interrupted\n")
        eventually(lambda: in_flight(client, "billing") == 0)
        handled = 1 + output.count(b"handling")
        assert lag(client, "billing") == 50 - handled
