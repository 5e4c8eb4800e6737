"""A data directory read without its broker: the same rows, whatever happens to the files."""

import shutil
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import goqueue
from goqueue.base.errors import DataLossError, StorageFailedError, TopicNotFoundError
from goqueue.client.protocol.arrow import SCHEMA
from goqueue.client.sync import Client
from goqueue.config.model import BrokerConfig
from goqueue.embedded import open_embedded
from goqueue.spark.connector.logdir import LogDirectory
from goqueue.spark.connector.planning import OffsetRange, ranges_between
from goqueue.spark.connector.rows import RowMapping
from tests.acceptance.served import Served

TOPIC = "orders"
SECONDS_MAX = 120
SMALL_SEGMENT = 64 * 1_024


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def client(data: Path) -> Iterator[Client]:
    """A broker in this process that looks after its segments often."""
    with open_embedded(data, BrokerConfig(maintenance_interval_ms=100)) as connected:
        yield connected


def by_broker(client: Client, topic: str = TOPIC) -> pa.Table:
    batches = client.read_batches(topic, columns=SCHEMA.names, delayed="show")
    return ordered(list(batches))


def ranges_in(log: LogDirectory, topic: str = TOPIC) -> list[OffsetRange]:
    parts = log.offsets(topic)
    start = {topic: {part.partition: part.start_offset for part in parts}}
    end = {topic: {part.partition: part.end_offset for part in parts}}
    return ranges_between(start, end)


def by_files(data: Path, topic: str = TOPIC, *, is_loss_fatal: bool = True) -> pa.Table:
    log = LogDirectory(str(data))
    batches: list[pa.RecordBatch] = []
    for wanted in ranges_in(log, topic):
        # As tasks do: each looks at the directory for itself.
        chunks = LogDirectory(str(data)).chunks(wanted, is_loss_fatal=is_loss_fatal)
        batches += RowMapping(SCHEMA.names).batches_in(chunks)
    return ordered(batches)


