"""Which messages of a log a later one of the same key has made superfluous.

Shape: stepper. Frames are shown in the order of their offsets, in as many passes as ``begin_pass``
asks for; then ``finish`` tells the offsets that may go. Messages without a key never do. Those that
are to be left alone, because they are delayed or cancelled, neither go nor make others go.

Keys are remembered in bounded memory. When there is no more room, half of them are put off to a
pass of their own; what was found about them until then stays true.
"""

from hashlib import blake2b
from typing import Final
from zlib import crc32

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.base.limits import FRAME_HEADER_BYTES
from goqueue.base.units import NS_PER_MS, NS_PER_US
from goqueue.core.record.batch import batch_fields, decode_batch
from goqueue.core.record.columns import microseconds
from goqueue.core.record.frame import CONTROL, TOMBSTONE, FrameHeader
from goqueue.core.record.row import Row

TOKEN_BYTES: Final = 32
"""A shorter key stands for itself, any other is remembered by a digest of this size."""


class CompactionRules(msgspec.Struct, frozen=True, kw_only=True):
    """What compaction goes by: the topic's settings, the time, and how many keys fit in memory."""

    now_ms: int
    tombstone_retention_ms: int
    dedup_window_ms: int
    keys_max: int


class Superseded:
    """Finds the offsets that may go."""

    def __init__(self, rules: CompactionRules, *, left_alone: BitMap64) -> None:
        self._left_alone = left_alone
        self._keys_max = rules.keys_max
        self._tombstones_end_ns = (rules.now_ms - rules.tombstone_retention_ms) * NS_PER_MS
        self._window_start_ns = (rules.now_ms - rules.dedup_window_ms) * NS_PER_MS
        self._has_window = rules.dedup_window_ms > 0
        self._latest: dict[bytes, Offset] = {}
        self._parts = 1
        self._part = 0
        self._put_off: list[tuple[int, int]] = [(1, 0)]
        self._superseded = BitMap64()
        self._expired = BitMap64()
        self._held = BitMap64()
        self._has_transactions = False

    def __repr__(self) -> str:
        return f"<Superseded: {len(self._superseded)} offsets, {len(self._latest)} keys at hand>"

    def begin_pass(self) -> bool:
        """Return True if the frames have to be shown (again), and get ready for it."""
        self._latest = {}
        if not self._put_off:
            return False
        self._parts, self._part = self._put_off.pop()
        return True

    def show(self, header: FrameHeader, frame: memoryview) -> None:
        """Look at the next frame."""
        if header.flags & CONTROL:
            return
        if header.is_batch:
            self._show_batch(header, frame)
            return
        offset = header.offset
        if self._has_window and header.headers_size and header.timestamp_ns > self._window_start_ns:
            self._hold(offset, Row(header, frame).dedup_id)
        key = _row_key(header, frame)
        if key is None:
            return
        if header.flags & TOMBSTONE and header.timestamp_ns <= self._tombstones_end_ns:
            self._expired.add(offset)
        self._note(key, offset)

    def _show_batch(self, header: FrameHeader, frame: memoryview) -> None:
        fields = batch_fields(header, frame)
        if fields.transaction:
            # Whether it was committed is told elsewhere, so it neither goes nor makes others go.
            self._has_transactions = True
            return
        if not fields.rows:
            return
        batch = decode_batch(header, frame)
        keys = batch.column("key")
        offset = header.offset
        if self._has_window and "dedup_id" in batch.schema.names:
            self._hold_rows(offset, batch, fields.appended_ms)
        if keys.null_count == len(keys):
            return
        names = keys.to_pylist()
        if batch.column("value").null_count:
            self._expire(offset, names, batch)
        for row, key in enumerate(names):
            if key is not None:
                self._note(key, Offset(offset + row))

    def _expire(self, offset: Offset, keys: list[bytes | None], batch: pa.RecordBatch) -> None:
        """Note the tombstones that have had their time."""
        gone = batch.column("value").is_null().to_pylist()
        times = microseconds(batch.column("timestamp"))
        for row, (key, is_gone, time_us) in enumerate(zip(keys, gone, times, strict=True)):
            is_old = (time_us or 0) * NS_PER_US <= self._tombstones_end_ns
            if is_gone and is_old and key is not None:
                self._expired.add(offset + row)

    def _hold_rows(self, offset: Offset, batch: pa.RecordBatch, appended_ms: int) -> None:
        ids = batch.column("dedup_id").to_pylist()
        times = microseconds(batch.column("timestamp"))
        for row, (dedup_id, time_us) in enumerate(zip(ids, times, strict=True)):
            time_ns = appended_ms * NS_PER_MS or (time_us or 0) * NS_PER_US
            if time_ns > self._window_start_ns:
                self._hold(Offset(offset + row), dedup_id)

    def _hold(self, offset: Offset, dedup_id: bytes | None) -> None:
        """Keep a message whose id must still be found when the window is read back."""
        if dedup_id is not None:
            self._held.add(offset)

    def _note(self, key: bytes, offset: Offset) -> None:
        if self._left_alone and offset in self._left_alone:
            return
        token = key if len(key) < TOKEN_BYTES else blake2b(key, digest_size=TOKEN_BYTES).digest()
        if self._parts > 1 and crc32(token) % self._parts != self._part:
            return
        latest = self._latest
        known = latest.get(token)
        if known is not None:
            self._superseded.add(known)
        elif len(latest) >= self._keys_max:
            self._put_off_half()
            self._note(key, offset)
            return
        latest[token] = offset

    def _put_off_half(self) -> None:
        self._put_off.append((2 * self._parts, self._part + self._parts))
        self._parts *= 2
        self._latest = {
            token: offset
            for token, offset in self._latest.items()
            if crc32(token) % self._parts == self._part
        }

    def finish(self, *, is_whole: bool) -> BitMap64:
        """Return the offsets that may go; ``is_whole`` if every frame was good and is rewritten.

        While an older message of some key stays, its tombstone has to.
        """
        stays = self._superseded & self._held
        if is_whole and not stays and not self._has_transactions:
            return self._superseded | (self._expired - self._held - self._left_alone)
        return self._superseded - self._held


def _row_key(header: FrameHeader, frame: memoryview) -> bytes | None:
    if header.key_size:
        return bytes(frame[FRAME_HEADER_BYTES : FRAME_HEADER_BYTES + header.key_size])
    # Only its headers tell an empty key from none.
    return Row(header, frame).key if header.headers_size else None
