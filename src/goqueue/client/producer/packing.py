"""Cutting a pile into one batch per partition, column by column.

Rows are grouped by sorting their partition numbers once; each partition's batch is a slice.
"""

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from mmh3 import mmh3_32_uintdigest

from goqueue.base.errors import PartitionNotFoundError
from goqueue.base.limits import BATCH_ROWS_MAX, PARTITIONS_MAX
from goqueue.base.units import NS_PER_US, MiB
from goqueue.client.producer.pile import Pile
from goqueue.client.protocol.outcome import Extra, Numbers, Part
from goqueue.core.record.batch import SCHEMAS, TIMESTAMP_TYPE, pack_batch, pack_message
from goqueue.core.record.columns import build_batch
from goqueue.core.record.message import Draft, Priority
from goqueue.core.record.plain_batch import PlainRows
from goqueue.core.record.repack import ROWS_AS_BATCH_MIN
from goqueue.core.record.row import PackedRows
from goqueue.core.record.single_row import PackedRow, PackedSingleRows

assert PARTITIONS_MAX < 2**16, "sixteen bits are sorted by radix, which is what makes cutting fast"


PLAIN_ROWS_MAX: Final = 2_000
"""Larger piles are columns of Arrow, which are quicker the more messages there are."""

FEW_ROWS_MAX: Final = 64
"""So few rows are put in order one by one: a call of numpy costs as much as several of them."""

FRAME_BYTES: Final = 1 * MiB
"""Batches much larger than this are cut; the broker takes larger ones, readers like these."""

FIRST_ROW: Final = np.zeros(1, np.int64)
_COLUMN_SETS: Final = {tuple(schema.names): place for place, schema in enumerate(SCHEMAS)}


class Packing:
    """Cuts piles for a topic; remembers whose turn it is among keyless messages."""

    def __init__(self, partitions: int, compression: str | None, turn: int = 0) -> None:
        self.partitions = partitions
        self._compression = compression
        self._turn = turn

    def cut(self, pile: Pile, transaction: int = 0) -> list[Part]:
        """Return the pile's messages by partition, in the order they were sent.

        Only batch frames can say which transaction they belong to, so its few rows are one, too.
        """
        _apply_times(pile)
        if len(pile) == 1 and not transaction:
            return [self._only(pile)]
        order, runs = self._in_order(pile)
        is_small = max(run.length for run in runs) < ROWS_AS_BATCH_MIN
        if is_small and not transaction:
            return [_few(pile, run.partition, run.of(order)) for run in runs]
        return self._cut_columns(pile, order, runs, transaction)

    def _in_order(self, pile: Pile) -> "tuple[Numbers, list[_PartitionRun]]":
        """Return the rows in the order of their partitions, and where those of each are."""
        if len(pile) > FEW_ROWS_MAX:
            numbers = self._partition_numbers(pile)
            return numbers.argsort(kind="stable"), _runs(np.bincount(numbers).tolist())
        few = [
            self._take_turn() if key is None else mmh3_32_uintdigest(key) % self.partitions
            for key in pile.keys
        ]
        for row, extra in pile.extras.items():
            few[row] = few[row] if extra.partition is None else extra.partition
        runs: list[_PartitionRun] = []
        start = 0
        for partition in sorted(set(few)):
            runs.append(_PartitionRun(partition, start, few.count(partition)))
            start = runs[-1].end
        return np.array(sorted(range(len(few)), key=few.__getitem__), np.int64), runs

    def _only(self, pile: Pile) -> Part:
        """Return a pile of one message as a part, without the machinery for many."""
        partition = self.partition_of(pile.keys[0], pile.extras.get(0))
        return Part(partition, FIRST_ROW, PackedRows([_draft(pile, 0)]))

    def partition_of(self, key: bytes | None, extra: Extra | None) -> int:
        """Return where a message goes."""
        if extra is not None and extra.partition is not None:
            return extra.partition
        return self._take_turn() if key is None else mmh3_32_uintdigest(key) % self.partitions

    def _take_turn(self) -> int:
        turn = self._turn
        self._turn = (turn + 1) % self.partitions
        return turn

    def _cut_columns(
        self, pile: Pile, order: Numbers, runs: "list[_PartitionRun]", transaction: int
    ) -> list[Part]:
        times = np.array(pile.times_ns, np.int64) // NS_PER_US
        columns = _plain_rows(pile, order, times) or _ArrowRows(pile, order, times)
        times = times[order]
        parts: list[Part] = []
        for run in runs:
            rows = run.of(order)
            if run.length < ROWS_AS_BATCH_MIN and not transaction:
                parts.append(_few(pile, run.partition, rows))
                continue
            own_times = run.of(times)
            packed = pack_message(
                columns.batch(run.start, run.end),
                rows=run.length,
                column_set=columns.column_set,
                # The functions themselves: the methods of an array add a call in Python to each.
                first_timestamp_us=int(np.minimum.reduce(own_times)),
                last_timestamp_us=int(np.maximum.reduce(own_times)),
                compression=self._compression,
                transaction=transaction,
            )
            parts.append(Part(run.partition, rows, packed))
        return parts

    def _partition_numbers(self, pile: Pile) -> Numbers:
        count = len(pile)
        try:
            hashes = np.fromiter(map(mmh3_32_uintdigest, pile.keys), np.uint32, count)  # type: ignore[arg-type]
            numbers = (hashes % np.uint32(self.partitions)).astype(np.uint16)
        except TypeError:
            # Some messages have no key: they take turns.
            numbers = np.zeros(count, np.uint16)
            for row, key in enumerate(pile.keys):
                numbers[row] = (
                    self._take_turn() if key is None else mmh3_32_uintdigest(key) % self.partitions
                )
        for row, extra in pile.extras.items():
            if extra.partition is not None:
                # One sent before the partitions were known may be wrong: the broker says so.
                numbers[row] = extra.partition
        return numbers


