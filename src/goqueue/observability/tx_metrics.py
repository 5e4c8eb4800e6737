"""The counters of transactions."""

from goqueue.observability.metrics import Metrics


class TxMetrics:
    """Made once for a broker."""

    def __init__(self, metrics: Metrics) -> None:
        counter = metrics.counter("broker")
        self.started = counter("transactions_started", "Transactions begun").labels()
        self.committed = counter("transactions_committed", "Transactions committed").labels()
        self.aborted = counter("transactions_aborted", "Transactions aborted").labels()
        self.latency = metrics.histogram(
            "broker", "transaction_latency_seconds", "From the wish to end it to its end"
        ).labels()

    def ended(self, outcome: str, *, seconds: float) -> None:
        """Count the end of a transaction."""
        self.followed(outcome)
        self.latency.observe(seconds)

    def followed(self, outcome: str | None) -> None:
        """Count the end of a transaction that ended with another one."""
        (self.committed if outcome == "commit" else self.aborted).inc()
