"""Checking a whole data directory offline: what is in it, and whether all of it is good.

Nothing is changed, not even what the broker would mend at its next start: such things are notes.
"""

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from goqueue.base.errors import StorageFailedError
from goqueue.base.ids import Offset, Position, TopicName
from goqueue.core.producers import identities
from goqueue.core.topics import catalog
from goqueue.storage.data_format import FORMAT_PATH, check_format
from goqueue.storage.disk import Disk
from goqueue.storage.findings import Report
from goqueue.storage.journal import Journal
from goqueue.storage.segment_check import Place, SegmentCheck
from goqueue.storage.snapshot_sum import snapshot_sum
from goqueue.storage.swap import (
    CHECKPOINT_NAME,
    CLEANED,
    LOG_SUFFIX,
    SUFFIXES,
    SWAP_NAME,
    Swap,
    is_good,
    read_swap,
    stem_of,
)

JOURNAL_PATH: Final = "meta/catalog.journal"
LOGS: Final = "logs"
STATE: Final = "state"
"""Beside the logs, in a cluster: what groups and people have done with messages."""
DELETING: Final = "deleting"
SNAPSHOT_NAME: Final = "producers.snapshot"
QUEUE_SNAPSHOT_NAME: Final = "queue.snapshot"
_SNAPSHOT_NAMES: Final = (SNAPSHOT_NAME, QUEUE_SNAPSHOT_NAME)

_SNAPSHOT_HEAD: Final = struct.Struct(">IQ")
_OWN_NAMES: Final = (*_SNAPSHOT_NAMES, SWAP_NAME, CHECKPOINT_NAME)
_LOST: Final = ".lost"
_TEMPORARY: Final = ".tmp"
_decode: Final = msgspec.msgpack.Decoder(catalog.Event | identities.Event).decode


