"""Options are checked all at once, before anything is read or written."""

import pytest

from goqueue.spark.connector.option_places import EARLIEST, LATEST
from goqueue.spark.connector.options import OptionsError, read_options, write_options

READ_FAULTS = [
    ({}, "say what to read"),
    ({"subscribe": "a", "assign": '{"a": [0]}'}, "subscribe and assign contradict"),
    ({"subscribe": "a", "subscribePatern": "b"}, "did you mean subscribePattern?"),
    ({"subscribe": "a", "whatever": "b"}, "'whatever' is not an option"),
    ({"subscribe": "../x"}, "subscribe: topic '../x' may only contain"),
    ({"subscribe": " , "}, "names no topic"),
    ({"subscribe": ",".join(f"t{n}" for n in range(1_001))}, "the limit is 1000"),
    ({"subscribePattern": "("}, "is not a regular expression"),
    ({"subscribePattern": "x" * 1_001}, "the limit is 1000"),
    ({"assign": '{"a": ["0"]}'}, "must have a list of partition numbers"),
    ({"assign": "[1]"}, "is not"),
    ({"subscribe": "a", "startingOffsets": "later"}, "startingOffsets: 'later' is not"),
    ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "is not an offset"),
    ({"subscribe": "a", "startingOffsets": '{"a": {"x": 3}}'}, "is not a partition number"),
    ({"subscribe": "a", "startingOffsets": '{"a": 3}'}, "an offset for each partition"),
    ({"subscribe": "a", "endingOffsets": "earliest"}, "'earliest' is no end"),
    ({"subscribe": "a", "endingOffsets": '{"a": {"0": -2}}'}, "is not an offset"),
    ({"subscribe": "a", "startingTimestamp": "1", "startingOffsets": "latest"}, "contradict"),
    ({"subscribe": "a", "startingTimestamp": "yesterday"}, "milliseconds since 1970"),
    (
        {"subscribe": "a", "startingOffsetsByTimestamp": "1"},
        "startingOffsetsByTimestamp: '1' is not",
    ),
    (
        {"subscribe": "a", "startingOffsetsByTimestamp": '{"a": {"0": -1}}'},
        "milliseconds since 1970",
    ),
    ({"subscribe": "a", "startingOffsetsByTimestamp": "{}"}, "names no topic"),
    (
        {"subscribe": "a", "endingOffsetsByTimestamp": '{"a": {"0": 1}}', "endingTimestamp": "1"},
        "endingTimestamp and endingOffsetsByTimestamp contradict",
    ),
    ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "x"}, "is none of error, latest"),
    ({"subscribe": "a", "minOffsetsPerTrigger": "5"}, "is for streams only"),
    ({"subscribe": "a", "maxTriggerDelay": "5m"}, "needs minOffsetsPerTrigger"),
    ({"subscribe": "a", "minPartitions": "0"}, "between 1 and 100000"),
    ({"subscribe": "a", "failOnDataLoss": "perhaps"}, "is none of true, false"),
    ({"subscribe": "a", "schema": "mine"}, "is none of registry, raw"),
    ({"subscribe": "a", "servers": "http://x"}, "is not a native address"),
    ({"subscribe": "a", "servers": "a:1", "logdir": "/x"}, "servers and logdir contradict"),
    ({"subscribe": "a", "maxOffsetsPerTrigger": "5"}, "is for streams only"),
    ({"subscribe": "a", "logdir": "x"}, "logdir: 'x' is not a whole path"),
    ({"subscribe": "a", "logdir": "/x", "schema": "registry"}, "needs a broker"),
]


@pytest.mark.parametrize(("given", "told"), READ_FAULTS)
def test_a_reader_refuses(given: dict[str, str], told: str) -> None:
    """What is wrong is named together with its option."""
    with pytest.raises(OptionsError) as raised:
        read_options(given, is_stream=False)

    assert told in raised.value.message


def test_a_stream_refuses_ends() -> None:
    with pytest.raises(OptionsError, match="endingOffsets is for batches only"):
        read_options({"subscribe": "a", "endingOffsets": "latest"}, is_stream=True)