class _PartitionRun(NamedTuple):
    """Rows of one partition, which follow one another once all are in order."""

    partition: int
    start: int
    length: int

    @property
    def end(self) -> int:
        """Where the next begins."""
        return self.start + self.length

    def of(self, column: Numbers) -> Numbers:
        """Return its part of a column that is in order."""
        return column[self.start : self.end]


def _runs(counts: list[int]) -> list[_PartitionRun]:
    """Return where the rows of each partition that has any are."""
    starts = accumulate(counts, initial=0)
    return [
        _PartitionRun(partition, start, count)
        for partition, (count, start) in enumerate(zip(counts, starts, strict=False))
        if count
    ]


def check_partition(partition: int, partitions: int) -> None:
    """Refuse a partition that a topic of so many does not have."""
    if not 0 <= partition < partitions:
        raise PartitionNotFoundError(
            f"invalid partition {partition} (topic has {partitions} partitions)"
        )


def _apply_times(pile: Pile) -> None:
    for row, extra in pile.extras.items():
        if extra.timestamp_us is not None:
            pile.times_ns[row] = extra.timestamp_us * NS_PER_US


def _plain_rows(pile: Pile, order: Numbers, times_us: Numbers) -> PlainRows | None:
    """Return the messages of a small pile in order, if all have a key and a value and no more."""
    if pile.extras or len(pile) > PLAIN_ROWS_MAX:
        return None
    keys, values, rows = pile.keys, pile.values, order.tolist()
    try:
        return PlainRows(
            [keys[row] for row in rows],
            [values[row] for row in rows],
            times_us[order],
        )
    except TypeError:
        return None


class _ArrowRows:
    """Messages of any kind in order, of which any run can be had as a batch."""

    def __init__(self, pile: Pile, order: Numbers, times_us: Numbers) -> None:
        batch, self.column_set = _columns(pile, times_us)
        is_ordered = bool(np.all(order[1:] > order[:-1]))
        self._batch = batch if is_ordered else batch.take(order)

    def batch(self, start: int, end: int) -> memoryview:
        """Return the Arrow message of the rows from one to before another."""
        return memoryview(self._batch.slice(start, end - start).serialize())


