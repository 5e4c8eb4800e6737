"""Chooses the next messages of a ledger, each lane in its turn.

Shape: calculator. Whose turn it is among the lanes is not stored: a restart begins with the first.
"""

from pyroaring import BitMap64

from goqueue.base.limits import PRIORITIES
from goqueue.core.delivery.key_order import KeyOrder
from goqueue.core.delivery.ledger import Ledger
from goqueue.core.delivery.notices import Woken
from goqueue.core.delivery.picking import Pick, find_fresh, find_run, put_in_order, split_lanes
from goqueue.core.delivery.runs import set_of
from goqueue.core.delivery.view import View
from goqueue.core.priority.drr import LaneShares
from goqueue.core.record.message import Priority


class Picker:
    """Remembers the shares of the lanes of one ledger."""

    def __init__(self, *, now_ms: int) -> None:
        self._shares = LaneShares(now_ms=now_ms)

    def __repr__(self) -> str:
        return f"<Picker: {self._shares.promoted} promoted>"

    def note_alone(self, *, now_ms: int) -> None:
        """Take note that messages of the normal lane were taken, and no other has any."""
        self._shares.note_alone(now_ms=now_ms)

    def pick(self, ledger: Ledger, view: View, limit: int, *, now_ms: int) -> Pick:
        """Return the next messages, ``limit`` at most, without taking them yet."""
        if ledger.is_wait_over(now_ms):
            ledger.apply(Woken(now_ms))
        if ledger.keys is not None:
            return self._pick_heads(ledger, ledger.keys, view, limit, now_ms=now_ms)
        if (
            not ledger.again
            and (plain := self._pick_run(ledger, view, limit, now_ms=now_ms)) is not None
        ):
            return plain
        again = split_lanes(view, view.visible(ledger.again) - view.hidden - view.cancelled)
        lanes: list[BitMap64] = []
        looked: list[int] = []
        for lane, given_back in enumerate(again):
            cursor = max(ledger.cursors[lane], view.start_offset, ledger.committed)
            wanted = limit - len(given_back)
            if wanted <= 0:
                lanes.append(given_back)
                looked.append(cursor)
                continue
            fresh = find_fresh(view, lane, cursor, wanted, ledger.done)
            lanes.append(given_back | fresh.offsets)
            looked.append(fresh.looked_offset)
        shares = self._shares.share([len(lane) for lane in lanes], limit, now_ms=now_ms)
        offsets, order = put_in_order(shares, lanes)
        cursors = [
            _cursor_after(ledger.cursors[lane], lanes[lane] - offsets, looked[lane])
            for lane in range(PRIORITIES)
        ]
        missed, cancelled = BitMap64(), BitMap64()
        if view.hidden or view.cancelled:
            cancelled |= ledger.again & view.cancelled
            for lane, cursor in enumerate(cursors):
                begin = max(ledger.cursors[lane], ledger.committed)
                passed = view.lane_between(lane, begin, cursor) - ledger.done
                missed |= passed & view.hidden
                cancelled |= passed & view.cancelled
        return Pick(offsets, order, tuple(cursors), missed, cancelled)

    def _pick_run(self, ledger: Ledger, view: View, limit: int, *, now_ms: int) -> Pick | None:
        """Pick what mostly is there to be picked, one run of fresh messages, without any sets."""
        cursor = max(ledger.cursors[Priority.NORMAL], view.start_offset, ledger.committed)
        run = find_run(view, cursor, limit, ledger.done)
        if run is None:
            return None
        start, end = run
        self._shares.share([0, 0, end - start, 0, 0], limit, now_ms=now_ms)
        offsets = set_of(run if start < end else ())
        cursors = [max(old, view.end_offset) for old in ledger.cursors]
        cursors[Priority.NORMAL] = max(ledger.cursors[Priority.NORMAL], end)
        order = [start, end] if start < end else []
        return Pick(offsets, order, tuple(cursors), BitMap64(), BitMap64())

    def _pick_heads(
        self, ledger: Ledger, keys: KeyOrder, view: View, limit: int, *, now_ms: int
    ) -> Pick:
        lanes = split_lanes(view, ledger.ready_heads(keys, view))
        shares = self._shares.share([len(lane) for lane in lanes], limit, now_ms=now_ms)
        offsets, order = put_in_order(shares, lanes)
        cancelled = keys.heads & view.cancelled if view.cancelled else BitMap64()
        cursors = tuple(max(cursor, keys.looked_offset) for cursor in ledger.cursors)
        return Pick(offsets, order, cursors, BitMap64(), cancelled)


def _cursor_after(cursor: int, left: BitMap64, looked: int) -> int:
    """Return the cursor of a lane of which some found messages were left where they are."""
    fresh = left.next_set_bit(cursor) if left and left.max() >= cursor else None
    return max(cursor, looked) if fresh is None else max(cursor, fresh)
