"""Readers beside the broker: they read its files, and get just what they would get through it."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

import goqueue
from goqueue.base.errors import ClosedError, DataLossError, TopicNotFoundError
from goqueue.client.blocking import in_place
from goqueue.client.blocking.chunks import IN_PLACE_MESSAGES_MIN
from goqueue.client.blocking.in_place import LocalFiles
from goqueue.client.protocol.fetching import NotInPlaceError
from goqueue.wire.calls import Place
from tests.acceptance.served import Served

COUNT = 4 * IN_PLACE_MESSAGES_MIN
"""Enough to be read in place, in more pieces than one."""
SEGMENT_BYTES = 1 << 20
ISOLATIONS = ("read_committed", "read_uncommitted")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("broker") / "data") as served:
        yield served


@pytest.fixture
def client(served: Served) -> Iterator[goqueue.Client]:
    with goqueue.connect(served.address, timeout=60) as client:
        yield client


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the size of everything that is read in place."""
    sizes: list[int] = []
    read = in_place.read_at

    def note(descriptor: int, position: int, size: int) -> memoryview:
        sizes.append(size)
        return read(descriptor, position, size)

    monkeypatch.setattr(in_place, "read_at", note)
    return sizes


def fill(client: goqueue.Client, topic: str, *, partitions: int = 2, count: int = COUNT) -> None:
    client.create_topic(topic, partitions=partitions, segment_bytes=SEGMENT_BYTES, retention_ms=0)
    with client.producer(topic, linger_ms=5) as producer:
        for number in range(count):
            producer.send(b"%0100d" % number, partition=number % partitions)


def numbers(client: goqueue.Client, topic: str, **options: object) -> list[int]:
    return [int(m.value or b"") for m in client.read(topic, **options)]  # type: ignore[arg-type]


def log_files(served: Served, topic: str) -> list[Path]:
    return sorted((served.data_dir / "logs" / topic / "0").glob("*.log"))


def open_files(process: int) -> list[str]:
    files: list[str] = []
    for link in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            files.append(str(link.readlink()))
    return files