def _columns(pile: Pile, times_us: Numbers) -> tuple[Any, int]:
    extras = pile.extras
    times = pa.Array.from_buffers(TIMESTAMP_TYPE, len(times_us), [None, pa.py_buffer(times_us)])
    if not extras:
        return build_batch(keys=pile.keys, values=pile.values, timestamps_us=times)
    rows = [extras.get(row) for row in range(len(pile))]
    known = list(extras.values())
    return build_batch(
        keys=pile.keys,
        values=pile.values,
        timestamps_us=times,
        headers=_pick(rows, known, "headers"),
        priorities=_pick(rows, known, "priority", default=Priority.NORMAL),
        deliver_at_us=_pick(rows, known, "deliver_at_us"),
        dedup_ids=_pick(rows, known, "dedup_id"),
    )


def _pick(
    rows: list[Extra | None], known: list[Extra], name: str, default: object = None
) -> list[Any] | None:
    """Return one optional column, or None where no message needs it."""
    if all(getattr(extra, name) is None for extra in known):
        return None
    values = (None if extra is None else getattr(extra, name) for extra in rows)
    return [default if value is None else value for value in values]


def _few(pile: Pile, partition: int, rows: Numbers) -> Part:
    """Return messages that are too few for a batch."""
    keys, values, times_ns, numbers = pile.keys, pile.values, pile.times_ns, rows.tolist()
    plain: list[PackedRow] = []
    if not pile.extras:
        for row in numbers:
            key, value = keys[row], values[row]
            if key and value:
                plain.append(PackedRow(value, key, times_ns[row] // NS_PER_US))
    if len(plain) == len(numbers):
        return Part(partition, rows, PackedSingleRows(plain))
    return Part(partition, rows, PackedRows([_draft(pile, row) for row in numbers]))


def _draft(pile: Pile, row: int) -> Draft:
    return draft_of(
        pile.values[row],
        pile.keys[row],
        time_us=pile.times_ns[row] // NS_PER_US,
        extra=pile.extras.get(row),
    )


def draft_of(value: bytes | None, key: bytes | None, *, time_us: int, extra: Extra | None) -> Draft:
    """Return a message as it is packed."""
    if extra is None:
        return Draft(value=value, key=key, timestamp_us=time_us)
    return Draft(
        value=value,
        key=key,
        timestamp_us=time_us,
        headers=extra.headers,
        priority=Priority.NORMAL if extra.priority is None else extra.priority,
        deliver_at_us=extra.deliver_at_us,
        dedup_id=extra.dedup_id,
    )


def cut_batch(
    batch: pa.RecordBatch, partitions: Numbers, *, compression: str | None, transaction: int = 0
) -> Iterator[Part]:
    """Yield the rows of a batch of a stored schema, each for its partition, in good sizes."""
    runs = _runs(np.bincount(partitions).tolist())
    if len(runs) > 1:
        # Numbers this narrow are sorted by counting them.
        batch = batch.take(partitions.astype(np.uint16).argsort(kind="stable"))
    for run in runs:
        for piece in _pieces(batch.slice(run.start, run.length)):
            times = piece.column("timestamp").view(pa.int64()).to_numpy()
            packed = pack_batch(
                piece,
                column_set=_COLUMN_SETS[tuple(piece.schema.names)],
                first_timestamp_us=int(times.min()),
                last_timestamp_us=int(times.max()),
                compression=compression,
                transaction=transaction,
            )
            yield Part(run.partition, np.arange(piece.num_rows), packed)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch so that each piece has about the size readers like, and is within the limits."""
    count = max(1, round(batch.nbytes / FRAME_BYTES), -(-batch.num_rows // BATCH_ROWS_MAX))
    step = max(1, -(-batch.num_rows // count))
    for start in range(0, batch.num_rows, step):
        yield from _fitting(batch.slice(start, step))


def _fitting(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halve a piece whose rows are so uneven that it is still too large."""
    if batch.num_rows == 1 or batch.nbytes <= 8 * FRAME_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _fitting(batch.slice(0, half))
    yield from _fitting(batch.slice(half))