def test_all_problems_are_told_at_once() -> None:
    """Nobody mends options one by one."""
    with pytest.raises(OptionsError) as raised:
        read_options({"topics": "a", "minPartitions": "x", "failOnDataLoss": "7"}, is_stream=False)

    assert raised.value.message.count(";") >= 3


def test_names_are_known_in_any_case() -> None:
    """Spark hands them over in lower case."""
    options = read_options(
        {
            "SUBSCRIBE": "orders, payments,orders",
            "startingoffsets": '{"orders": {"0": 23, "1": -2, "2": -1}}',
            "bootstrap.servers": "broker:7171,other:7171",
            "maxRecordsPerPartition": "10",
            "checkpointlocation": "/somewhere",
        },
        is_stream=False,
    )

    assert options.topics == ("orders", "payments")
    assert options.start == {"orders": {0: 23, 1: EARLIEST, 2: LATEST}}
    assert options.connection.servers == "broker:7171,other:7171"
    assert options.rows_per_task_max == 10


def test_a_batch_takes_all_and_a_stream_what_is_new() -> None:
    """As users of Spark's Kafka source know it."""
    batch = read_options({"subscribe": "a"}, is_stream=False)
    stream = read_options({"subscribe": "a"}, is_stream=True)

    assert (batch.start, batch.end) == (EARLIEST, LATEST)
    assert stream.start == LATEST


def test_a_pattern_matches_whole_names_and_no_internal_ones() -> None:
    options = read_options({"subscribePattern": "or.*|__.*"}, is_stream=False)

    assert options.wants("orders")
    assert not options.wants("my-orders")
    assert not options.wants("__schemas")


def test_options_that_sql_has_lost_are_told() -> None:
    """Spark keeps none of a table, so nothing else can be wrong."""
    with pytest.raises(OptionsError, match="Spark keeps no options of CREATE TABLE"):
        read_options({}, is_stream=None)
    with pytest.raises(OptionsError, match="a view to write to names its columns"):
        read_options({"topic": "a"}, is_stream=None)


@pytest.mark.parametrize(
    ("text", "delay_ms"), [("250", 250), ("250ms", 250), ("15 m", 900_000), ("2H", 7_200_000)]
)
def test_a_delay_has_a_unit(text: str, delay_ms: int) -> None:
    given = {"subscribe": "a", "minOffsetsPerTrigger": "9", "maxTriggerDelay": text}

    assert read_options(given, is_stream=True).trigger_delay_max_ms == delay_ms


STREAM_FAULTS = [
    ({"minOffsetsPerTrigger": "9", "maxTriggerDelay": "soon"}, "is not a time up to a week"),
    ({"minOffsetsPerTrigger": "9", "maxTriggerDelay": "8d"}, "is not a time up to a week"),
    ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is more than maxOffsetsPer"),
    ({"endingOffsetsByTimestamp": '{"a": {"0": 1}}'}, "is for batches only"),
]


@pytest.mark.parametrize(("given", "told"), STREAM_FAULTS)
def test_a_stream_refuses(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionsError) as raised:
        read_options({"subscribe": "a", **given}, is_stream=True)

    assert told in raised.value.message


WRITE_FAULTS = [
    ({"createTopic": "true"}, "between 1 and 10000"),
    ({"topic": "a b"}, "topic 'a b' may only contain"),
    ({"subscribe": "a"}, "'subscribe' is not an option"),
    ({"delivery": "twice"}, "is none of exactly-once, at-least-once"),
    ({"delivery": "at-least-once", "txnAppId": "x", "txnVersion": "1"}, "exactly-once only"),
    ({"txnAppId": "x" * 200, "txnVersion": "1"}, "the limit is 189"),
    ({"txnAppId": "x"}, "belong together"),
    ({"compression": "snappy"}, "is none of none, lz4, zstd"),
    ({"transactionTimeout": "901"}, "between 1 and 900"),
]


@pytest.mark.parametrize(("given", "told"), WRITE_FAULTS)
def test_a_writer_refuses(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionsError) as raised:
        write_options(given, is_stream=False)

    assert told in raised.value.message


def test_a_stream_counts_its_versions_by_itself() -> None:
    with pytest.raises(OptionsError, match="txnVersion is for batches only"):
        write_options({"txnAppId": "a", "txnVersion": "1"}, is_stream=True)
