"""Messages that a transaction settles, reserved until it ends."""

from collections.abc import Iterator
from typing import Final

from goqueue.base.errors import InvalidRequestError
from goqueue.client.consumer.delivery import Delivery, Lease
from goqueue.wire.queue_calls import ACK, SettlePart

PARTS_MAX: Final = 500


class Holds:
    """What was acked in one transaction and is not settled yet."""

    def __init__(self) -> None:
        self._leases: dict[Lease, list[int]] = {}

    def __repr__(self) -> str:
        return f"<Holds of {len(self._leases)} leases>"

    def __bool__(self) -> bool:
        return bool(self._leases)

    def add(self, message: Delivery) -> None:
        """Leave it to the transaction whether a message is settled."""
        if not isinstance(message, Delivery):
            raise InvalidRequestError("only a message that a consumer got can be acked")
        message.lease.hold(message.offset)
        self._leases.setdefault(message.lease, []).append(message.offset)

    def requests(self, *, is_apart: bool = False) -> Iterator[tuple[str, list[SettlePart]]]:
        """Yield what to ask for, by group; apart, by partition, too: each has its own leader."""
        groups: dict[tuple[str, str, int], list[SettlePart]] = {}
        for lease, offsets in self._leases.items():
            place = (lease.topic, lease.partition) if is_apart else ("", 0)
            groups.setdefault((lease.group, *place), []).append(lease.part(ACK, sorted(offsets)))
        for (group, _, _), parts in groups.items():
            for first in range(0, len(parts), PARTS_MAX):
                yield group, parts[first : first + PARTS_MAX]

    def done(self) -> None:
        """Let go: the broker holds them for the transaction."""
        for lease, offsets in self._leases.items():
            lease.let_go(offsets)
        self._leases = {}

    def give_back(self) -> None:
        """Hand the messages back to whoever consumed them, as if nothing had been said."""
        for lease, offsets in self._leases.items():
            lease.take_back(offsets)
        self._leases = {}
