"""What a disk does to a log: torn writes, lost pages, flipped bits."""

from random import Random

import pytest

from goqueue.base.ids import Offset, Position
from goqueue.core.record.message import Draft, Message
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.row import encode_row
from goqueue.storage.log_notes import Gap
from goqueue.testing.disk import MemoryDisk
from tests.storage.driver import DIRECTORY, LogDriver, batch, row

FIRST_LOG = f"{DIRECTORY}/{0:020d}.log"


def content_of(disk: MemoryDisk, path: str) -> bytes:
    file = disk.open(path)
    return file.read(Position(0), file.size())


def paths(disk: MemoryDisk, suffix: str) -> list[str]:
    names = disk.list_directory(DIRECTORY)
    return [f"{DIRECTORY}/{name}" for name in names if name.endswith(suffix)]


def filled(disk: MemoryDisk, *, segment_bytes: int, seed: int = 0) -> dict[int, Message]:
    """Write batches and rows of many sizes, close, and return every message by its offset."""
    random = Random(seed)
    driver = LogDriver(disk, segment_bytes=segment_bytes)
    for number in range(60):
        sizes = [random.choice((1, 10, 700)) for _ in range(random.choice((1, 2, 5)))]
        drafts = [
            Draft(value=random.randbytes(size), timestamp_us=number * 1_000) for size in sizes
        ]
        driver.publish(frame_drafts(drafts))
    messages, _ = driver.read()
    driver.log.close()
    return {message.offset: message for message in messages}


class TestTornTail:
    @pytest.mark.parametrize("last", [row(b"last"), batch(5)], ids=["row", "batch"])
    @pytest.mark.parametrize("before", [[], [row(b"a"), batch(4)]], ids=["alone", "behind others"])
    def test_it_is_cut_at_every_byte(self, before: list[bytes], last: bytes) -> None:
        """Whatever is left of the last frame, the log ends with the one before and goes on."""
        for kept in range(len(last)):
            disk = MemoryDisk()
            driver = LogDriver(disk)
            for frames in before:
                driver.publish(frames)
            end = driver.log.end_offset
            messages, _ = driver.read()
            driver.publish(last)
            disk = disk.kill()
            file = disk.open(FIRST_LOG)
            file.truncate(file.size() - len(last) + kept)
            again = LogDriver(disk)

            assert again.log.end_offset == end
            assert again.log.recovery.torn_bytes == kept
            assert again.read()[0] == messages
            assert again.publish(last) == end
            assert LogDriver(disk.crash()).log.end_offset == driver.log.end_offset

    def test_a_frame_inside_the_torn_message_is_not_taken_for_one(self) -> None:
        """A message may carry frames of another log; only offsets that can be are believed."""
        stranger = encode_row(Draft(value=b"stranger"), offset=Offset(10**9))
        disk = MemoryDisk()
        LogDriver(disk).publish(row(b"mine"))
        driver = LogDriver(disk)
        driver.publish(row(stranger + b"and more of it"))
        disk = disk.kill()
        file = disk.open(FIRST_LOG)
        file.truncate(file.size() - 3)

        assert LogDriver(disk).log.end_offset == 1


class TestLostPages:
    def test_what_is_behind_a_page_that_was_never_written_is_set_aside(self) -> None:
        """Nothing of it was acknowledged; its bytes are kept beside the log all the same."""
        disk = MemoryDisk()
        driver = LogDriver(disk)
        driver.publish(row(b"synced"))
        size = driver.log.size_bytes
        for number in range(20):
            driver.append(row(b"%d" % number * 400))
        disk = disk.kill()
        raw = content_of(disk, FIRST_LOG)
        page = raw[size:8_192]
        for position, byte in enumerate(page, start=size):
            disk.flip_bits(FIRST_LOG, [position], mask=byte) if byte else None
        again = LogDriver(disk)

        assert again.log.end_offset == 1
        assert again.log.recovery.lost_bytes == len(raw) - size
        assert content_of(disk, f"{FIRST_LOG}.lost")[8_192 - size :] == raw[8_192:]

    def test_zeros_from_the_middle_of_a_sector_are_a_lost_page_too(self) -> None:
        """The synced bytes of a shared sector are there, the rest of it is not."""
        for lead in range(400, 500, 7):
            disk = MemoryDisk()
            driver = LogDriver(disk)
            driver.publish(row(b"x" * (lead - 34)))
            driver.append(row(b"first unsynced"))
            driver.append(row(b"y" * 5_000))
            driver.append(row(b"last"))
            disk = disk.kill()
            raw = content_of(disk, FIRST_LOG)
            for position in range(lead, 512):
                disk.flip_bits(FIRST_LOG, [position], mask=raw[position])
            again = LogDriver(disk)

            assert again.log.end_offset == 1
            assert again.log.recovery.gaps == []


