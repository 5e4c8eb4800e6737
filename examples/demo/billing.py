"""The consumer group: it charges orders and writes invoices, each in one transaction.

Members share what was charged already: they are threads of one process, and ``ordering="key"`` lets
nobody have the next message of a customer before the one in hand is settled.
"""

import threading
from collections import Counter
from typing import Final

import msgspec
from pyroaring import BitMap64

from examples.demo.judgement import Bill, bill, fault_of, read_order
from examples.demo.orders import Order
from goqueue import Client, Consumer, Delivery, Producer, Transaction

GROUP: Final = "billing"
MEMBERS: Final = 2
POLL_MAX: Final = 1_000
POLL_S: Final = 0.3
RETRIES_MAX: Final = 2
RETRY_DELAY: Final = "400ms"


class Invoice(msgspec.Struct, frozen=True, kw_only=True):
    """What the group writes for an order it has charged."""

    order: int
    customer: str | None
    product: str
    quantity: int
    published_us: int


class Billing:
    """The members of the group, each in a thread."""

    def __init__(self, client: Client, *, orders: str, invoices: str) -> None:
        self._client = client
        self._orders = orders
        self._invoices = invoices
        self._charged = BitMap64()
        # Guards what the members share: the charged orders and the counts.
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"demo-{GROUP}", daemon=True)
            for number in range(MEMBERS)
        ]
        self.counts: Counter[Bill] = Counter()
        """What was done, by deliveries."""
        self.failure: BaseException | None = None
        """What ended a member too early."""

    def __repr__(self) -> str:
        return f"<Billing: {self.counts.total()} deliveries>"

    def start(self) -> None:
        """Let the members join."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let the members leave when they have settled what is in their hands."""
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _work(self, number: int) -> None:
        try:
            with (
                self._client.consumer(
                    GROUP,
                    [self._orders],
                    ordering="key",
                    max_retries=RETRIES_MAX,
                    client_id=f"{GROUP}-{number}",
                ) as consumer,
                self._client.producer(
                    self._invoices, transactional_id=f"{GROUP}-{number}"
                ) as producer,
            ):
                while not self._stop.is_set():
                    messages = _gather(consumer)
                    if messages:
                        self._settle(messages, producer)
        except BaseException as error:  # noqa: BLE001 - raised by who watches
            self.failure = error

    def _settle(self, messages: list[Delivery], producer: Producer) -> None:
        """Charge what can be charged; invoices and acks count together or not at all."""
        charged: list[int] = []
        counts: Counter[Bill] = Counter()
        with producer.transaction() as tx:
            for message in messages:
                order = read_order(message.value)
                verdict = self._judge(message, order)
                self._carry_out(message, order, verdict, tx)
                counts[verdict] += 1
                if verdict is Bill.CHARGE and order is not None:
                    charged.append(order.id)
        with self._lock:
            self._charged.update(charged)
            self.counts += counts

    def _judge(self, message: Delivery, order: Order | None) -> Bill:
        with self._lock:
            is_known = order is not None and order.id in self._charged
        fault = fault_of(order, published_us=message.timestamp_us)
        return bill(order, fault, delivery_count=message.delivery_count, is_known=is_known)

    def _carry_out(
        self, message: Delivery, order: Order | None, verdict: Bill, tx: Transaction
    ) -> None:
        match verdict:
            case Bill.CHARGE:
                assert order is not None, "only an order is charged"
                tx.send(_invoice(order, message.timestamp_us), key=message.key)
                tx.ack(message)
            case Bill.KNOWN:
                tx.ack(message)
            case Bill.RETRY:
                message.nack(delay=RETRY_DELAY, reason="the bank declines the card")
            case Bill.REJECT:
                message.reject("nobody can be charged for this")


def _gather(consumer: Consumer) -> list[Delivery]:
    """Return what there is: a transaction costs as much for one message as for hundreds."""
    messages = consumer.poll(POLL_MAX, POLL_S)
    while messages and len(messages) < POLL_MAX:
        more = consumer.poll(POLL_MAX - len(messages), 0)
        if not more:
            break
        messages += more
    return messages


def _invoice(order: Order, published_us: int) -> bytes:
    return msgspec.json.encode(
        Invoice(
            order=order.id,
            customer=order.customer,
            product=order.product,
            quantity=order.quantity,
            published_us=published_us,
        )
    )
