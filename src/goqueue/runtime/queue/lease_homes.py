"""Which ledger gave out a lease: receipts name their lease by its nonce."""

import weakref
from typing import Final

from goqueue.runtime.queue.hosted_ledger import HostedLedger

LEASES_KNOWN_MAX: Final = 100_000
"""Leases remembered by nonce, live and ended, so that a late receipt is told from a false one."""


class LeaseHomes:
    """Ledgers by the nonces of their leases, the latest and all that live."""

    def __init__(self) -> None:
        # Weak: a ledger that is gone with its group or topic is not kept by what it once leased.
        # The older half goes as a whole: a dictionary that loses its first keys one by one takes
        # three times the room of those that are left.
        self._homes: dict[int, weakref.ref[HostedLedger]] = {}
        self._older_homes: dict[int, weakref.ref[HostedLedger]] = {}
        self._alive = 0

    def __repr__(self) -> str:
        return f"<LeaseHomes: {len(self)}>"

    def __len__(self) -> int:
        return len(self._homes) + len(self._older_homes)

    def find(self, nonce: int) -> HostedLedger | None:
        """Return the ledger that gave out a lease, if it is still there."""
        known = self._homes.get(nonce) or self._older_homes.get(nonce)
        hosted = None if known is None else known()
        return None if hosted is None or hosted.is_closed else hosted

    def add_all(self, hosted: HostedLedger) -> None:
        """Remember the leases of a ledger that was loaded."""
        for nonce, _ in hosted.ledger.leases:
            self._homes[nonce] = weakref.ref(hosted)

    def remember(self, nonce: int, hosted: HostedLedger) -> None:
        """Remember which ledger gave out a lease."""
        self._homes[nonce] = weakref.ref(hosted)
        if len(self._homes) < max(LEASES_KNOWN_MAX // 2, 2 * self._alive):
            return
        older, self._older_homes, self._homes = self._older_homes, self._homes, {}
        for old, known in older.items():
            home = known()
            if home is not None and home.ledger.leases.get(old) is not None:
                # Still alive, however old it is.
                self._homes[old] = known
        self._alive = len(self._homes)
