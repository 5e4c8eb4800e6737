"""The counts of acks, leases and dead letters as JSON."""

import msgspec


class AckStats(msgspec.Struct, frozen=True, kw_only=True):
    """Settlements since the start; ``current_queued`` wait for their next attempt."""

    total_acks: int
    total_nacks: int
    total_rejects: int
    total_expired: int
    total_retries: int
    total_dlq: int
    current_queued: int


class LeaseStats(msgspec.Struct, frozen=True, kw_only=True):
    """Leases since the start, counted in messages."""

    total_tracked: int
    current_in_flight: int
    total_expired: int
    total_acked: int
    total_extended: int


class DeadLetterStats(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters since the start."""

    total_routed: int = 0
    routes_by_reason: dict[str, int] = msgspec.field(default_factory=dict)
    routes_by_topic: dict[str, int] = msgspec.field(default_factory=dict)
    create_errors: int = 0
    publish_errors: int = 0


class ReliabilityStats(msgspec.Struct, frozen=True, kw_only=True):
    """How reliably messages are handled."""

    ack_manager: AckStats
    visibility_tracker: LeaseStats
    dlq: DeadLetterStats
