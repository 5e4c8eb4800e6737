"""The offline check of a data directory: it finds what is wrong and changes nothing."""

import asyncio
import hashlib
import random
from pathlib import Path

import pytest

from goqueue.base.errors import DataDirLockedError
from goqueue.base.limits import FRAME_HEADER_BYTES
from goqueue.base.units import KiB
from goqueue.config.model import BrokerConfig
from goqueue.core.record.frame import read_header
from goqueue.core.record.message import Draft
from goqueue.runtime.broker import Broker
from goqueue.storage.findings import Report, Severity
from goqueue.storage.local import LocalDisk
from goqueue.storage.read_only import ReadOnlyDisk, ReadOnlyError
from goqueue.storage.verify import Verification
from tests.runtime.grants import PUBLISHING

BATCHES = 60
FLIPS = 150
JOURNAL = "meta/catalog.journal"


async def fill(root: Path) -> None:
    """Leave what a broker leaves that published a little and was stopped."""
    broker = Broker(BrokerConfig(data_dir=str(root)), LocalDisk(root))
    await broker.start()
    topic = broker.create_topic("orders", partitions=2, settings={"segment_bytes": 16 * KiB})
    for number in range(BATCHES):
        drafts = [
            Draft(value=b"%d/%d" % (number, row) * 150, key=b"k", timestamp_us=number * 1_000 + row)
            for row in range(1 + number % 4)
        ]
        await topic.publish_drafts(PUBLISHING, [(draft, number % 2) for draft in drafts])
    broker.create_topic("gone", partitions=1)
    broker.delete_topic("gone")
    await broker.stop()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    data_dir = tmp_path / "data"
    asyncio.run(fill(data_dir))
    return data_dir


def fingerprint(root: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(root)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mtime_ns,
        )
        for path in sorted(root.rglob("*"))
    }


def verify(root: Path, *, is_deep: bool = False) -> Report:
    """Check, and insist that nothing was changed and every byte was counted."""
    before = fingerprint(root)
    disk = ReadOnlyDisk(root)
    verification = Verification(disk, is_deep=is_deep)
    total = verification.total_bytes()
    done = sum(verification.run())

    assert fingerprint(root) == before
    assert done == total
    return verification.report


def segments(root: Path, partition: int = 0) -> list[Path]:
    return sorted(root.glob(f"logs/orders/{partition}/*.log"))


def flip(path: Path, position: int, bit: int = 0) -> None:
    raw = bytearray(path.read_bytes())
    raw[position] ^= 1 << bit
    path.write_bytes(raw)


def texts(report: Report, severity: Severity = Severity.PROBLEM) -> list[str]:
    return [f"{one.path}: {one.text}" for one in report.findings if one.severity is severity]


@pytest.mark.parametrize("is_deep", [False, True])
def test_what_a_stopped_broker_leaves_is_clean(root: Path, *, is_deep: bool) -> None:
    """No false alarm: every message counted, nothing found."""
    report = verify(root, is_deep=is_deep)

    assert report.findings == []
    assert report.messages == sum(1 + number % 4 for number in range(BATCHES))
    assert report.partitions == 2
    assert report.segments == len(segments(root, 0)) + len(segments(root, 1)) > 4


def test_a_damaged_frame_is_named_with_its_offsets(root: Path) -> None:
    """A bad frame in a sealed segment is a problem, and says which messages are gone."""
    first = segments(root)[0]
    header = read_header(first.read_bytes())
    flip(first, FRAME_HEADER_BYTES + 1)
    report = verify(root)

    assert header.offset == 0
    (text,) = texts(report)
    assert text.startswith(f"logs/orders/0/{first.name}: {header.size} bytes at byte 0 are damaged")
    assert "(offsets 0 to " in text


def test_half_a_write_at_the_end_is_only_a_note(root: Path) -> None:
    """What a crash leaves unacknowledged costs nobody a message."""
    last = segments(root)[-1]
    last.write_bytes(last.read_bytes() + b"GQ\x01half")
    report = verify(root)

    assert report.is_clean
    assert texts(report, Severity.NOTE) == [
        (
            f"logs/orders/0/{last.name}: the last 7 bytes are half a write that was never"
            " acknowledged as synced; the broker cuts them off"
        )
    ]


def test_a_log_shorter_than_its_witness_is_a_problem(root: Path) -> None:
    """The snapshot of the producers knows how far the log once was durable."""
    last = segments(root)[-1]
    last.write_bytes(last.read_bytes()[:-1])
    report = verify(root)

    assert not report.is_clean
    assert "producers.snapshot: knows of messages before offset" in "\n".join(texts(report))


