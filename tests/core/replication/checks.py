"""What must hold after every step: nothing committed is lost, changed or shown in two versions."""

from dataclasses import dataclass, field

from goqueue.base.ids import Epoch, NodeId, Offset, TopicPartition
from goqueue.core.replication.replica import LogKey, ReplicaSet
from tests.core.replication.disk import DiskLog, Frame


class BrokenPromiseError(AssertionError):
    """The protocol did what it must not."""


def demand(is_kept: bool, what: str) -> None:  # noqa: FBT001
    if not is_kept:
        raise BrokenPromiseError(what)


@dataclass
class Checks:
    """All that was ever committed, acked or written, and the comparison with it."""

    committed: dict[LogKey, dict[int, Frame]] = field(default_factory=dict)
    acked: dict[int, LogKey] = field(default_factory=dict)
    """Values whose publishers were told that they are safe."""
    written: dict[tuple[LogKey, Epoch, int], int] = field(default_factory=dict)
    forgiven: set[TopicPartition] = field(default_factory=set)
    """Groups with an unclean election: these may have lost something, and say so."""
    losses: int = 0
    _epochs: dict[tuple[LogKey, int], Epoch] = field(default_factory=dict)
    """In which epoch each offset was first shown as committed."""
    _acks: dict[tuple[TopicPartition, Epoch], object] = field(default_factory=dict)
    _watermarks: dict[tuple[object, LogKey], int] = field(default_factory=dict)

    def wrote(self, key: LogKey, offset: int, frame: Frame) -> None:
        """A leader has written: nothing else may ever be at this place in this epoch."""
        place = (key, frame.epoch, offset)
        known = self.written.setdefault(place, frame.value)
        demand(known == frame.value, f"{place} was written as {known} and as {frame.value}")

    def shown(
        self, process: object, key: LogKey, epoch: Epoch, log: DiskLog, committed: Offset
    ) -> None:
        """A node shows everything below an offset."""
        if key.group in self.forgiven:
            return
        before = self._watermarks.get((process, key), 0)
        demand(committed >= before, f"{key}: {process} showed {before}, then {committed}")
        self._watermarks[process, key] = committed
        demand(committed <= log.durable_offset, f"{key}: {process} shows what it has not synced")
        known = self.committed.setdefault(key, {})
        for offset in range(max(before, log.start_offset), committed):
            frame = log.at(offset)
            self._epochs.setdefault((key, offset), epoch)
            demand(
                known.setdefault(offset, frame) == frame,
                f"{key}: {process} shows {frame} at {offset}, another showed {known[offset]}",
            )

    def ack(
        self,
        process: object,
        key: LogKey,
        state: ReplicaSet,
        place: tuple[int, int],
        copies: list[list[DiskLog]],
    ) -> None:
        """A publisher is told that its message is safe."""
        value, offset = place
        who = self._acks.setdefault((key.group, state.epoch), process)
        demand(who == process, f"{who} and {process} both ack in epoch {state.epoch}")
        self.acked[value] = key
        if key.group in self.forgiven:
            return
        held = sum(any(copy.has(offset, value) for copy in disks) for disks in copies)
        trimmed = any(copy.start_offset > offset for disks in copies for copy in disks)
        demand(
            trimmed or held >= state.isr_size_min,
            f"{key}: {value} at {offset} was acked with {held} copies on disks",
        )

    def led(self, node: NodeId, key: LogKey, epoch: Epoch, log: DiskLog) -> None:
        """A node begins to lead: it must have everything that was committed before this epoch.

        It may be late, and another one lead by now in a later epoch; then it commits nothing.
        """
        if key.group in self.forgiven:
            return
        for offset, frame in self.committed.get(key, {}).items():
            if offset >= log.start_offset and self._epochs[key, offset] < epoch:
                demand(
                    offset < log.end_offset and log.at(offset) == frame,
                    f"{key}: {node} leads without {frame} at {offset}",
                )

    def dropped(self, node: NodeId, key: LogKey, log: DiskLog, end_offset: int) -> None:
        """A node cuts its log: only what was never committed may go."""
        if key.group in self.forgiven:
            return
        known = self.committed.get(key, {})
        for offset in range(max(end_offset, log.start_offset), log.end_offset):
            demand(
                known.get(offset) != log.at(offset),
                f"{key}: {node} cuts off the committed {log.at(offset)} at {offset}",
            )

    def trimmed(self, node: NodeId, key: LogKey, log: DiskLog, start_offset: int) -> None:
        """A node removes old messages: only what is committed may go."""
        if key.group in self.forgiven:
            return
        known = self.committed.get(key, {})
        for offset in range(log.start_offset, start_offset):
            demand(offset in known, f"{key}: {node} removes {offset}, which is not committed")

    def reported(self, node: NodeId, key: LogKey, log: DiskLog, durable: Offset) -> None:
        """A follower says what it has on its disk."""
        demand(durable <= log.durable_offset, f"{key}: {node} reports {durable} of {log}")

    def equal(self, key: LogKey, logs: list[DiskLog]) -> None:
        """In the end all copies are the same, without any message twice."""
        first = logs[0]
        start = max(log.start_offset for log in logs)
        for log in logs[1:]:
            demand(log.end_offset == first.end_offset, f"{key}: {first} and {log} differ in length")
            demand(log.tail(start) == first.tail(start), f"{key}: {first} and {log} differ")
        values = [frame.value for frame in first.tail(first.start_offset)]
        demand(len(values) == len(set(values)), f"{key}: a message is there twice")
        if key.group not in self.forgiven:
            kept = set(values)
            for offset, frame in self.committed.get(key, {}).items():
                demand(
                    offset < first.start_offset or frame.value in kept, f"{key}: {frame} is lost"
                )
