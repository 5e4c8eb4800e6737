"""Handling messages in several threads: ``Consumer.run``."""

import threading
from collections.abc import Callable, Iterator
from logging import getLogger

from goqueue.base.errors import GoQueueError
from goqueue.client.consumer.delivery import Delivery

Handle = Callable[[Delivery], object]

log = getLogger("goqueue.consumer")


class Workers:
    """Threads that take messages from one iterator, one message at a time."""

    def __init__(
        self,
        messages: Iterator[Delivery],
        handle: Handle,
        *,
        settled: Callable[[], None],
        stop: Callable[[], None],
    ) -> None:
        self._messages = messages
        self._handle = handle
        self._settled = settled
        self._stop = stop
        # Guards the iterator: who holds it asks the broker, too, when nothing is left.
        self._turn = threading.Lock()
        self._failure: BaseException | None = None
        self._threads: list[threading.Thread] = []
        # Told when a thread ends. ``Thread.join`` would take a thread for ended after an interrupt.
        self._ends = threading.Condition()
        self._running = 0

    def __repr__(self) -> str:
        return f"<Workers: {self._running}>"

    def start(self, concurrency: int) -> None:
        """Begin to work."""
        self._threads = [
            threading.Thread(target=self._work, name=f"goqueue-handler-{number}", daemon=True)
            for number in range(concurrency)
        ]
        for thread in self._threads:
            with self._ends:
                self._running += 1
            thread.start()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until all have ended; tell whether they have."""
        own = 1 if threading.current_thread() in self._threads else 0
        with self._ends:
            is_over = self._ends.wait_for(lambda: self._running <= own, timeout_s)
        if not is_over:
            log.warning(
                "waited %g s for handlers; %d still run, what they settle is not sent",
                timeout_s,
                self._running - own,
            )
        return is_over

    def check(self) -> None:
        """Raise what ended them, if it was an error."""
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        try:
            while (message := self._next()) is not None:
                handle_one(self._handle, message)
                self._settled()
        except BaseException as error:  # noqa: BLE001 - raised again by whoever called run
            self._failure = self._failure or error
            self._stop()
        finally:
            with self._ends:
                self._running -= 1
                self._ends.notify_all()

    def _next(self) -> Delivery | None:
        with self._turn:
            if self._failure is not None:
                return None
            return next(self._messages, None)


def handle_one(handle: Handle, message: Delivery) -> None:
    """Handle a message: ack it when the handler returns, nack it when it raises."""
    try:
        handle(message)
    except BaseException as error:
        note_failure(message, error)
        if not isinstance(error, Exception):
            raise
    else:
        if not message.is_settled:
            message.ack()


def note_failure(message: Delivery, error: BaseException) -> None:
    """Nack a message whose handler failed."""
    log.warning(
        "%s/%d offset %d failed, delivery %d",
        message.topic,
        message.partition,
        message.offset,
        message.delivery_count,
        exc_info=error,
    )
    try:
        if not message.is_settled:
            message.nack(reason=f"{type(error).__name__}: {error}")
    except GoQueueError:
        log.debug("settled meanwhile", exc_info=True)