def ordered(batches: list[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(batches, SCHEMA)
    return table.sort_by([("partition", "ascending"), ("offset", "ascending")]).combine_chunks()


def fill(client: Client, topic: str = TOPIC) -> None:
    """Publish a bit of everything, in row frames and batches, plain and compressed."""
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    for compression in (None, "zstd", "lz4"):
        with client.producer(topic, compression=compression) as producer:
            for number in range(400):
                producer.send(b"value %d" % number * 8, key=b"k%d" % (number % 7))
            producer.send(None, key=b"k1")
            producer.send(b"", headers={"a": b"1", "b": "text"}, priority="high")
            producer.send(b"early", timestamp=moment)
            producer.send(b"late", delay=timedelta(hours=1))
    with client.producer(topic) as producer:
        for number in range(5):
            producer.send(b"alone %d" % number).result()


def transact(client: Client, name: str, outcome: str | None, topic: str = TOPIC) -> object:
    """Publish in a transaction; without an outcome it stays open."""
    producer = client.producer(topic, transactional_id=name)
    transaction = producer.transaction()
    transaction.begin()
    sent = [
        transaction.send(f"{name} {number}".encode(), key=b"t%d" % number) for number in range(20)
    ]
    if outcome is not None:
        getattr(transaction, outcome)()
        producer.close()
        return None
    for future in sent:
        future.result()
    return producer


def wait_for(is_so: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(SECONDS_MAX * 20):
        if is_so():
            return
        pause.wait(0.05)
    raise AssertionError("it did not come to pass")


def log_files(data: Path, topic: str = TOPIC, partition: int = 0) -> list[Path]:
    return sorted((data / "logs" / topic / str(partition)).glob("*.log"))


def test_the_rows_are_those_of_the_broker(data: Path, client: Client) -> None:
    """Every column, byte for byte, over rolls of the segment, while the broker is at work."""
    client.create_topic(TOPIC, partitions=3, segment_bytes=SMALL_SEGMENT)
    fill(client)
    for name, outcome in (("first", "commit"), ("second", "abort"), ("third", "commit")):
        transact(client, name, outcome)
    fill(client)
    kept = transact(client, "fourth", None)
    fill(client)

    found = by_files(data)

    assert kept is not None
    assert len(log_files(data)) > 1
    assert found.num_rows > 2_000
    values = found["value"].to_pylist()
    assert b"first 1" in values
    assert not {b"second 1", b"fourth 1"} & set(values)
    assert found.equals(by_broker(client))


def test_a_lost_snapshot_costs_time_only(data: Path, client: Client) -> None:
    """Which transactions were aborted is read from the log itself then."""
    client.create_topic(TOPIC, partitions=1, segment_bytes=SMALL_SEGMENT)
    fill(client)
    transact(client, "gone", "abort")
    fill(client)
    client.close()
    before = by_files(data)
    snapshot = data / "logs" / TOPIC / "0" / "queue.snapshot"
    content = bytearray(snapshot.read_bytes())
    content[-1] ^= 1

    snapshot.write_bytes(content)
    damaged = by_files(data)
    snapshot.unlink()
    missing = by_files(data)

    assert b"gone 1" not in before["value"].to_pylist()
    assert damaged.equals(before)
    assert missing.equals(before)


def test_nothing_is_changed_and_nobody_kept_out(data: Path, client: Client) -> None:
    client.create_topic(TOPIC, partitions=2, segment_bytes=SMALL_SEGMENT)
    fill(client)
    expected = by_broker(client)
    client.close()
    for index in data.glob("logs/**/*.index"):
        # One that is missing is made anew in memory, and only there.
        index.unlink()

    def state() -> dict[Path, tuple[int, int]]:
        files = (path for path in data.rglob("*") if path.is_file())
        return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in files}

    before = state()
    log = LogDirectory(str(data))
    ranges = ranges_in(log)
    chunks = log.chunks(ranges[0], is_loss_fatal=True)
    next(chunks)
    found = by_files(data)
    assert state() == before
    with open_embedded(data) as again:
        after = by_broker(again)

    assert found.equals(expected)
    assert after.equals(expected)


def test_times_are_found_as_by_the_broker(data: Path, client: Client) -> None:
    client.create_topic(TOPIC, partitions=2, segment_bytes=SMALL_SEGMENT, retention_ms=0)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with client.producer(TOPIC) as producer:
        for number in range(2_000):
            producer.send(b"x" * 100, timestamp=start + timedelta(seconds=number))
    log = LogDirectory(str(data))

    for seconds in (-1, 0, 0.5, 777, 1_999, 2_500):
        moment = start + timedelta(seconds=seconds)
        found = {
            one.partition: one.offset
            for one in log.offsets(TOPIC, at_us=int(moment.timestamp() * 1e6))
        }
        expected = {
            p: min(batch["offset"][0].as_py() for batch in batches) if batches else -1
            for p in (0, 1)
            for batches in [list(client.read_batches(TOPIC, start=moment, partitions=[p]))]
        }
        assert found == expected


def test_after_kill_9(data: Path) -> None:
    """What was acknowledged is there before any broker has mended anything."""
    with Served(data) as served:
        with goqueue.connect(served.address) as client:
            client.create_topic(TOPIC, partitions=2, segment_bytes=SMALL_SEGMENT)
            fill(client)
            transact(client, "gone", "abort")
            transact(client, "kept", "commit")
            before = by_broker(client)
            held = transact(client, "open", None)
            served.kill()
            found = by_files(data)
            with (log_files(data)[-1]).open("ab") as file:
                file.write(b"GQ\x01 half a frame")
            torn = by_files(data)
            # Its end waits for the broker, so that is there again first.
            served.start()
        with goqueue.connect(served.address) as client:
            after = by_broker(client)

    assert held is not None
    assert found.equals(before)
    assert torn.equals(before)
    assert after.equals(before)


@pytest.mark.parametrize("place", [0, -1], ids=["sealed", "live"])
def test_damage_is_told_or_passed_over(data: Path, client: Client, place: int) -> None:
    client.create_topic(TOPIC, partitions=1, segment_bytes=SMALL_SEGMENT)
    while len(log_files(data)) < 3:
        fill(client)
    fill(client)
    expected = by_broker(client)
    client.close()
    path = log_files(data)[place]
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)

    with pytest.raises(DataLossError, match="cannot be read: bad checksum; set failOnDataLoss"):
        by_files(data)
    left = by_files(data, is_loss_fatal=False)

    assert 0 < left.num_rows < expected.num_rows
    rest = expected.filter(pa.compute.is_in(expected["offset"], left["offset"].combine_chunks()))
    assert left.equals(rest.combine_chunks())


def test_retention_overtakes_a_reader(data: Path, client: Client) -> None:
    client.create_topic(TOPIC, partitions=1, segment_bytes=SMALL_SEGMENT)
    while len(log_files(data)) < 6:
        fill(client)
    log = LogDirectory(str(data))
    [wanted] = ranges_in(log)
    chunks, lax = (
        LogDirectory(str(data)).chunks(wanted, is_loss_fatal=is_fatal) for is_fatal in (True, False)
    )
    first = next(chunks)
    next(lax)

    client.configure_topic(TOPIC, retention_bytes=2 * SMALL_SEGMENT)
    wait_for(lambda: client.describe_topic(TOPIC).partitions[0].start_offset > first.end_offset)
    start = client.describe_topic(TOPIC).partitions[0].start_offset

    with pytest.raises(DataLossError, match="were deleted by retention; set failOnDataLoss"):
        list(chunks)
    rest = list(lax)
    assert rest[-1].end_offset == wanted.end_offset
    assert any(chunk.start_offset == start for chunk in rest)


def test_compaction_passes_under_a_reader(data: Path, client: Client) -> None:
    """One that began before goes on behind, and misses the last value of no key."""
    client.create_topic(
        TOPIC,
        partitions=1,
        segment_bytes=SMALL_SEGMENT,
        cleanup_policy="compact",
        min_dirty_ratio=0.9,
    )
    with client.producer(TOPIC, batch_bytes=4_096) as producer:
        for number in range(8_000):
            producer.send(b"%d" % number, key=b"k%d" % (number % 50))
        producer.send(None, key=b"k0")
    log = LogDirectory(str(data))
    [wanted] = ranges_in(log)
    chunks = LogDirectory(str(data)).chunks(wanted, is_loss_fatal=True)
    held = [next(chunks)]
    count = len(log_files(data))

    client.configure_topic(TOPIC, min_dirty_ratio=0.01)
    wait_for(lambda: len(log_files(data)) < count)
    held += chunks
    table = ordered(list(RowMapping(SCHEMA.names).batches_in(held)))
    latest = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))

    offsets = table["offset"].to_pylist()
    assert offsets == sorted(set(offsets))
    assert latest == {b"k%d" % key: b"%d" % (7_950 + key) for key in range(1, 50)} | {b"k0": None}
    wait_for(lambda: by_files(data).equals(by_broker(client)))


