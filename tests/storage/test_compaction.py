"""A compacted log holds the last message of every key, at its offset, and is silent on the rest."""

import contextlib
from random import Random

import pytest
from pyroaring import BitMap64

from goqueue.base.errors import StorageFailedError
from goqueue.base.ids import Offset
from goqueue.base.units import DAY_MS, US_PER_MS
from goqueue.core.record.batch import pack_batch
from goqueue.core.record.check import check_frames
from goqueue.core.record.columns import batch_of_drafts
from goqueue.core.record.message import Draft, Message
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.row import encode_row
from goqueue.core.record.stamp import NO_STAMP
from goqueue.storage.findings import Severity
from goqueue.storage.segment_check import Place, SegmentCheck
from goqueue.storage.verify import Verification
from goqueue.testing.disk import CrashError, MemoryDisk
from tests.storage.driver import DIRECTORY, EVERYTHING, NOW_MS, LogDriver

OLD_US = (NOW_MS - 2 * DAY_MS) * US_PER_MS
NEW_US = NOW_MS * US_PER_MS
SMALL = 2_000


def publish(driver: LogDriver, *drafts: Draft) -> None:
    driver.publish(frame_drafts(drafts))


def put(
    key: str, value: str | None, *, time_us: int = NEW_US, dedup_id: str | None = None
) -> Draft:
    return Draft(
        key=key.encode(),
        value=None if value is None else value.encode(),
        timestamp_us=time_us,
        dedup_id=None if dedup_id is None else dedup_id.encode(),
    )


def shown(messages: list[Message]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(one.offset, one.key, one.value) for one in messages]


def problems(disk: MemoryDisk) -> list[str]:
    """Return what a check of the partition finds wrong; there is no catalogue here."""
    verification = Verification(disk, is_deep=True)
    for _ in verification.run():
        pass
    return [
        f"{one.path}: {one.text}"
        for one in verification.report.findings
        if one.severity is Severity.PROBLEM and one.path.startswith(DIRECTORY)
    ]


