"""Where a stream begins by time, and when a micro-batch is worth while; without a session."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from goqueue.base.errors import OffsetOutOfRangeError, PartitionNotFoundError
from goqueue.client.sync import Client
from goqueue.spark.connector.broker import Broker
from goqueue.spark.connector.columns import SPARK_SCHEMA
from goqueue.spark.connector.options import OptionsError, read_options
from goqueue.spark.connector.reader import plan
from goqueue.spark.connector.stream import Json, StreamReader
from tests.acceptance.served import Served

Publish = Callable[..., None]
DAYS = [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 10)]


def milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000)


def reader(broker: Served, topic: str, **options: object) -> StreamReader:
    given = {"servers": broker.address, "subscribe": topic}
    chosen = {name: str(value) for name, value in options.items()}
    return StreamReader(read_options(given | chosen, is_stream=True), SPARK_SCHEMA)


def rows(offsets: Json) -> int:
    return sum(offset for parts in offsets.values() for offset in parts.values())


class TestTimes:
    @pytest.fixture
    def filled(self, client: Client, topic: str) -> str:
        """Three messages a day in each of three partitions, for five days."""
        with client.producer(topic) as producer:
            for moment in DAYS[:5]:
                for number in range(9):
                    producer.send(b"x", partition=number % 3, timestamp=moment)
        return topic

    def test_each_partition_begins_at_its_own_time(self, broker: Served, filled: str) -> None:
        """At the first message that is not earlier; at the end where there is none."""
        times = {filled: {"0": milliseconds(DAYS[1]), "1": milliseconds(DAYS[8])}}

        found = reader(broker, filled, startingOffsetsByTimestamp=json.dumps(times)).initialOffset()

        assert found == {filled: {"0": 3, "1": 15, "2": 0}}

    def test_a_batch_ends_at_times(self, broker: Served, filled: str) -> None:
        given = {
            "servers": broker.address,
            "subscribe": filled,
            "startingOffsetsByTimestamp": json.dumps({filled: {"2": milliseconds(DAYS[3])}}),
            "endingOffsetsByTimestamp": json.dumps({filled: {"0": milliseconds(DAYS[1])}}),
        }
        options = read_options(given, is_stream=False)

        found = plan(Broker(options.connection), options)

        assert [(one.start_offset, one.end_offset) for one in found] == [(0, 3), (0, 15), (9, 15)]

    def test_a_time_behind_everything_may_be_an_error(self, broker: Served, filled: str) -> None:
        late = milliseconds(DAYS[8])
        times = json.dumps({filled: {"1": late}})
        strict = {"startingOffsetsByTimestampStrategy": "error"}

        with pytest.raises(OffsetOutOfRangeError, match=f"{filled}/1 has no message at or after"):
            reader(broker, filled, startingOffsetsByTimestamp=times, **strict).initialOffset()
        with pytest.raises(OffsetOutOfRangeError, match="has no message at or after"):
            reader(broker, filled, startingTimestamp=late, **strict).initialOffset()

    def test_what_is_not_read_has_no_time(self, broker: Served, filled: str) -> None:
        other, partition = json.dumps({"other": {"0": 1}}), json.dumps({filled: {"7": 1}})

        with pytest.raises(OptionsError, match="other: not to be read"):
            reader(broker, filled, startingOffsetsByTimestamp=other).initialOffset()
        with pytest.raises(PartitionNotFoundError, match=r"has no partition \[7\]"):
            reader(broker, filled, startingOffsetsByTimestamp=partition).initialOffset()


class TestTriggers:
    def test_few_rows_wait_for_more(self, broker: Served, topic: str, publish: Publish) -> None:
        """The first micro-batch takes what there is; a later one waits until it is enough."""
        stream = reader(broker, topic, startingOffsets="earliest", minOffsetsPerTrigger=10)
        limit = stream.getDefaultReadLimit()
        publish(4)
        first = stream.latestOffset(stream.initialOffset(), limit)
        publish(6, first=4)

        few = stream.latestOffset(first, limit)
        publish(4, first=10)
        many = stream.latestOffset(first, limit)

        assert limit == ReadMinRows(10)
        assert [rows(one) for one in (first, few, many)] == [4, 4, 14]

    def test_a_delay_ends_the_waiting(self, broker: Served, topic: str, publish: Publish) -> None:
        trigger = {"minOffsetsPerTrigger": 10, "maxTriggerDelay": "1ms"}
        stream = reader(broker, topic, startingOffsets="earliest", **trigger)
        publish(4)
        first = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
        publish(2, first=4)

        later = stream.latestOffset(first, stream.getDefaultReadLimit())

        assert [rows(first), rows(later)] == [4, 6]

    def test_a_run_that_takes_what_there_is_waits_for_nothing(
        self, broker: Served, topic: str, publish: Publish
    ) -> None:
        """``availableNow`` and ``once`` would never end otherwise."""
        trigger = {"minOffsetsPerTrigger": 10, "maxOffsetsPerTrigger": 50}
        stream = reader(broker, topic, startingOffsets="earliest", **trigger)
        publish(4)
        first = stream.latestOffset(stream.initialOffset(), ReadMaxRows(50))
        publish(2, first=4)

        once = stream.latestOffset(first, ReadAllAvailable())
        stream.prepareForTriggerAvailableNow()
        available = stream.latestOffset(first, ReadMaxRows(50))

        assert stream.getDefaultReadLimit() == ReadMaxRows(50)
        assert [rows(one) for one in (first, once, available)] == [4, 6, 6]
