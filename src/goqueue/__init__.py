"""GoQueue: a durable message broker that is both a stream and a queue.

client = goqueue.connect("127.0.0.1:7070")       # a broker somewhere
client = goqueue.open("./data")                  # a broker in this process

Names are loaded when they are first used, so that ``import goqueue`` alone costs nothing.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from goqueue.base.errors import GoQueueError
    from goqueue.client.connect import connect
    from goqueue.client.consumer.blocking import Consumer
    from goqueue.client.consumer.delivery import Delivery
    from goqueue.client.consumer.options import Refusal
    from goqueue.client.producer.pile import SendFuture
    from goqueue.client.producers import Producer
    from goqueue.client.protocol.message import Message
    from goqueue.client.protocol.outcome import Place
    from goqueue.client.sync import Client
    from goqueue.client.tls import TlsOptions
    from goqueue.client.tx.detached import Detached
    from goqueue.client.tx.transaction import Transaction
    from goqueue.core.record.message import Priority
    from goqueue.embedded import open_embedded as open  # noqa: A004 - reads as goqueue.open(…)
    from goqueue.wire.overview_calls import Overview

__all__ = [
    "Client",
    "Consumer",
    "Delivery",
    "Detached",
    "GoQueueError",
    "Message",
    "Overview",
    "Place",
    "Priority",
    "Producer",
    "Refusal",
    "SendFuture",
    "TlsOptions",
    "Transaction",
    "connect",
    "open",
]
__version__ = version("goqueue")

_HOMES = {
    "Client": ("goqueue.client.sync", "Client"),
    "Consumer": ("goqueue.client.consumer.blocking", "Consumer"),
    "Delivery": ("goqueue.client.consumer.delivery", "Delivery"),
    "Detached": ("goqueue.client.tx.detached", "Detached"),
    "GoQueueError": ("goqueue.base.errors", "GoQueueError"),
    "Message": ("goqueue.client.protocol.message", "Message"),
    "Overview": ("goqueue.wire.overview_calls", "Overview"),
    "Place": ("goqueue.client.protocol.outcome", "Place"),
    "Priority": ("goqueue.core.record.message", "Priority"),
    "Producer": ("goqueue.client.producers", "Producer"),
    "Refusal": ("goqueue.client.consumer.options", "Refusal"),
    "SendFuture": ("goqueue.client.producer.pile", "SendFuture"),
    "TlsOptions": ("goqueue.client.tls", "TlsOptions"),
    "Transaction": ("goqueue.client.tx.transaction", "Transaction"),
    "connect": ("goqueue.client.connect", "connect"),
    "open": ("goqueue.embedded", "open_embedded"),
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'goqueue' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
