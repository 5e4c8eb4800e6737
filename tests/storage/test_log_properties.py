"""Whatever is appended, cut, expired, closed, killed or crashed: the log is a list of messages."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from goqueue.base.ids import Offset
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.row import encode_row
from goqueue.testing.disk import MemoryDisk
from tests.storage.driver import EVERYTHING, NOW_MS, LogDriver, messages_in

sizes = st.sampled_from([0, 1, 30, 300, 3_000])
times = st.integers(0, 50).map(lambda n: n * 1_000_000)


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        # The dumb model: every message there ever was, and how many frames end where.
        self.values: list[tuple[bytes, int]] = []
        self.borders: list[int] = [0]
        self.start = 0
        self.durable = 0
        self.count = 0
        self.blank_us = 0

    @initialize(segment_bytes=st.sampled_from([300, 2_000, 20_000]))
    def open(self, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        self.reopen()

    def reopen(self) -> None:
        self.driver = LogDriver(self.disk, segment_bytes=self.segment_bytes)
        assert self.driver.log.durable_offset == self.driver.log.end_offset
        self.durable = self.driver.log.end_offset

    def draft(self, size: int, time_us: int) -> Draft:
        self.count += 1
        return Draft(value=b"%d" % self.count + bytes(size), timestamp_us=time_us)

    def note(self, drafts: list[Draft], *, frames: int) -> None:
        for draft in drafts:
            self.values.append((draft.value or b"", draft.timestamp_us))
            if frames > 1:
                self.borders.append(len(self.values))
        if frames == 1:
            self.borders.append(len(self.values))

    @rule(messages=st.lists(st.tuples(sizes, times), min_size=4, max_size=12))
    def append_batch(self, messages: list[tuple[int, int]]) -> None:
        drafts = [self.draft(*one) for one in messages]
        assert self.driver.append(frame_drafts(drafts)) == len(self.values)
        self.note(drafts, frames=1)

    @rule(messages=st.lists(st.tuples(sizes, times), min_size=1, max_size=8))
    def append_rows(self, messages: list[tuple[int, int]]) -> None:
        drafts = [self.draft(*one) for one in messages]
        base = self.driver.append(b"".join(map(encode_row, drafts)))
        assert base == len(self.values)
        self.note(drafts, frames=len(drafts))

    @rule(time_us=times)
    def append_nothing(self, time_us: int) -> None:
        assert self.driver.append_empty([self.draft(9, time_us)]) == len(self.values)
        self.blank_us = max(self.blank_us, time_us)

    @rule()
    def commit(self) -> None:
        self.driver.commit()
        self.durable = len(self.values)

    @rule(part=st.floats(0, 1), bytes_max=st.sampled_from([1, 40, 500, 5_000, EVERYTHING]))
    def read(self, part: float, bytes_max: int) -> None:
        at = self.start + int((len(self.values) - self.start) * part)
        messages, gaps = self.driver.read(at, bytes_max=bytes_max)
        found = [(one.offset, one.value, one.timestamp_us) for one in messages]
        expected = [(at + n, *value) for n, value in enumerate(self.values[at:])]
        assert found == expected
        assert gaps == []

    @precondition(lambda self: len(self.values) > self.start)
    @rule(
        part=st.floats(0, 1, exclude_max=True),
        end=st.floats(0, 1),
        bytes_max=st.sampled_from([1, 500, 5_000, EVERYTHING]),
    )
    def place(self, part: float, end: float, bytes_max: int) -> None:
        at = self.start + int((len(self.values) - self.start) * part)
        stop = at + round((len(self.values) - at) * end)
        extent = self.driver.reader.extent(Offset(at), end_offset=Offset(stop), bytes_max=bytes_max)
        file = self.driver.log.segment_of(Offset(at)).file
        messages = messages_in(file.read(extent.position, extent.size))
        found = [(one.offset, one.value, one.timestamp_us) for one in messages]
        places = range(extent.first_offset, extent.next_offset if extent.size else 0)
        assert found == [(place, *self.values[place]) for place in places]
        assert extent.size <= bytes_max
        assert not extent.size or extent.first_offset <= at < extent.next_offset <= stop

    @rule(time_us=times)
    def find_time(self, time_us: int) -> None:
        found = self.driver.reader.find_time(time_us)
        later = (n for n in range(self.start, len(self.values)) if self.values[n][1] >= time_us)
        assert found == next(later, None)

    @precondition(lambda self: self.borders[-1] > self.start)
    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        places = [border for border in self.borders if border >= self.start]
        end = places[int((len(places) - 1) * part)]
        self.driver.log.truncate(Offset(end))
        del self.values[end:]
        self.borders = [border for border in self.borders if border <= end]
        self.durable = min(self.durable, end)

    @rule(cutoff_us=times)
    def expire_by_time(self, cutoff_us: int) -> None:
        cutoff_ms = cutoff_us // 1_000
        self.driver.log.expire(now_ms=NOW_MS, retention_ms=NOW_MS - cutoff_ms, retention_bytes=0)
        start = self.driver.log.start_offset
        assert all(time_us < cutoff_us for _, time_us in self.values[self.start : start])
        left = [time_us for _, time_us in self.values[self.start :]]
        if max([self.blank_us, *left]) < cutoff_us:
            assert start == len(self.values)
        self.forget(start)

    @rule(keep_bytes=st.integers(1, 20_000))
    def expire_by_size(self, keep_bytes: int) -> None:
        log = self.driver.log
        count = log.expire(now_ms=NOW_MS, retention_ms=0, retention_bytes=keep_bytes)
        assert not count or log.size_bytes >= keep_bytes
        assert len(log.segments) == 1 or log.size_bytes - log.segments[0].size < keep_bytes
        self.forget(log.start_offset)

    def forget(self, start: int) -> None:
        assert self.start <= start <= len(self.values)
        self.start = start
        # Sealing a segment made it durable.
        self.durable = max(self.durable, self.driver.log.durable_offset)

    @rule()
    def close_and_open(self) -> None:
        self.driver.log.close()
        self.disk = self.disk.kill()
        self.reopen()
        assert self.driver.log.end_offset == len(self.values)

    @rule()
    def kill_and_open(self) -> None:
        self.disk = self.disk.kill()
        self.reopen()
        assert self.driver.log.end_offset == len(self.values)

    @rule(seed=st.none() | st.integers(0, 2**32))
    def crash_and_open(self, seed: int | None) -> None:
        durable = max(self.durable, self.driver.log.durable_offset)
        self.disk = self.disk.crash(torn=None if seed is None else Random(seed))
        self.reopen()
        log = self.driver.log
        end = log.end_offset
        assert durable <= end <= len(self.values)
        assert end in self.borders
        assert log.recovery.gaps == []
        del self.values[end:]
        self.borders = [border for border in self.borders if border <= end]

    @invariant()
    def ends_agree(self) -> None:
        if hasattr(self, "driver"):
            log = self.driver.log
            assert (log.start_offset, log.end_offset) == (self.start, len(self.values))
            assert self.start <= log.durable_offset <= log.end_offset
            assert log.durable_offset >= self.durable


LogMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestLog = LogMachine.TestCase