def test_reading_while_it_is_written(data: Path, client: Client) -> None:
    """Every look finds a beginning of the log, none shorter than the one before."""
    client.create_topic(TOPIC, partitions=1, segment_bytes=SMALL_SEGMENT)
    is_over = threading.Event()
    sent = [0]

    def write() -> None:
        with client.producer(TOPIC, linger_ms=0) as producer:
            while not is_over.is_set():
                producer.send(b"%d" % sent[0], key=b"k").result()
                sent[0] += 1
                for _ in range(50):
                    producer.send(b"%d" % sent[0], key=b"k")
                    sent[0] += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = 0
        while seen < 5_000:
            acked = sent[0] - 51
            values = by_files(data)["value"].to_pylist()
            assert values == [b"%d" % number for number in range(len(values))]
            assert len(values) >= max(seen, acked)
            seen = len(values)
    finally:
        is_over.set()
        writer.join()
    assert by_files(data).equals(by_broker(client))


def test_what_is_not_there_is_said(data: Path, client: Client, tmp_path: Path) -> None:
    client.create_topic(TOPIC, partitions=1)
    fill(client)
    log = LogDirectory(str(data))
    [wanted] = ranges_in(log)

    assert TOPIC in log.topics()
    with pytest.raises(TopicNotFoundError, match="topic not found: nowhere"):
        log.offsets("nowhere")
    with pytest.raises(StorageFailedError, match="is no data directory"):
        LogDirectory(str(tmp_path / "none")).topics()
    client.delete_topic(TOPIC)
    with pytest.raises(TopicNotFoundError, match="is not there"):
        list(LogDirectory(str(data)).chunks(wanted, is_loss_fatal=True))
    client.create_topic(TOPIC, partitions=1)
    with pytest.raises(DataLossError, match="the topic was made anew"):
        list(LogDirectory(str(data)).chunks(wanted, is_loss_fatal=True))


class TestThroughSpark:
    """The option ``logdir`` of a real session."""

    @pytest.fixture
    def filled(self, data: Path, client: Client) -> Path:
        client.create_topic(TOPIC, partitions=3, segment_bytes=SMALL_SEGMENT)
        fill(client)
        transact(client, "gone", "abort")
        fill(client)
        return data

    def load(self, spark: SparkSession, data: Path, **options: str) -> DataFrame:
        reader = spark.read.format("goqueue").options(logdir=str(data), subscribe=TOPIC)
        return reader.options(**options).load()

    def test_the_same_rows(self, spark: SparkSession, filled: Path, client: Client) -> None:
        expected = by_broker(client)

        found = self.load(spark, filled, minPartitions="4").toArrow()
        found = found.sort_by([("partition", "ascending"), ("offset", "ascending")])

        assert found.cast(SCHEMA).combine_chunks().equals(expected)

    def test_filters_and_columns(self, spark: SparkSession, filled: Path) -> None:
        where = "offset >= 100 AND partition IN (0, 2) AND timestamp > '2026-01-03'"
        expected = self.load(spark, filled).where(where).select("partition", "offset").collect()
        narrow = spark.read.format("goqueue").options(logdir=str(filled), subscribe=TOPIC)

        assert expected
        assert narrow.schema("offset BIGINT").load().count() == self.load(spark, filled).count()

    def test_what_is_wrong_is_said(self, spark: SparkSession, filled: Path) -> None:
        with pytest.raises(PySparkException, match="is no data directory of a broker"):
            self.load(spark, filled / "logs").collect()
        with pytest.raises(PySparkException, match="is not a whole path"):
            self.load(spark, Path("data")).collect()
        shutil.rmtree(filled / "logs" / TOPIC / "1")
        with pytest.raises(PySparkException, match="logs/orders/1 is not there"):
            self.load(spark, filled).collect()
