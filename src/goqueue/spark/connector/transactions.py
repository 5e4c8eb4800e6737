"""The transactions of a sink: one for each task attempt, and one that decides for them all."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from goqueue.base.errors import ConnectionLostError, GoQueueError
from goqueue.base.limits import TX_HEARTBEAT_MS
from goqueue.client.tx.detached import Detached, who_of, whos_of
from goqueue.spark.connector.broker import Broker
from goqueue.spark.connector.options import Connection
from goqueue.wire import calls, tx_calls
from goqueue.wire.packet import Operation

BEGIN_TRIES: Final = 5


class OpenTransaction:
    """A transaction that was begun: who has it, and its number."""

    def __init__(self, broker: Broker, name: str, *, timeout_ms: int) -> None:
        self._broker = broker
        self._name = name
        self.token = ""
        self._who = self._begin(timeout_ms)

    def __repr__(self) -> str:
        return f"<OpenTransaction {self._who.number:016x} of {self._name}>"

    @property
    def identity(self) -> calls.ProducerIdentity:
        """Who publishes."""
        return calls.ProducerIdentity(self._who.producer_id, self._who.epoch)

    @property
    def header(self) -> calls.Transaction:
        """What every published request carries."""
        return calls.Transaction(self._who.producer_id, self._who.epoch, self._who.number)

    def _begin(self, timeout_ms: int) -> tx_calls.TxWho:
        """Begin in a new life; one that may have been begun without an answer is left behind."""
        for left in reversed(range(BEGIN_TRIES)):
            header = tx_calls.TxInit(self._name, timeout_ms)
            life = self._broker.ask(Operation.TX_INIT, header, tx_calls.TxLife)
            self.token = life.token
            who = tx_calls.TxWho(life.producer_id, life.epoch)
            try:
                begun = self._broker.ask_once(Operation.TX_BEGIN, who, tx_calls.TxNumber)
            except ConnectionLostError:
                if not left:
                    raise
                continue
            return tx_calls.TxWho(life.producer_id, life.epoch, begun.number)
        raise AssertionError("the last try raises")

    def detach(self) -> Detached:
        """Leave it to whoever adopts it."""
        self._broker.ask(Operation.TX_DETACH, self._who, calls.Nothing)
        return Detached(self._name, self._who.producer_id, self._who.epoch, self._who.number)

    def adopt(self, handles: Sequence[Detached]) -> None:
        """Let others end as this one."""
        if handles:
            header = tx_calls.TxAdopt(self._who, whos_of(handles))
            self._broker.ask(Operation.TX_ADOPT, header, calls.Nothing)

    def commit(self, token: str) -> None:
        """Decide for all; may be asked again, so a lost answer is asked for again."""
        header = tx_calls.TxEnd(self._who, is_commit=True, token=token)
        self._broker.ask(Operation.TX_END, header, calls.Nothing)

    def abort(self) -> None:
        """Undo it; where that fails, its timeout will."""
        with contextlib.suppress(GoQueueError):
            header = tx_calls.TxEnd(self._who, is_commit=False)
            self._broker.ask_once(Operation.TX_END, header, calls.Nothing)

    @contextlib.contextmanager
    def kept_alive(self, connection: Connection) -> Iterator[None]:
        """Tell the broker now and then that somebody is at it, while rows are slow in coming."""
        is_over = threading.Event()

        def beat() -> None:
            broker = Broker(connection)
            while not is_over.wait(TX_HEARTBEAT_MS / 1_000):
                # Whatever is wrong, the next publish says so.
                with contextlib.suppress(GoQueueError):
                    broker.ask_once(Operation.TX_HEARTBEAT, self._who, calls.Nothing)

        thread = threading.Thread(target=beat, name="goqueue-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()


def abort_detached(broker: Broker, handles: Sequence[Detached]) -> None:
    """Undo what nobody will adopt; where that fails, its timeout will."""
    for handle in handles:
        with contextlib.suppress(GoQueueError):
            header = tx_calls.TxEnd(who_of(handle), is_commit=False)
            broker.ask_once(Operation.TX_END, header, calls.Nothing)


def abort_named(broker: Broker, names: Sequence[str]) -> None:
    """Undo what some ids have open, if anything."""
    for name in names:
        with contextlib.suppress(GoQueueError):
            broker.ask_once(Operation.TX_ABORT, tx_calls.TxName(name), tx_calls.TxState)