class Model:
    """The dumb twin: every message there ever was, and what compaction keeps of them."""

    def __init__(self) -> None:
        self.messages: dict[int, Draft] = {}
        self.end = 0

    def add(self, drafts: list[Draft]) -> None:
        for draft in drafts:
            self.messages[self.end] = draft
            self.end += 1

    def compact(self, *, end: int, now_ms: int) -> None:
        last = {
            draft.key: offset
            for offset, draft in sorted(self.messages.items())
            if offset < end and draft.key is not None
        }
        for offset, draft in list(self.messages.items()):
            if offset >= end or draft.key is None:
                continue
            is_old = draft.timestamp_us <= (now_ms - DAY_MS) * US_PER_MS
            if last[draft.key] != offset or (draft.value is None and is_old):
                del self.messages[offset]

    def shown(self, start: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
        return [
            (offset, draft.key, draft.value)
            for offset, draft in sorted(self.messages.items())
            if offset >= start
        ]


class TestWhatStays:
    def test_the_last_value_of_each_key_stays_at_its_offset(self) -> None:
        """Offsets are kept: what others remember of them stays true."""
        driver = LogDriver(MemoryDisk())
        publish(driver, put("a", "1"), put("b", "1"), put("a", "2"), put("c", "1"), put("a", "3"))
        driver.seal()
        survey = driver.compact()

        assert (survey.records_before, survey.records_removed) == (5, 2)
        assert shown(driver.read()[0]) == [
            (1, b"b", b"1"),
            (3, b"c", b"1"),
            (4, b"a", b"3"),
        ]
        assert driver.log.end_offset == 5

    def test_messages_without_a_key_all_stay(self) -> None:
        """They are not versions of one another; an empty key is a key."""
        driver = LogDriver(MemoryDisk())
        publish(driver, *[Draft(value=b"%d" % n) for n in range(6)])
        publish(driver, Draft(value=b"x"), Draft(key=b"", value=b"y"))
        publish(driver, Draft(key=b"", value=b"z"), Draft(value=None))
        driver.seal()
        driver.compact()

        assert [one.offset for one in driver.read()[0]] == [0, 1, 2, 3, 4, 5, 6, 8, 9]

    def test_a_tombstone_stays_for_its_time(self) -> None:
        """A reader that looks once a day learns of it; then nothing is left of the key."""
        driver = LogDriver(MemoryDisk())
        publish(driver, put("a", "1"), put("b", "1"))
        publish(driver, put("a", None))
        driver.seal()
        driver.compact(now_ms=NOW_MS + DAY_MS - 1)

        assert shown(driver.read()[0]) == [(1, b"b", b"1"), (2, b"a", None)]

        driver.compact(now_ms=NOW_MS + DAY_MS)

        assert shown(driver.read()[0]) == [(1, b"b", b"1")]
        assert driver.log.end_offset == 3

    def test_ids_inside_the_dedup_window_stay(self) -> None:
        """Their messages do, for they are what the window is read back from; so do tombstones."""
        driver = LogDriver(MemoryDisk())
        publish(driver, put("a", "1", dedup_id="x"), put("a", "2"), put("b", "1", time_us=OLD_US))
        publish(driver, *[put("a", None, time_us=OLD_US)] * 4)
        driver.seal()
        driver.compact(dedup_window_ms=DAY_MS)

        assert [one.offset for one in driver.read()[0]] == [0, 2, 6]

        driver.compact(dedup_window_ms=DAY_MS, now_ms=NOW_MS + DAY_MS)

        assert [one.offset for one in driver.read()[0]] == [2]

    def test_what_is_delayed_or_cancelled_is_left_alone(self) -> None:
        """It neither goes nor takes the place of others, and its tombstone waits for it."""
        driver = LogDriver(MemoryDisk())
        publish(driver, put("a", "1"), put("a", "2"), put("a", "3"), put("a", "4"), put("a", "5"))
        publish(driver, *[put("b", "1")] * 4, put("b", None, time_us=OLD_US))
        driver.seal()
        driver.compact(hidden=BitMap64([1, 6]), cancelled=BitMap64([4]))

        assert [one.offset for one in driver.read()[0]] == [1, 3, 4, 6, 9]

        driver.compact(cancelled=BitMap64([4]))

        assert [one.offset for one in driver.read()[0]] == [3, 4]

    def test_messages_of_transactions_are_left_alone(self) -> None:
        """Nobody here knows whether they were committed, so they keep their place."""
        driver = LogDriver(MemoryDisk())
        publish(driver, put("a", "1"))
        batch, column_set = batch_of_drafts([put("a", "2"), put("a", "3")])
        packed = pack_batch(
            batch,
            column_set=column_set,
            first_timestamp_us=NEW_US,
            last_timestamp_us=NEW_US,
            transaction=7,
        )
        checked = check_frames(memoryview(packed.frame(NO_STAMP)), now_ms=NOW_MS, transaction=7)
        driver.log.append(checked)
        publish(driver, put("a", "4"), put("a", None, time_us=OLD_US))
        driver.seal()
        driver.compact()

        assert [one.offset for one in driver.read()[0]] == [1, 2, 4]

    def test_what_takes_appends_is_left_alone(self) -> None:
        """Its messages neither go nor make others go."""
        driver = LogDriver(MemoryDisk())
        publish(driver, put("a", "1"))
        driver.seal()
        publish(driver, put("a", "2"))
        driver.compact()

        assert [one.offset for one in driver.read()[0]] == [0, 1]

    def test_a_run_of_a_batch_keeps_its_columns_and_its_compression(self) -> None:
        """Headers, priorities, due times and ids go with their messages."""
        driver = LogDriver(MemoryDisk())
        drafts = [
            Draft(
                key=b"k%d" % (n % 20),
                value=b"%d" % n * 20,
                timestamp_us=NEW_US + n,
                headers={"h": b"%d" % n} if n % 3 else None,
                priority=n % 5,
                deliver_at_us=NEW_US + n if n % 2 else None,
                dedup_id=b"%d" % n,
            )
            for n in range(30)
        ]
        publish(driver, *drafts)
        before = {one.offset: one for one in driver.read()[0]}
        driver.seal()
        driver.compact()
        messages, gaps = driver.read()

        assert [one.offset for one in messages] == list(range(10, 30))
        assert messages == [before[one.offset] for one in messages]
        assert gaps == []

    def test_small_segments_become_one(self) -> None:
        """A topic that is rewritten for ever does not end as a thousand files."""
        disk = MemoryDisk()
        driver = LogDriver(disk, segment_bytes=SMALL)
        for n in range(300):
            publish(driver, put(f"key {n % 3}", f"{n}" * 30))
        driver.seal()
        count = len(driver.log.segments)
        driver.compact()

        assert count > 10
        assert len(driver.log.segments) == 2
        assert [one.offset for one in driver.read()[0]] == [297, 298, 299]
        assert driver.log.dirty_bytes == 0
        assert problems(disk.kill()) == []

    def test_more_keys_than_there_is_room_for(self) -> None:
        """It takes more passes and comes to the same end."""
        random = Random(7)
        driver = LogDriver(MemoryDisk(), segment_bytes=SMALL)
        model = Model()
        for _ in range(100):
            drafts = [put(f"key {random.randrange(90)}" * 5, "v") for _ in range(9)]
            publish(driver, *drafts)
            model.add(drafts)
        driver.seal()
        driver.compact(keys_max=4)
        model.compact(end=model.end, now_ms=NOW_MS)

        assert shown(driver.read()[0]) == model.shown()

    def test_a_hole_of_very_many_offsets(self) -> None:
        """One hole stands for no more than one batch may, so a bad one hides no good frame."""
        disk = MemoryDisk()
        driver = LogDriver(disk)
        for n in range(3):
            publish(driver, *[put("a", f"{n}")] * 90_000)
        driver.seal()
        driver.compact()

        assert shown(driver.read()[0]) == [(269_999, b"a", b"2")]
        assert driver.log.size_bytes < 300
        assert shown(driver.read(123_456)[0]) == [(269_999, b"a", b"2")]
        assert problems(disk.kill()) == []


@pytest.mark.parametrize("seed", range(10))
def test_any_mix_is_what_a_dictionary_says(seed: int) -> None:
    """Rounds of publishing, sealing, compacting and opening again; then a read at every offset."""
    random = Random(seed)
    disk = MemoryDisk()
    segment_bytes = random.choice((600, SMALL, 20_000))
    driver = LogDriver(disk, segment_bytes=segment_bytes)
    model = Model()
    now_ms = NOW_MS
    for _ in range(random.randrange(20, 60)):
        action = random.randrange(6)
        if action == 0:
            driver.seal()
        elif action == 1:
            end = driver.log.segments[-1].base_offset
            driver.compact(now_ms=now_ms, keys_max=random.choice((3, 1_000)))
            model.compact(end=end, now_ms=now_ms)
            now_ms += random.choice((0, DAY_MS // 3))
        elif action == 2:
            disk = random.choice((disk.kill, disk.crash))()
            driver = LogDriver(disk, segment_bytes=segment_bytes)
        else:
            drafts = [some_draft(random) for _ in range(random.choice((1, 2, 3, 8, 30)))]
            as_rows = random.random() < 0.3
            driver.publish(b"".join(map(encode_row, drafts)) if as_rows else frame_drafts(drafts))
            model.add(drafts)
    for at in range(0, model.end, 1 + model.end // 200):
        messages, gaps = driver.read(at, bytes_max=random.choice((1, 500, EVERYTHING)))
        assert shown(messages) == model.shown(at)
        assert gaps == []
    assert driver.log.end_offset == model.end
    assert problems(disk.kill()) == []


def some_draft(random: Random) -> Draft:
    key = random.choice((None, b"", b"a", b"b", b"c", b"d" * 100, b"e" * 31, b"f" * 32))
    return Draft(
        key=key,
        value=random.choice((None, b"", random.randbytes(random.choice((1, 50, 300))))),
        timestamp_us=NEW_US - random.randrange(2 * DAY_MS) * US_PER_MS,
        headers=random.choice((None, {"h": b"v"})),
        priority=random.choice((2, 2, 0)),
    )


def filled(disk: MemoryDisk) -> Model:
    """Write three segments of many versions and leave them sealed."""
    random = Random(3)
    driver = LogDriver(disk, segment_bytes=SMALL)
    model = Model()
    for _ in range(25):
        drafts = [some_draft(random) for _ in range(random.choice((1, 3, 6)))]
        publish(driver, *drafts)
        model.add(drafts)
    driver.seal()
    driver.log.close()
    return model


@pytest.mark.parametrize("seed", [None, 1, 2], ids=lambda seed: f"torn-{seed}")
def test_a_crash_at_any_operation_leaves_the_old_or_the_new(seed: int | None) -> None:
    """Nothing that stays is ever missing, whatever is written, renamed or removed just then."""
    for operation in range(1, 1_000):
        disk = MemoryDisk()
        model = filled(disk)
        before = model.shown()
        disk = disk.kill()
        driver = LogDriver(disk, segment_bytes=SMALL)
        disk.fail_at(disk.operations + operation)
        try:
            driver.compact()
        except CrashError:
            torn = None if seed is None else Random(seed * 1_000 + operation)
            disk = disk.kill() if seed == 1 else disk.crash(torn=torn)
        else:
            assert operation > 40, "a compaction is more than that"
            return
        assert problems(disk) == []
        model.compact(end=model.end, now_ms=NOW_MS)
        after = model.shown()
        again = LogDriver(disk, segment_bytes=SMALL)
        messages, gaps = again.read()
        assert set(after) <= set(shown(messages)) <= set(before)
        assert gaps == []
        assert again.log.recovery.gaps == []
        assert not [name for name in disk.list_directory(DIRECTORY) if "cleaned" in name]
        assert problems(disk.reopen()) == []
        again.compact()
        assert shown(again.read()[0]) == after
        assert problems(disk.kill()) == []


class Stubborn(MemoryDisk):
    """A disk that refuses to rename or remove some names."""

    refused = ""

    def rename(self, source: str, target: str) -> None:
        self._refuse(target)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._refuse(path)
        super().remove(path)

    def _refuse(self, path: str) -> None:
        if self.refused and path.endswith(self.refused) and ".cleaned" not in path:
            raise StorageFailedError(f"{path} is not to be touched")


@pytest.mark.parametrize("name", [".swap", "0.log", "0.index", "0.timeindex", "6.log", "8.index"])
def test_a_swap_that_is_refused_halfway_loses_nothing(name: str) -> None:
    """The log serves the old or the new, goes on, and is the same after a crash or a new try."""
    for ends in ("crash", "again"):
        disk = Stubborn()
        driver = LogDriver(disk, segment_bytes=400)
        model = Model()
        for number in range(12):
            drafts = [put("a", f"{number}" * 50), put(f"b{number}", "v" * 50)]
            publish(driver, *drafts)
            model.add(drafts)
        driver.seal()
        before = set(model.shown())
        model.compact(end=model.end, now_ms=NOW_MS)
        driver.log.segment_bytes = 100_000
        disk.refused = name
        with contextlib.suppress(StorageFailedError):
            driver.compact()
        messages, gaps = driver.read()
        assert set(model.shown()) <= set(shown(messages)) <= before
        assert gaps == []
        disk.refused = ""
        if ends == "again":
            driver.compact()
            assert shown(driver.read()[0]) == model.shown()
        after = disk.kill() if ends == "again" else disk.crash()
        again = LogDriver(after, segment_bytes=400)
        messages, gaps = again.read()
        assert set(model.shown()) <= set(shown(messages)) <= before
        assert gaps == []
        again.compact()
        assert shown(again.read()[0]) == model.shown()
        assert problems(after) == []


class TestDamage:
    def test_a_flipped_bit_in_a_compacted_segment_is_still_loud(self) -> None:
        """A hole is a frame with a checksum, so what is bad is not taken for one."""
        disk = MemoryDisk()
        filled(disk)
        disk = disk.kill()
        driver = LogDriver(disk, segment_bytes=SMALL)
        driver.compact()
        whole = {one.offset: one for one in driver.read()[0]}
        driver.log.close()
        log = driver.log.segments[0].log_path
        size = driver.log.segments[0].size
        for position in range(size):
            disk = disk.kill()
            disk.flip_bits(log, [position], mask=1 << position % 8)
            messages, gaps = LogDriver(disk, segment_bytes=SMALL).read()
            found = problems(disk)
            disk.flip_bits(log, [position], mask=1 << position % 8)

            assert found, f"byte {position} was not noticed"
            seen = {one.offset: one for one in messages}
            lost = {n for n in whole if n not in seen}
            assert all(any(start <= n < end for start, end in gaps) for n in lost), position
            assert {n: one for n, one in seen.items() if whole.get(n) != one} == {}, position

    def test_a_damaged_segment_is_left_as_it_is(self) -> None:
        """Bad frames are never deleted, nor are tombstones whose values may lie behind them."""
        disk = MemoryDisk()
        driver = LogDriver(disk)
        publish(driver, put("a", "1"))
        publish(driver, put("b", "1"))
        driver.seal()
        publish(driver, put("a", None, time_us=OLD_US), put("c", "1"), put("c", "2"))
        driver.seal()
        path = driver.log.segments[0].log_path
        size = driver.log.segments[0].size
        disk.flip_bits(path, [size - 1])
        driver.compact()

        assert driver.log.segments[0].size == size
        messages, gaps = driver.read()
        assert [one.offset for one in messages] == [0, 2, 4]
        assert gaps == [(1, 2)]


def test_the_index_of_a_compacted_segment_leads_to_its_frames() -> None:
    """By offset and by time, after as before."""
    disk = MemoryDisk()
    driver = LogDriver(disk, segment_bytes=1_000_000)
    for n in range(400):
        publish(
            driver, *[put(f"{n * 7 + k}" if n % 2 else "x", "v" * 99, time_us=n) for k in range(5)]
        )
    driver.seal()
    driver.compact()
    (segment, _) = driver.log.segments

    assert len(segment.index.offsets) > 10
    assert driver.reader.find_time(100) == 505
    assert driver.reader.find_time(0) == 5
    assert driver.read(1_000)[0][0].offset == 1_005
    assert segment.index_rebuilds == 0


def test_a_check_counts_messages_and_not_holes() -> None:
    """What ``goqueue verify`` says there is, a reader finds."""
    disk = MemoryDisk()
    driver = LogDriver(disk)
    publish(driver, *[put("a", f"{n}") for n in range(50)])
    driver.seal()
    driver.compact()
    verification = Verification(disk)
    place = Place(directory=DIRECTORY, base_offset=Offset(0), is_active=False)
    check = SegmentCheck(disk, place, verification.report, is_deep=True)
    for _ in check:
        pass

    assert check.end_offset == 50
    assert verification.report.messages == 1
    assert verification.report.is_clean
