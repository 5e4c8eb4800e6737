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
    from goqueue.client.consumer import Consumer
    from goqueue.client.consumer_options import Refusal
    from goqueue.client.delivery import Delivery
    from goqueue.client.message import Message
    from goqueue.client.pile import Place, SendFuture
    from goqueue.client.producer_sync import Producer
    from goqueue.client.sync import Client
    from goqueue.client.transaction_detached import Detached
    from goqueue.core.record.message import Priority
    from goqueue.embedded import open_embedded as open  # noqa: A004 - reads as goqueue.open(…)

__all__ = [
    "Client",
    "Consumer",
    "Delivery",
    "Detached",
    "GoQueueError",
    "Message",
    "Place",
    "Priority",
    "Producer",
    "Refusal",
    "SendFuture",
    "connect",
    "open",
]
__version__ = version("goqueue")

_HOMES = {
    "Client": ("goqueue.client.sync", "Client"),
    "Consumer": ("goqueue.client.consumer", "Consumer"),
    "Delivery": ("goqueue.client.delivery", "Delivery"),
    "Detached": ("goqueue.client.transaction_detached", "Detached"),
    "GoQueueError": ("goqueue.base.errors", "GoQueueError"),
    "Message": ("goqueue.client.message", "Message"),
    "Place": ("goqueue.client.pile", "Place"),
    "Priority": ("goqueue.core.record.message", "Priority"),
    "Producer": ("goqueue.client.producer_sync", "Producer"),
    "Refusal": ("goqueue.client.consumer_options", "Refusal"),
    "SendFuture": ("goqueue.client.pile", "SendFuture"),
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
