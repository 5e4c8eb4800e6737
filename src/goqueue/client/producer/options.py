"""How a producer gathers and sends."""

from collections.abc import Callable

import msgspec

from goqueue.base.errors import GoQueueError
from goqueue.base.limits import (
    PRODUCER_BUFFER_BYTES,
    PRODUCER_REQUESTS_IN_FLIGHT_MAX,
    TX_TIMEOUT_MS,
    TX_TIMEOUT_MS_MAX,
)
from goqueue.base.units import KiB
from goqueue.core.record.batch import compression_code

ErrorCallback = Callable[[GoQueueError, int], None]


class ProducerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a producer gathers and sends.

    ``batch_bytes`` is per partition. ``on_error`` is called from the sender with each error and the
    number of messages it failed. With a ``transactional_id`` it publishes in transactions only, and
    earlier producers of that id are fenced.
    """

    linger_ms: float = 5
    batch_bytes: int = 512 * KiB
    compression: str | None = None
    acks: str = "all"
    in_flight_max: int = 5
    buffer_bytes: int = PRODUCER_BUFFER_BYTES
    block_ms_max: int = 60_000
    delivery_timeout_ms: int = 120_000
    on_error: ErrorCallback | None = None
    transactional_id: str | None = None
    transaction_timeout_ms: int = TX_TIMEOUT_MS

    def __post_init__(self) -> None:
        """Refuse options that make no sense, naming each."""
        compression_code(self.compression)
        if self.acks not in ("none", "leader", "all"):
            raise ValueError(f"acks must be none, leader or all, not {self.acks!r}")
        if not 1 <= self.in_flight_max <= PRODUCER_REQUESTS_IN_FLIGHT_MAX:
            raise ValueError(f"in_flight_max must be 1 to {PRODUCER_REQUESTS_IN_FLIGHT_MAX}")
        if self.linger_ms < 0 or self.batch_bytes < 1 or self.buffer_bytes < 1:
            raise ValueError("linger_ms, batch_bytes and buffer_bytes may not be negative")
        if not 1 <= self.transaction_timeout_ms <= TX_TIMEOUT_MS_MAX:
            raise ValueError(f"transaction_timeout_ms must be 1 to {TX_TIMEOUT_MS_MAX}")
        if self.transactional_id is not None and self.acks != "all":
            raise ValueError("acks must be all in transactions")