def test_much_is_read_from_the_files(client: goqueue.Client, readings: list[int]) -> None:
    """Nearly everything is, over several segments; every message comes once and in order."""
    fill(client, "much")
    found = [(m.partition, m.offset, int(m.value or b"")) for m in client.read("much")]

    assert sorted(found) == [(p, n, 2 * n + p) for p in (0, 1) for n in range(COUNT // 2)]
    for partition in (0, 1):
        offsets = [offset for place, offset, _ in found if place == partition]
        assert offsets == sorted(offsets)
    assert len(readings) > 2
    assert sum(readings) > COUNT * 100 * 0.8


def test_batches_are_the_same(
    client: goqueue.Client, monkeypatch: pytest.MonkeyPatch, readings: list[int]
) -> None:
    """Arrow batches read in place hold what those that come through the broker hold."""
    fill(client, "same")

    def rows() -> list[tuple[object, ...]]:
        batches = list(client.read_batches("same"))
        return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())

    beside = rows()
    count = len(readings)
    monkeypatch.setattr("goqueue.client.blocking.chunks.IN_PLACE_MESSAGES_MIN", COUNT + 1)
    through = rows()

    assert count > 0
    assert len(readings) == count
    assert beside == through


@pytest.mark.parametrize("seed", range(2))
def test_any_range_is_the_same_in_place_and_through_the_broker(
    client: goqueue.Client, monkeypatch: pytest.MonkeyPatch, readings: list[int], seed: int
) -> None:
    """What lies in ``_extents`` is what the broker itself reads, also with aborted messages."""
    random, topic = Random(seed), f"ranges-{seed}"
    fill(client, topic, count=COUNT // 2)
    with client.producer(topic, transactional_id=topic) as producer:
        for number in range(30):
            transaction = producer.transaction()
            transaction.begin()
            for row in range(random.randrange(1, 900)):
                transaction.send(b"%d-%d-" % (number, row) + bytes(90), partition=row % 2)
            if random.random() < 0.4:
                producer.flush()
                transaction.abort()
            else:
                transaction.commit()
    with client.producer(topic) as plain:
        plain.send(b"later", partition=0, delay=timedelta(days=1))
    ends = [part.end_offset for part in client.describe_topic(topic).partitions]
    for _ in range(6):
        number, isolation = random.randrange(2), random.choice(ISOLATIONS)
        start = random.randrange(ends[number] // 2)
        end = random.randrange(start + 1, ends[number] + 1)
        found = []
        for minimum in (0, 1 << 60):
            monkeypatch.setattr("goqueue.client.blocking.chunks.IN_PLACE_MESSAGES_MIN", minimum)
            found.append(
                [
                    row
                    for batch in client.read_batches(
                        topic, partitions=[number], start=start, end=end, isolation=isolation
                    )
                    for row in batch.to_pylist()
                ]
            )
        assert found[0] == found[1]
    assert readings


def test_a_range_is_cut_to_its_offsets(client: goqueue.Client, readings: list[int]) -> None:
    """A reader that begins and ends in the middle of batches gets just its range."""
    fill(client, "range", partitions=1)
    found = numbers(client, "range", start=777, end=COUNT - 333)

    assert found == list(range(777, COUNT - 333))
    assert readings


def test_few_messages_and_followers_go_through_the_broker(
    client: goqueue.Client, readings: list[int]
) -> None:
    """For a few it is not worth while; who follows wants what comes next, not where it is."""
    fill(client, "few", partitions=1)
    few = numbers(client, "few", start=-100)
    follower = iter(client.read("few", follow=True))
    first = [int(next(follower).value or b"") for _ in range(COUNT)]

    assert few == list(range(COUNT - 100, COUNT))
    assert first == list(range(COUNT))
    assert not readings


def test_what_is_hidden_stays_hidden(client: goqueue.Client, readings: list[int]) -> None:
    """Delayed messages and those of aborted or open transactions are not found in the files."""
    fill(client, "hidden", partitions=1)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    with client.producer("hidden") as producer:
        producer.send(b"-1", partition=0, deliver_at=tomorrow)
    with client.producer("hidden", transactional_id="hidden") as producer:
        aborted = producer.transaction()
        aborted.begin()
        aborted.send(b"-2", partition=0)
        aborted.abort()
        with client.producer("hidden", linger_ms=5) as plain:
            for number in range(COUNT, 2 * COUNT):
                plain.send(b"%0100d" % number, partition=0)
        aborted = producer.transaction()
        aborted.begin()
        sent = [aborted.send(b"-3", partition=0) for _ in range(5_000)]
        sent[-1].result(60)
        found = numbers(client, "hidden")
        aborted.abort()

    assert found == list(range(2 * COUNT))
    assert readings


@pytest.mark.parametrize("rows", [10, 700])
def test_what_was_aborted_is_left_out_by_the_reader(
    client: goqueue.Client, readings: list[int], rows: int
) -> None:
    """P9: the files hold aborted messages; whoever reads what is committed does not get them."""
    topic = f"aborted-{rows}"
    client.create_topic(topic, partitions=2, segment_bytes=SEGMENT_BYTES, retention_ms=0)
    committed: list[bytes] = []
    everything: list[bytes] = []
    with client.producer(topic, transactional_id=topic) as producer:
        for number in range(28_000 // rows):
            values = [b"%06d-%04d-" % (number, row) + bytes(90) for row in range(rows)]
            transaction = producer.transaction()
            transaction.begin()
            for row, value in enumerate(values):
                transaction.send(value, partition=row % 2)
            everything += values
            if number % 3 == 1:
                producer.flush()
                transaction.abort()
            else:
                transaction.commit()
                committed += values
    beside = [m.value or b"" for m in client.read(topic)]
    count = len(readings)
    rows_read = [
        value
        for batch in client.read_batches(topic, columns=["value"])
        for value in batch.column("value").to_pylist()
    ]
    with_aborted = [m.value or b"" for m in client.read(topic, isolation="read_uncommitted")]

    assert count > 0
    assert sorted(beside) == sorted(rows_read) == sorted(committed)
    assert sorted(with_aborted) == sorted(everything)


def test_damage_is_told_as_ever(served: Served, client: goqueue.Client) -> None:
    """P10: a bad frame is not handed out; the broker says what is lost, and the rest follows."""
    fill(client, "damage", partitions=1)
    file = log_files(served, "damage")[1]
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 0x40
    file.write_bytes(raw)
    before: list[int] = []
    with pytest.raises(DataLossError, match="bad checksum"):
        before.extend(int(m.value or b"") for m in client.read("damage"))
    skipped = numbers(client, "damage", on_gap="skip")

    assert before == list(range(len(before)))
    assert 0 < len(before) < COUNT
    assert skipped == sorted(set(skipped))
    assert 0 < COUNT - len(skipped) < COUNT / 2
    assert skipped[0] == 0
    assert skipped[-1] == COUNT - 1


@pytest.mark.parametrize("when", ["at once", "later"])
def test_files_that_cannot_be_had_are_read_through_the_broker(
    client: goqueue.Client, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Another user, another container, a disk that fails here: nothing is lost or doubled."""
    topic = f"refused-{when.replace(' ', '-')}"
    fill(client, topic)
    read = in_place.read_at
    sizes: list[int] = []

    def refuse(descriptor: int, position: int, size: int) -> memoryview:
        sizes.append(size)
        if when == "at once" or len(sizes) > 2:
            raise NotInPlaceError("no")
        return read(descriptor, position, size)

    monkeypatch.setattr(in_place, "read_at", refuse)

    assert sorted(numbers(client, topic)) == list(range(COUNT))
    assert sizes


def test_a_topic_deleted_meanwhile_ends_the_read(
    client: goqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the broker no longer has is an error, not silence."""
    monkeypatch.setattr("goqueue.client.protocol.fetching.IN_PLACE_BYTES", 4 << 20)
    fill(client, "gone", partitions=1, count=4 * COUNT)
    reading = iter(client.read("gone"))
    found = [int(next(reading).value or b"")]
    client.delete_topic("gone")
    with pytest.raises(TopicNotFoundError):
        found.extend(int(message.value or b"") for message in reading)

    # What the reader had been told of before is handed out before the error.
    assert found == list(range(len(found)))
    assert len(found) * 100 > SEGMENT_BYTES


def test_a_reader_leaves_nothing_open(served: Served, client: goqueue.Client) -> None:
    """Files and the thread go with the reader, also when it stops half-way."""
    del served
    fill(client, "tidy", partitions=1)

    def traces() -> tuple[set[str], int]:
        files = set(open_files(os.getpid()))
        threads = sum(thread.name.startswith("goqueue-files") for thread in threading.enumerate())
        return {file for file in files if "/logs/tidy/" in file}, threads

    reading = client.read("tidy")
    next(reading)
    under_way = traces()
    reading.close()

    assert under_way[0]
    assert under_way[1] == 1
    assert traces() == (set(), 0)


def test_a_client_closed_by_another_thread_is_told_as_that(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads hears that the client was closed, whatever was under way."""
    read, begun, going = in_place.read_at, threading.Event(), threading.Event()

    def slow(descriptor: int, position: int, size: int) -> memoryview:
        begun.set()
        going.wait(60)
        return read(descriptor, position, size)

    monkeypatch.setattr(in_place, "read_at", slow)
    errors: list[goqueue.GoQueueError] = []

    def run(client: goqueue.Client) -> None:
        try:
            list(client.read("closed"))
        except goqueue.GoQueueError as error:
            errors.append(error)

    with goqueue.connect(served.address, timeout=60) as client:
        fill(client, "closed", partitions=1)
        reader = threading.Thread(target=run, args=(client,))
        reader.start()
        assert begun.wait(60)
        closer = threading.Thread(target=client.close)
        closer.start()
        going.set()
        closer.join(60)
        reader.join(60)

    assert [type(error) for error in errors] == [ClosedError]


def test_the_broker_lets_go_of_files(served: Served) -> None:
    """Files that readers were told of are closed with their connections, and deleted ones gone."""

    def held() -> int:
        return sum("/logs/held/" in file for file in open_files(served.pid))

    with goqueue.connect(served.address, timeout=60) as client:
        fill(client, "held", partitions=1)
        for _ in range(5):
            assert len(numbers(client, "held")) == COUNT
        client.delete_topic("held")
        deadline = time.monotonic() + 60
        while held() and time.monotonic() < deadline:
            client.list_topics()

    assert held() == 0


def test_old_files_are_closed_while_reading(client: goqueue.Client) -> None:
    """A reader has the files of its last replies open, not those of a whole topic."""
    fill(client, "long", partitions=1, count=3 * COUNT)
    most = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("goqueue.client.protocol.fetching.IN_PLACE_BYTES", 4 << 20)
        for number, _ in enumerate(client.read("long")):
            if number % 5_000 == 0:
                files = open_files(os.getpid())
                most = max(most, sum("/logs/long/" in file for file in files))

    assert 0 < most < 10


def test_no_thread_is_no_trouble(client: goqueue.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be started, as when a process ends, the broker is asked for all."""

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    fill(client, "threadless", partitions=1)
    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor.submit", refuse)

    assert numbers(client, "threadless") == list(range(COUNT))


def test_only_the_file_that_was_meant_is_opened(tmp_path: Path) -> None:
    """A number may stand for another file by now; that one is not read."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    files = LocalFiles()
    with path.open("rb") as file:
        status = path.stat()
        meant = Place(os.getpid(), file.fileno(), status.st_dev, status.st_ino, 2)
        other = Place(os.getpid(), file.fileno(), status.st_dev, status.st_ino + 1, 2)
        found = bytes(files.read(meant, 5).result())
        with pytest.raises(NotInPlaceError, match="another"):
            files.read(other, 5).result()
        with pytest.raises(NotInPlaceError, match="shorter"):
            files.read(meant, 50).result()
    with pytest.raises(NotInPlaceError):
        LocalFiles().read(Place(os.getpid(), 10**6, 1, 1, 0), 5).result()

    assert found == b"23456"
    files.close()