def test_a_missing_segment_is_a_hole(root: Path) -> None:
    """Offsets that lie between two segments are named."""
    gone = segments(root)[1]
    gone.unlink()
    report = verify(root)

    assert f"offsets {int(gone.stem)} to " in texts(report)[-1]
    assert "are missing before this segment" in texts(report)[-1]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_must_agree_with_its_log(root: Path, suffix: str) -> None:
    """One that leads astray, is cut or is gone is noted; the broker makes it anew."""
    index = segments(root)[0].with_suffix(suffix)
    good = index.read_bytes()
    index.write_bytes(bytes(16))
    wrong = texts(verify(root), Severity.NOTE)
    index.write_bytes(good[:-1])
    cut = texts(verify(root), Severity.NOTE)
    index.unlink()
    missing = texts(verify(root), Severity.NOTE)

    assert suffix == ".index" or "1 of 1 entries do not match the log" in wrong[0]
    assert "has a cut entry" in cut[0]
    assert missing == [
        f"logs/orders/0/{index.name}: is missing; the broker makes it anew from the log"
    ]


def test_a_wrong_position_in_the_index_is_found(root: Path) -> None:
    """The entry is compared with the frame it points at."""
    index = segments(root)[0].with_suffix(".index")
    flip(index, -1)
    report = verify(root)
    (text,) = texts(report, Severity.NOTE)

    assert f"1 of {index.stat().st_size // 16} entries do not match the log" in text
    assert report.is_clean


def test_the_journal_of_the_catalogue_is_checked(root: Path) -> None:
    """Damage is a problem, a torn end is mended by the broker, and no journal is worst of all."""
    journal = root / JOURNAL
    good = journal.read_bytes()
    journal.write_bytes(good + b"\0\0\0\x20half")
    torn = verify(root)
    flip(journal, 9)
    damaged = texts(verify(root))
    journal.unlink()
    missing = texts(verify(root))

    assert torn.is_clean
    assert "the last 8 bytes are half a record" in texts(torn, Severity.NOTE)[0]
    assert "is damaged, and state without it would be wrong" in damaged[0]
    assert missing == [f"{JOURNAL}: is missing, so no topic below logs is known"]


def test_the_catalogue_and_the_directories_must_agree(root: Path) -> None:
    """A directory nobody knows, and a partition that is not there."""
    (root / "logs/stranger/0").mkdir(parents=True)
    (root / "logs/orders/1").rename(root / "logs/orders/7")
    (root / "logs/orders/0/notes.txt").write_text("hello")

    assert texts(verify(root)) == [
        "logs/stranger: is not a topic the catalogue knows",
        "logs/orders/1: is missing: the catalogue knows it",
        "logs/orders/7: is not a partition of the topic",
        "logs/orders/0/notes.txt: is not a file of the broker",
    ]


def test_leftovers_of_crashes_are_notes(root: Path) -> None:
    """Files that a crash may leave and that harm nobody."""
    log = segments(root)[-1]
    log.with_name(log.name + ".lost").write_bytes(b"x")
    log.with_name("producers.snapshot.tmp").write_bytes(b"x")
    (root / "deleting/gone").mkdir(parents=True)
    report = verify(root)

    assert report.is_clean
    assert len(report.findings) == 3


def test_a_hidden_message_is_found(root: Path) -> None:
    """The checksum does not cover the flags, so those that hide a message are looked at."""
    flip(segments(root)[0], 3, bit=3)

    assert "flags that do not fit the frame" in texts(verify(root))[0]


def test_every_flipped_bit_is_found(root: Path) -> None:
    """Whatever bit changes in a log, an offset index, the journal or a snapshot: it shows."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    kinds = ("logs/*/*/*.log", "logs/*/*/*.index", JOURNAL, "logs/*/*/*.snapshot")
    paths = [path for kind in kinds for path in root.glob(kind) if path.stat().st_size]
    for _ in range(FLIPS):
        path = chance.choice(paths)
        good = path.read_bytes()
        position = chance.randrange(len(good))
        flip(path, position, chance.randrange(8))
        findings = verify(root).findings
        path.write_bytes(good)

        assert findings, f"seed {seed}: {path.name} byte {position}"


def test_a_broker_and_a_check_exclude_each_other(root: Path) -> None:
    """Nobody checks what is being written, and nobody writes what is being checked."""
    broker, check, other = LocalDisk(root), ReadOnlyDisk(root), ReadOnlyDisk(root)
    broker.lock()
    with pytest.raises(DataDirLockedError, match="in use by process"):
        check.lock()
    broker.unlock()
    check.lock()
    other.lock()
    with pytest.raises(DataDirLockedError):
        broker.lock()
    check.unlock()
    other.unlock()
    broker.lock()
    broker.unlock()


def test_the_disk_of_a_check_refuses_every_change(root: Path) -> None:
    """Even code that mends as it reads cannot mend through it."""
    disk = ReadOnlyDisk(root)
    file = disk.open(JOURNAL)
    size = file.size()
    file.truncate(1)

    assert file.size() == 1
    assert disk.open(JOURNAL).size() == size
    with pytest.raises(ReadOnlyError):
        file.append([b"x"])
    with pytest.raises(ReadOnlyError):
        disk.make_directory("new")
    with pytest.raises(ReadOnlyError):
        disk.rename(JOURNAL, "other")
    with pytest.raises(ReadOnlyError):
        disk.remove(JOURNAL)
    with pytest.raises(ReadOnlyError):
        disk.remove_tree("logs")
    with pytest.raises(FileNotFoundError):
        disk.open("missing", create=True)
