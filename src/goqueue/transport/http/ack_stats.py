"""The counts of acks, leases and dead letters over HTTP."""

from typing import Final

import msgspec

from goqueue.runtime.broker import Broker
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import Response, json_reply
from goqueue.wire.http.reliability import AckStats, DeadLetterStats, LeaseStats, ReliabilityStats

TAG: Final = "groups"


class ReliabilityRoutes:
    """Counts settlements."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be asked."""
        return (
            Operation(
                method="GET", path="/reliability/stats", answer=self.reliability_stats, tag=TAG,
                reply=ReliabilityStats,
            ),
        )  # fmt: skip

    async def reliability_stats(self, _call: Call) -> Response:
        """Return what became of leased messages since the broker started, over all groups."""
        consume = self._broker.consume
        total = consume.metrics.totals
        ledgers = [hosted.ledger for hosted in consume.ledgers]
        stats = ReliabilityStats(
            ack_manager=AckStats(
                total_acks=total["ack"],
                total_nacks=total["nack"],
                total_rejects=total["reject"],
                total_expired=total["expired"],
                total_retries=total["retried"],
                total_dlq=total["doomed"],
                current_queued=sum(len(ledger.waiting.offsets) for ledger in ledgers),
            ),
            visibility_tracker=LeaseStats(
                total_tracked=total["tracked"],
                current_in_flight=sum(len(ledger.leases.offsets) for ledger in ledgers),
                total_expired=total["expired"],
                total_acked=total["ack"],
                total_extended=total["extend"],
            ),
            dlq=self._dead_letters(),
        )
        return json_reply(stats)

    def _dead_letters(self) -> DeadLetterStats:
        stats = self._broker.dead_letters.meter.stats
        return DeadLetterStats(**msgspec.structs.asdict(stats))
