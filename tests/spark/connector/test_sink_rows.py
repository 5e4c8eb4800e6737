"""Columns of a DataFrame become stored batches, and what cannot be written is refused."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from mmh3 import mmh3_32_uintdigest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from goqueue.base.errors import InvalidRequestError, PartitionNotFoundError
from goqueue.spark.connector.options import OptionsError
from goqueue.spark.connector.sink_rows import SinkRows, check_columns, stored_batch

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


VALUE: dict[str, DataType] = {"value": BinaryType()}


@pytest.mark.parametrize(
    ("columns", "topic", "told"),
    [
        ({"key": BinaryType()}, "t", "no column 'value'"),
        (VALUE, None, "say where to"),
        ({"value": IntegerType()}, "t", "column 'value' is int; it must be string or binary"),
        ({**VALUE, "extra": IntegerType()}, "t", "unknown columns ['extra']"),
        ({**VALUE, "deliver_at": TimestampType(), "delay_ms": IntegerType()}, "t", "contradict"),
        ({**VALUE, "headers": StringType()}, "t", "must be map or array"),
    ],
)
def test_a_data_frame_is_refused(
    columns: dict[str, DataType], topic: str | None, told: str
) -> None:
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])

    with pytest.raises(OptionsError) as raised:
        check_columns(schema, topic=topic)

    assert told in raised.value.message


def test_rows_without_much_make_the_smallest_batch() -> None:
    """Columns that say nothing are not stored."""
    batch = pa.record_batch(
        {
            "value": pa.array(["a", None]),
            "headers": pa.nulls(2, pa.map_(pa.string(), pa.binary())),
            "priority": pa.nulls(2, pa.int32()),
        }
    )

    stored = stored_batch(batch)

    assert stored.schema.names == ["key", "value", "timestamp"]
    assert stored.column("value").to_pylist() == [b"a", None]


def test_everything_a_message_can_have_is_taken() -> None:
    batch = pa.record_batch(
        {
            "key": pa.array(["k", None]),
            "value": pa.array([b"a", b"b"]),
            "headers": pa.array(
                [[{"key": "x", "value": b"1"}, {"key": "y", "value": None}], None],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
            "priority": pa.array([4, None], pa.int32()),
            "timestamp": pa.array([MOMENT, MOMENT], pa.timestamp("us", "UTC")),
            "delay_ms": pa.array([None, 5], pa.int64()),
        }
    )

    stored = stored_batch(batch)

    assert stored.column("key").to_pylist() == [b"k", None]
    assert stored.column("headers").to_pylist() == [[("x", b"1"), ("y", None)], None]
    assert stored.column("priority").to_pylist() == [4, 2]
    assert stored.column("timestamp").to_pylist() == [MOMENT, MOMENT]
    assert stored.column("deliver_at").null_count == 1


def test_a_priority_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="priority: 9 is not between 0 and 4"):
        stored_batch(pa.record_batch({"value": pa.array(["a"]), "priority": pa.array([9])}))


def test_partitions_go_by_key_and_rows_without_take_turns() -> None:
    """The same key goes where every other client sends it."""
    keys = [b"a", None, b"b", None, None]
    batch = pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array([b"v"] * 5)})

    [(topic, _, numbers)] = SinkRows("t", lambda _: 4).cut(batch)

    turns = numbers[[1, 3, 4]]
    assert topic == "t"
    assert numbers[0] == mmh3_32_uintdigest(b"a") % 4
    assert numbers[2] == mmh3_32_uintdigest(b"b") % 4
    assert len(np.unique(turns)) == 3


def test_a_chosen_partition_comes_before_the_key() -> None:
    batch = pa.record_batch(
        {
            "key": pa.array([b"a", b"a"]),
            "value": pa.array([b"v", b"v"]),
            "partition": pa.array([3, None], pa.int32()),
        }
    )

    [(_, _, numbers)] = SinkRows("t", lambda _: 4).cut(batch)

    assert numbers.tolist() == [3, mmh3_32_uintdigest(b"a") % 4]


@pytest.mark.parametrize("partition", [4, -2])
def test_a_partition_that_is_not_there_is_refused(partition: int) -> None:
    batch = pa.record_batch({"value": pa.array([b"v"]), "partition": pa.array([partition])})

    with pytest.raises(PartitionNotFoundError, match=f"invalid partition {partition}"):
        list(SinkRows("t", lambda _: 4).cut(batch))


def test_rows_go_to_the_topics_they_name() -> None:
    batch = pa.record_batch(
        {"topic": pa.array(["a", "b", None, "a"]), "value": pa.array([b"1", b"2", b"3", b"4"])}
    )

    cut = list(SinkRows("b", lambda _: 1).cut(batch))

    found = {topic: rows.column("value").to_pylist() for topic, rows, _ in cut}
    assert found == {"a": [b"1", b"4"], "b": [b"2", b"3"]}


def test_a_row_without_topic_is_refused() -> None:
    batch = pa.record_batch({"topic": pa.array(["a", None]), "value": pa.array([b"1", b"2"])})

    with pytest.raises(InvalidRequestError, match="a row has no topic"):
        list(SinkRows(None, lambda _: 1).cut(batch))


def test_a_topic_that_is_no_name_is_refused() -> None:
    batch = pa.record_batch({"topic": pa.array(["../a"]), "value": pa.array([b"1"])})

    with pytest.raises(InvalidRequestError, match="may only contain"):
        list(SinkRows(None, lambda _: 1).cut(batch))
