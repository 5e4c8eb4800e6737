"""What waits and what is urgent, in numbers."""

from typing import Final

from goqueue.base.deeds import Deed
from goqueue.service.service import Service
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import Response, json_reply
from goqueue.wire.http.delayed import DelayStats, PriorityStats
from goqueue.wire.http.reliability import ReliabilityStats

TAG: Final = "stats"


class QueueStatsRoutes:
    """Counts delays, priorities and settlements."""

    def __init__(self, service: Service) -> None:
        self._stats = service.stats

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be asked."""
        return (
            Operation(
                method="GET", path="/delay/stats", answer=self.delay_stats, tag=TAG,
                deed=Deed.SUM_UP_TOPICS, reply=DelayStats,
            ),
            Operation(
                method="GET", path="/priority/stats", answer=self.priority_stats, tag=TAG,
                deed=Deed.SUM_UP_TOPICS, reply=PriorityStats,
            ),
            Operation(
                method="GET", path="/reliability/stats", answer=self.reliability_stats,
                tag="groups", deed=Deed.SUM_UP_TOPICS, reply=ReliabilityStats,
            ),
        )  # fmt: skip

    async def delay_stats(self, call: Call) -> Response:
        """Return what was delayed since the broker started, and what waits now."""
        return json_reply(await self._stats.delays(call.grant))

    async def priority_stats(self, call: Call) -> Response:
        """Return how many messages the logs hold by priority, most urgent first.

        ``pending`` are those some group has not settled, all of them where no group reads the
        partition; ``consumed`` those that were acked since the broker started, by any group.
        """
        return json_reply(await self._stats.priorities(call.grant))

    async def reliability_stats(self, call: Call) -> Response:
        """Return what became of leased messages since the broker started, over all groups."""
        return json_reply(await self._stats.reliability(call.grant))
