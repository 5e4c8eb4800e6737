"""The native operation that tells how the broker stands."""

from collections.abc import Callable
from typing import Any

from goqueue.runtime.broker import Broker
from goqueue.runtime.overview import look_over
from goqueue.transport.native.reply import Beside, Reply
from goqueue.wire import calls
from goqueue.wire.packet import Operation


class OverviewOperations:
    """Answers those who watch."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def register(self, add: Callable[[Operation, type[calls.Call], Any], None]) -> None:
        """Add the operation to a dispatch."""
        add(Operation.OVERVIEW, calls.Nothing, self._overview)

    async def _overview(self, _: calls.Nothing, __: Beside) -> Reply:
        return Reply(await look_over(self._broker))