class Verification:
    """Checks a data directory. Iterate over ``run``, then read ``report``."""

    def __init__(self, disk: Disk, *, is_deep: bool = False) -> None:
        self._disk = disk
        self._is_deep = is_deep
        self._catalog = catalog.Catalog()
        self.report = Report()

    def total_bytes(self) -> int:
        """Return how many bytes of log there are to check."""
        total = 0
        for parent in (LOGS, STATE):
            for directory in self._partition_directories(parent):
                for name in self._disk.list_directory(directory):
                    if name.endswith(LOG_SUFFIX):
                        total += self._size(f"{directory}/{name}")
        return total

    def run(self) -> Iterator[int]:
        """Check everything, yielding how many bytes were checked since the last time."""
        try:
            check_format(self._disk)
        except StorageFailedError as error:
            self.report.problem(FORMAT_PATH, error.message)
            return
        knows_topics = self._check_journal()
        if knows_topics:
            self._compare_catalog()
        for parent in (LOGS, STATE):
            for directory in self._partition_directories(parent):
                self.report.partitions += parent == LOGS
                yield from self._check_partition(directory)
        if self._disk.list_directory(DELETING):
            self.report.note(
                DELETING, "holds what is left of a deleted topic; the broker removes it"
            )
        self.report.topics = len(self._disk.list_directory(LOGS))

    def _partition_directories(self, parent: str) -> list[str]:
        return [
            f"{parent}/{topic}/{partition}"
            for topic in self._disk.list_directory(parent)
            for partition in sorted(
                filter(str.isdecimal, self._disk.list_directory(f"{parent}/{topic}")), key=int
            )
        ]

    def _size(self, path: str) -> int:
        file = self._disk.open(path)
        try:
            return file.size()
        finally:
            file.close()

    # The catalogue.

    def _check_journal(self) -> bool:
        """Replay the journal of the catalogue; return whether it can be believed."""
        if not self._disk.exists(JOURNAL_PATH):
            if self._disk.list_directory(LOGS):
                self.report.problem(JOURNAL_PATH, "is missing, so no topic below logs is known")
            return False
        size = self._size(JOURNAL_PATH)
        try:
            journal = Journal(self._disk, JOURNAL_PATH)
        except StorageFailedError as error:
            self.report.problem(JOURNAL_PATH, error.message)
            return False
        if journal.size_bytes < size:
            torn = size - journal.size_bytes
            self.report.note(
                JOURNAL_PATH, f"the last {torn} bytes are half a record; the broker cuts them off"
            )
        return all(self._replay(place, record) for place, record in enumerate(journal.records))

    def _replay(self, place: int, record: bytes) -> bool:
        try:
            event = _decode(record)
        except msgspec.MsgspecError as error:
            self.report.problem(JOURNAL_PATH, f"record {place} cannot be understood: {error}")
            return False
        if not isinstance(event, catalog.Event):
            return True
        try:
            self._catalog.apply(event)
        except KeyError as error:
            self.report.problem(
                JOURNAL_PATH, f"record {place} speaks of topic {error}, which does not exist then"
            )
            return False
        return True

    def _compare_catalog(self) -> None:
        topics, deleted = self._catalog.topics, self._catalog.deleted
        found = self._disk.list_directory(LOGS)
        for name in found:
            if name in deleted and name not in topics:
                self.report.note(
                    f"{LOGS}/{name}", "is left of a deleted topic; the broker removes it"
                )
            elif name not in topics:
                self.report.problem(f"{LOGS}/{name}", "is not a topic the catalogue knows")
        for topic in topics.values():
            directory = f"{LOGS}/{topic.name}"
            there = set(self._disk.list_directory(directory))
            wanted = {str(number) for number in range(topic.partitions)}
            for number in sorted(wanted - there, key=int):
                self.report.problem(f"{directory}/{number}", "is missing: the catalogue knows it")
            for name in sorted(there - wanted):
                self.report.problem(f"{directory}/{name}", "is not a partition of the topic")
        self._compare_states()

    def _compare_states(self) -> None:
        """Compare the state logs with the catalogue: any partition may be without one."""
        for name in self._disk.list_directory(STATE):
            topic = self._catalog.topics.get(TopicName(name))
            if topic is None and name in self._catalog.deleted:
                self.report.note(
                    f"{STATE}/{name}", "is left of a deleted topic; the broker removes it"
                )
            elif topic is None:
                self.report.problem(f"{STATE}/{name}", "is not a topic the catalogue knows")
            for number in self._disk.list_directory(f"{STATE}/{name}"):
                if topic is not None and not self._is_partition(topic, number):
                    self.report.problem(f"{STATE}/{name}/{number}", "is beside no partition")

    @staticmethod
    def _is_partition(topic: catalog.Topic, name: str) -> bool:
        return name.isdecimal() and int(name) < topic.partitions

    # Partitions.

    def _check_partition(self, directory: str) -> Iterator[int]:
        names = self._disk.list_directory(directory)
        swap = self._swap(directory, names)
        bases = self._bases(directory, names, swap)
        end_offset: Offset | None = None
        is_whole = True
        for place, base in enumerate(bases):
            if end_offset is not None and base != end_offset:
                self._report_seam(directory, end_offset=end_offset, base=base)
            check = SegmentCheck(
                self._disk,
                Place(
                    directory=directory,
                    base_offset=base,
                    is_active=place == len(bases) - 1,
                    beside=self._beside(directory, base, swap),
                ),
                self.report,
                is_deep=self._is_deep,
            )
            yield from check
            end_offset = check.end_offset
            is_whole = check.torn_bytes == 0
        for name in _SNAPSHOT_NAMES:
            if name in names:
                path = f"{directory}/{name}"
                self._check_snapshot(path, end_offset or Offset(0), is_whole=is_whole)

    def _swap(self, directory: str, names: list[str]) -> Swap | None:
        """Return what a compaction had still to put in its place."""
        for name in (SWAP_NAME, CHECKPOINT_NAME):
            if name in names and not is_good(self._disk, f"{directory}/{name}"):
                self.report.problem(f"{directory}/{name}", "is damaged")
        swap = read_swap(self._disk, directory)
        if swap is not None:
            self.report.note(
                f"{directory}/{SWAP_NAME}",
                "is left of a compaction that a crash ended; the broker finishes it",
            )
        return swap

    def _beside(self, directory: str, base: Offset, swap: Swap | None) -> frozenset[str]:
        if swap is None or base != swap.base_offset:
            return frozenset()
        stem = stem_of(directory, base) + CLEANED
        return frozenset(suffix for suffix in SUFFIXES if self._disk.exists(stem + suffix))

    def _bases(self, directory: str, names: list[str], swap: Swap | None) -> list[Offset]:
        """Return the first offsets of the segments; report files that belong to none."""
        bases: list[Offset] = [] if swap is None else [swap.base_offset]
        replaced = () if swap is None else swap.replaced
        for name in names:
            stem, dot, kind = name.partition(".")
            suffix = dot + kind
            if suffix not in SUFFIXES or not stem.isdecimal():
                self._report_stranger(f"{directory}/{name}", name, suffix)
            elif int(stem) in replaced:
                continue
            elif suffix == LOG_SUFFIX:
                bases.append(Offset(int(stem)))
            elif f"{stem}{LOG_SUFFIX}" not in names:
                self.report.note(f"{directory}/{name}", "belongs to no log; it is harmless")
        return sorted(bases)

    def _report_stranger(self, path: str, name: str, suffix: str) -> None:
        """Report a file that is not one of a segment's."""
        if suffix.endswith(_LOST):
            self.report.note(path, "holds bytes the broker set aside after a crash")
        elif suffix.endswith(_TEMPORARY):
            self.report.note(path, "is left of a write that a crash ended; it is harmless")
        elif suffix.startswith(CLEANED):
            self.report.note(path, "is left of a compaction; the broker removes it")
        elif name not in _OWN_NAMES:
            self.report.problem(path, "is not a file of the broker")

    def _report_seam(self, directory: str, *, end_offset: Offset, base: Offset) -> None:
        path = f"{directory}/{base:020d}{LOG_SUFFIX}"
        if base > end_offset:
            text = f"offsets {end_offset} to {base - 1} are missing before this segment"
        else:
            text = f"begins at offset {base}, but the segment before it ends at {end_offset}"
        self.report.problem(path, text)

    def _check_snapshot(self, path: str, end_offset: Offset, *, is_whole: bool) -> None:
        """Check what is remembered beside the log, and use it as a witness of the log's end."""
        file = self._disk.open(path)
        raw = file.read(Position(0), file.size())
        file.close()
        body = raw[_SNAPSHOT_HEAD.size :]
        try:
            crc, synced_offset = _SNAPSHOT_HEAD.unpack_from(raw)
            is_good = snapshot_sum(body, synced_offset) == crc
            if path.endswith(SNAPSHOT_NAME):
                msgspec.msgpack.decode(body)
        except (struct.error, msgspec.MsgspecError):
            is_good, synced_offset = False, 0
        if not is_good:
            self.report.problem(path, "is damaged; the broker makes it anew from the log")
        elif synced_offset > end_offset:
            torn = "" if is_whole else ", so the bytes at its end are damage, not half a write"
            self.report.problem(
                path,
                f"knows of messages before offset {synced_offset}, but the log ends at offset"
                f" {end_offset}{torn}",
            )
