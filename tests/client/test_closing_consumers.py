"""Closing a consumer: whatever happened to it, and wherever it is, the wait has an end."""

import sys
import threading

import pytest

import goqueue
from goqueue.base.errors import GoQueueError
from goqueue.client.consumer.upkeep import Upkeep
from tests.client.consuming import eventually, publish, take


def leave(_: object) -> None:
    sys.exit("the caller's own code")


def test_a_callback_that_ends_its_thread_keeps_nobody_waiting(
    broker: goqueue.Client, orders: str, group: str
) -> None:
    """It runs in the client's event loop, which goes on: the consumer closes, others begin."""
    publish(broker, orders, 1)
    consumer = broker.consumer(group, [orders], on_refused=leave)
    messages = iter(consumer)
    first = next(messages)
    first.extend("500ms")
    second = next(messages)
    first.ack()
    consumer.flush()
    second.ack()
    consumer.close()

    with broker.consumer(group, [orders]) as other:
        assert other.poll(timeout=0.1) == []


def test_closing_within_a_call_of_the_same_thread(
    broker: goqueue.Client, orders: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a signal's handler does: it cannot wait for the very call it interrupts."""
    consumer = broker.consumer(group, [orders])
    monkeypatch.setattr(consumer, "_timeout_s", 0.2)
    check = consumer._check  # noqa: SLF001 - a place a signal may come

    def interrupt() -> None:
        consumer.close()
        check()

    monkeypatch.setattr(consumer, "_check", interrupt)

    assert consumer.poll() == []
    assert not consumer.is_running


def test_a_poll_waits_no_longer_than_it_may(
    broker: goqueue.Client, orders: str, group: str
) -> None:
    """Also while another thread waits for the next message for as long as there is none."""
    with broker.consumer(group, [orders]) as consumer:
        found: list[goqueue.Delivery] = []
        other = threading.Thread(target=lambda: found.extend(take(consumer, 1)))
        other.start()
        eventually(consumer._io.locked, "the other thread's turn")  # noqa: SLF001 - a look inside
        polled = consumer.poll(timeout=0.05)
        publish(broker, orders, 1)
        other.join(60)

    assert (len(polled), len(found)) == (0, 1)


def test_who_consumes_hears_of_what_ended_the_upkeep(
    broker: goqueue.Client, orders: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it no settlement would be sent and no lease kept, in silence."""

    async def fail(_: Upkeep) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Upkeep, "_until_due", fail)
    consumer = broker.consumer(group, [orders])
    with pytest.raises(GoQueueError, match="the consumer cannot go on: ZeroDivisionError"):
        take(consumer, 1)
    consumer.close()