class TestFlippedBits:
    @pytest.mark.parametrize("segment_bytes", [3_000, 100_000])
    @pytest.mark.parametrize("seed", range(12))
    def test_in_a_log_they_cost_the_frames_they_hit(self, segment_bytes: int, seed: int) -> None:
        """A bad frame is never served, its offsets are reported, and no byte is deleted."""
        random = Random(seed)
        disk = MemoryDisk()
        messages = filled(disk, segment_bytes=segment_bytes, seed=seed)
        end = len(messages)
        for path in paths(disk, ".log"):
            size = len(content_of(disk, path))
            flips = [random.randrange(size) for _ in range(2)] if size else []
            disk.flip_bits(path, flips, mask=1 << random.randrange(8))
        damaged = {path: content_of(disk, path) for path in paths(disk, ".log")}
        again = LogDriver(disk, segment_bytes=segment_bytes)
        found, gaps = again.read(0)
        again.publish(row(b"goes on"))

        assert all(messages[message.offset] == message for message in found)
        missing = set(messages) - {message.offset for message in found}
        assert missing == {at for gap in gaps for at in range(gap.start_offset, gap.end_offset)}
        assert missing
        assert again.log.end_offset == end + 1
        reported = again.log.recovery.gaps
        assert sum(gap.end_offset - gap.start_offset for gap in reported) == len(missing)
        for path, raw in damaged.items():
            assert content_of(disk, path)[: len(raw)] == raw

    def test_every_offset_can_be_asked_for(self) -> None:
        """A reader that begins behind, inside or before the damage gets what is good."""
        disk = MemoryDisk()
        messages = filled(disk, segment_bytes=100_000)
        size = len(content_of(disk, FIRST_LOG))
        disk.flip_bits(FIRST_LOG, [size // 3, 2 * size // 3], mask=0x10)
        driver = LogDriver(disk)
        served = {message.offset for message in driver.read()[0]}

        assert 0 < len(served) < len(messages)
        for offset in messages:
            for bytes_max in (1, 3_000):
                found, gaps = driver.read(offset, bytes_max=bytes_max)
                assert [one.offset for one in found] == [
                    at for at in sorted(served) if at >= offset
                ]
                assert bool(gaps) == (len(found) < len(messages) - offset)

    def test_in_the_very_last_frame_they_are_damage_after_a_clean_end(self) -> None:
        """The index knows that the frame was synced, so it is not taken for a torn write."""
        for value in (b"last", bytes(5_000)):
            disk = MemoryDisk()
            driver = LogDriver(disk)
            driver.publish(row(b"first"))
            driver.publish(row(value))
            driver.log.close()
            size = len(content_of(disk, FIRST_LOG))
            disk.flip_bits(FIRST_LOG, [size - 2])
            again = LogDriver(disk)

            assert again.log.recovery.gaps == [Gap(Offset(1), Offset(2))]
            assert again.publish(row(b"next")) == 2
            found, gaps = again.read()
            assert [message.value for message in found] == [b"first", b"next"]
            assert gaps == [Gap(Offset(1), Offset(2))]
            assert len(content_of(disk, FIRST_LOG)) == size

    def test_in_the_last_frame_after_a_kill_they_are_damage_too(self) -> None:
        """A torn write leaves zeros or a short file, so a whole frame that is bad was written."""
        disk = MemoryDisk()
        driver = LogDriver(disk)
        driver.publish(row(b"first"))
        driver.publish(batch(5))
        disk = disk.kill()
        size = len(content_of(disk, FIRST_LOG))
        disk.flip_bits(FIRST_LOG, [size - 1])
        raw = content_of(disk, FIRST_LOG)
        again = LogDriver(disk)

        assert again.log.end_offset == 6
        assert again.log.recovery.gaps == [Gap(Offset(1), Offset(6))]
        assert content_of(disk, FIRST_LOG) == raw

    def test_in_a_last_frame_of_zeros_they_look_like_a_torn_write(self) -> None:
        """Nobody can tell, so the bytes are set aside and not served."""
        disk = MemoryDisk()
        driver = LogDriver(disk)
        driver.publish(row(b"first"))
        driver.publish(row(bytes(5_000)))
        disk = disk.kill()
        disk.flip_bits(FIRST_LOG, [len(content_of(disk, FIRST_LOG)) - 1])
        raw = content_of(disk, FIRST_LOG)
        again = LogDriver(disk)

        assert again.log.end_offset == 1
        assert again.log.recovery.lost_bytes == len(row(bytes(5_000)))
        assert raw.endswith(content_of(disk, f"{FIRST_LOG}.lost"))

    @pytest.mark.parametrize("suffix", [".index", ".timeindex"])
    @pytest.mark.parametrize("segment_bytes", [3_000, 100_000])
    @pytest.mark.parametrize("seed", range(8))
    def test_in_an_index_they_cost_nothing(
        self, suffix: str, segment_bytes: int, seed: int
    ) -> None:
        """An index is a hint: every message and every time is found all the same."""
        random = Random(seed)
        disk = MemoryDisk()
        messages = filled(disk, segment_bytes=segment_bytes, seed=seed)
        for path in paths(disk, suffix):
            size = len(content_of(disk, path))
            if size > 64:
                # Two flips in one entry and its neighbour are beyond what a hint can stand.
                disk.flip_bits(path, [random.randrange(size // 2 - 32)], mask=1 << seed)
                disk.flip_bits(path, [random.randrange(size // 2, size)], mask=0x80 >> seed)
            elif size:
                disk.flip_bits(path, [random.randrange(size)], mask=1 << seed)
        driver = LogDriver(disk, segment_bytes=segment_bytes)

        assert {one.offset: one for one in driver.read()[0]} == messages
        for offset in messages:
            assert driver.read(offset)[0] == [
                messages[at] for at in sorted(messages) if at >= offset
            ]
        for time_us in range(0, 61_000, 500):
            later = (at for at in sorted(messages) if messages[at].timestamp_us >= time_us)
            assert driver.reader.find_time(time_us) == next(later, None)
        driver.publish(row(b"goes on"))
        driver.log.close()
        assert LogDriver(disk).log.recovery.index_rebuilds == 0

    @pytest.mark.parametrize("suffix", [".index", ".timeindex"])
    def test_an_index_that_is_gone_is_made_anew(self, suffix: str) -> None:
        """So is one of another segment, or half of one."""
        disk = MemoryDisk()
        messages = filled(disk, segment_bytes=10_000)
        for number, path in enumerate(paths(disk, suffix)):
            file = disk.open(path)
            if number % 3 == 0:
                disk.remove(path)
            elif number % 3 == 1:
                file.truncate(file.size() // 2 + 5)
            else:
                file.truncate(file.size() // 32 * 16)
        driver = LogDriver(disk, segment_bytes=10_000)

        assert {one.offset: one for one in driver.read()[0]} == messages
        assert driver.reader.find_time(59_000) == next(
            at for at in sorted(messages) if messages[at].timestamp_us >= 59_000
        )

    def test_a_flip_in_a_time_never_lets_retention_delete_early(self) -> None:
        """The newest message of a segment is what its frames say, not what one entry says."""
        for bit in range(64):
            disk = MemoryDisk()
            driver = LogDriver(disk, segment_bytes=2_000)
            for number in range(40):
                driver.publish(row(b"x" * 100, timestamp_us=1_000_000 + number))
            driver.log.close()
            for path in paths(disk, ".timeindex"):
                size = len(content_of(disk, path))
                if size:
                    disk.flip_bits(path, [size - 16 + bit // 8], mask=1 << bit % 8)
            log = LogDriver(disk, segment_bytes=2_000).log
            log.expire(now_ms=2_000, retention_ms=1_000, retention_bytes=0)

            assert log.start_offset == 0
