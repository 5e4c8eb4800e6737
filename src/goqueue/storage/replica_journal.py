"""The epochs and high watermarks of all replicas of a node, in one file: one sync for many.

    cluster/replicas.journal        a Journal; each record is a msgpack array of these, in order

    [0, topic, partition, log, end, e1, s1, …]    forget the epochs from ``end`` on, note others
    [1, topic, partition, log, high watermark]    so much is committed
    [2, topic, partition, log]                    the replica is gone
    [3, topic, partition, log, high watermark, history …]    all that is known; older is void

An epoch is noted before the first message of it is written: a message whose epoch is not known
would count to the one before. High watermarks may be late: a leader that begins with an older one
waits for its replicas. So a note of epochs is synced at once, and high watermarks go along with it
or come at intervals.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from goqueue.base.errors import GoQueueError, StorageFailedError
from goqueue.base.ids import Epoch, Offset, PartitionId, TopicName, TopicPartition
from goqueue.base.limits import JOURNAL_RECORD_BYTES_MAX
from goqueue.base.units import KiB
from goqueue.core.replication.epochs import EpochHistory, EpochStart
from goqueue.core.replication.replica import LogId, LogKey
from goqueue.storage.disk import Disk
from goqueue.storage.journal import Journal

REPLICA_JOURNAL_PATH: Final = "cluster/replicas.journal"
COMPACT_BYTES: Final = 256 * KiB

_EPOCHS, _WATERMARK, _GONE, _WHOLE = range(4)
_ENTRIES_MAX: Final = 1_000
"""Entries of one record, so that it stays far below its limit."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[list[Any]]).decode


_NOTHING: Final = Offset(0)


@dataclass(slots=True)
class ReplicaNotes:
    """What is known of one log."""

    epochs: EpochHistory = field(default_factory=EpochHistory)
    high_watermark: Offset = _NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochNote:
    """Epochs of one log to be noted: what was noted from ``end_offset`` on is forgotten."""

    key: LogKey
    end_offset: Offset
    starts: Sequence[EpochStart]


class ReplicaJournal:
    """Notes epochs durably and high watermarks along with them."""

    def __init__(self, disk: Disk, path: str = REPLICA_JOURNAL_PATH) -> None:
        self._path = path
        self._journal = Journal(disk, path)
        self._notes: dict[LogKey, ReplicaNotes] = {}
        self._compact_bytes = COMPACT_BYTES
        try:
            for record in self._journal.records:
                for entry in _decode(record):
                    self._replay(entry)
        except (msgspec.MsgspecError, GoQueueError, ValueError, TypeError, IndexError) as error:
            self._journal.close()
            raise StorageFailedError(
                f"{path} holds a record that this version of GoQueue does not understand"
                f" ({error}); a newer version may have written it"
            ) from error
        self._journal.records.clear()

    def __repr__(self) -> str:
        return f"<ReplicaJournal of {len(self._notes)} logs: {self._journal!r}>"

    @property
    def logs(self) -> Iterable[LogKey]:
        """Every log that something is known of."""
        return self._notes.keys()

    @property
    def torn(self) -> bytes:
        """What a crash left behind the last record; it was never relied on."""
        return self._journal.torn

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return self._journal.size_bytes

    def find(self, key: LogKey) -> ReplicaNotes:
        """Return a copy of what is known of a log; nothing, if it is new."""
        notes = self._notes.get(key)
        if notes is None:
            return ReplicaNotes()
        return ReplicaNotes(notes.epochs.copy(), notes.high_watermark)

    def note(
        self,
        epochs: Iterable[EpochNote] = (),
        watermarks: Mapping[LogKey, Offset] | None = None,
        *,
        gone: Iterable[LogKey] = (),
    ) -> None:
        """Make all of this durable in one sync, or raise with none of it believed.

        The caller may write messages of the epochs, and count on what was cut, when this returns.
        """
        entries: list[list[Any]] = [[_GONE, *_place(key)] for key in gone]
        for note in epochs:
            numbers = [number for start in note.starts for number in start]
            entries.append([_EPOCHS, *_place(note.key), note.end_offset, *numbers])
        for key, offset in (watermarks or {}).items():
            if offset != self._watermark_of(key):
                entries.append([_WATERMARK, *_place(key), offset])
        if not entries:
            return
        self._compact_if_due()
        self._journal.append(map(_encode, _lots(entries)))
        for entry in entries:
            self._replay(entry)

    def recovered(self, end_offsets: Mapping[LogKey, Offset]) -> None:
        """Forget the epochs that begin behind the ends of the logs, as they were found at a start.

        They were noted and never written; kept, they would cover what is written next.
        """
        self.note(
            EpochNote(key=key, end_offset=end_offset, starts=())
            for key, end_offset in end_offsets.items()
            if key in self._notes and self._notes[key].epochs.has_start(end_offset)
        )

    def close(self) -> None:
        """Release the file."""
        self._journal.close()

    def compact(self) -> None:
        """Write all that is known into a new file, which replaces this one."""
        entries = [
            [_WHOLE, *_place(key), notes.high_watermark, notes.epochs.latest, *_flat(notes.epochs)]
            for key, notes in self._notes.items()
        ]
        self._journal.rewrite(map(_encode, _lots(entries)))
        # Looked at again when it has doubled, so that a large state is not written at every change.
        self._compact_bytes = max(COMPACT_BYTES, 2 * self._journal.size_bytes)

    def _compact_if_due(self) -> None:
        if self._journal.size_bytes > self._compact_bytes:
            self.compact()

    def _watermark_of(self, key: LogKey) -> Offset:
        notes = self._notes.get(key)
        return _NOTHING if notes is None else notes.high_watermark

    def _replay(self, entry: list[Any]) -> None:
        kind, topic, partition, log, *numbers = entry
        group = TopicPartition(TopicName(topic), PartitionId(partition))
        key = LogKey(group, LogId(log))
        if kind == _GONE:
            self._notes.pop(key, None)
            return
        notes = self._notes.setdefault(key, ReplicaNotes())
        if kind == _WATERMARK:
            notes.high_watermark = Offset(numbers[0])
        elif kind == _EPOCHS:
            notes.epochs.truncate(Offset(numbers[0]))
            for start in _pairs(numbers[1:]):
                notes.epochs.begin(start)
        elif kind == _WHOLE:
            notes.high_watermark = Offset(numbers[0])
            notes.epochs = EpochHistory(_pairs(numbers[2:]), latest=Epoch(numbers[1]))
        else:
            raise ValueError(f"unknown kind of record {kind}")


def _place(key: LogKey) -> tuple[str, int, int]:
    return key.group.topic, key.group.partition, key.log


def _flat(epochs: EpochHistory) -> list[int]:
    return [number for start in epochs for number in start]


def _pairs(numbers: list[int]) -> list[EpochStart]:
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return [EpochStart(Epoch(epoch), Offset(start)) for epoch, start in pairs]


_RECORD_BYTES: Final = JOURNAL_RECORD_BYTES_MAX // 2


def _lots(entries: list[list[Any]]) -> Iterable[list[list[Any]]]:
    """Cut entries into records: by their number, and where histories are long by those."""
    lot: list[list[Any]] = []
    numbers = 0
    for entry in entries:
        if lot and (len(lot) >= _ENTRIES_MAX or (numbers + len(entry)) * 9 > _RECORD_BYTES):
            yield lot
            lot, numbers = [], 0
        lot.append(entry)
        numbers += len(entry)
    yield lot
