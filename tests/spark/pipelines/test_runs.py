"""Pipelines on a real session against a real broker: counted, compared byte for byte."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from goqueue import Message
from goqueue.base.ids import Offset, PartitionId
from goqueue.client.sync import Client
from goqueue.spark.pipelines import jobs
from goqueue.spark.pipelines.bind import Surroundings
from goqueue.spark.pipelines.lake_read import read_lake
from goqueue.spark.pipelines.load import Loaded, load, parse_text
from goqueue.spark.pipelines.outputs import analyse
from goqueue.spark.pipelines.problems import PipelineError
from goqueue.spark.pipelines.run import PipelineFailedError, RunOptions, run
from goqueue.spark.pipelines.spec import Mode
from tests.spark.pipelines.reading import Run, content, values


def test_a_topic_goes_to_a_lake_and_back(
    client: Client, topic: str, around: Surroundings, options: RunOptions, tmp_path: Path
) -> None:
    """Byte for byte and in order, over two runs, a compaction and a paced, resumed replay."""
    start = datetime.now(UTC) - timedelta(hours=5)
    lake = str(tmp_path / "lake")

    def send(first: int, count: int) -> None:
        with client.producer(topic) as producer:
            for number in range(first, first + count):
                producer.send(
                    None if number % 11 == 5 else bytes([number % 256]) * (number % 50),
                    key=None
                    if number % 7 == 0
                    else b""
                    if number % 7 == 1
                    else b"%d" % (number % 7),
                    headers={"n": b"%d" % number, "": b""} if number % 2 else None,
                    priority=number % 5,
                    timestamp=start + timedelta(minutes=number),
                )

    send(0, 100)
    first = jobs.archive(around, [topic], lake, options=options)
    send(100, 100)
    second = jobs.archive(around, [topic], lake, options=options)
    idle = jobs.archive(around, [topic], lake, options=options)
    rows = read_lake(around.spark, lake)
    hours = {row["hour"] for row in rows.select("hour").distinct().collect()}
    stored = list(client.read(topic))
    client.create_topic(f"{topic}-again", partitions=3)
    client.create_topic(f"{topic}-some", partitions=1)
    blanks = {"lake": lake, "topic": f"{topic}-again"}
    whole = jobs.replay(around, blanks, rate=60, options=options)
    nothing = jobs.replay(around, blanks, options=options)
    replayed = list(client.read(f"{topic}-again"))
    some = {
        "lake": lake,
        "topic": f"{topic}-some",
        "since": (start + timedelta(minutes=50)).isoformat(),
        "until": (start + timedelta(minutes=150)).isoformat(),
        "where": f"key = X'33' AND topic = '{topic}'",
    }
    trial = jobs.replay_rows(around, some).count()
    jobs.replay(around, some, options=options)
    chosen = [one for one in stored if one.key == b"3" and 50 <= _minute(one, start) < 150]

    assert [one.queries["lake"].rows for one in (first, second, idle)] == [100, 100, 0]
    assert rows.count() == 200
    assert len(hours) in {4, 5}
    assert (whole.state, whole.queries["topic"].rows) == ("done", 200)
    assert whole.queries["topic"].batches > 1
    assert nothing.queries["topic"].rows == 0
    assert _by_lane(replayed) == _by_lane(stored)
    place = {(one.partition, one.offset): one for one in stored}
    for one in replayed:
        headers = one.headers or {}
        name, partition, offset = headers["goqueue-original-place"].decode().rsplit("/", 2)
        original = place[PartitionId(int(partition)), Offset(int(offset))]
        moment = datetime.fromisoformat(headers["goqueue-original-timestamp"].decode())
        assert name == topic
        assert moment == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
            microseconds=original.timestamp_us
        )
    assert trial == len(chosen)
    assert [content(one) for one in client.read(f"{topic}-some")] == [
        content(one) for one in sorted(chosen, key=lambda one: (one.partition, one.offset))
    ]


def _minute(message: Message, start: datetime) -> int:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=message.timestamp_us)
    return round((moment - start).total_seconds() / 60)


def _by_lane(messages: list[Message]) -> dict[bytes, list[tuple[object, ...]]]:
    """Return the messages of each key in their order; those without one as a set."""
    lanes: dict[bytes, list[tuple[object, ...]]] = {}
    for one in messages:
        if one.key is not None:
            lanes.setdefault(one.key, []).append(content(one))
    lanes[b"(none)"] = sorted((content(one) for one in messages if one.key is None), key=repr)
    return lanes


def test_files_to_topic_to_table(
    client: Client, topic: str, around: Surroundings, options: RunOptions, tmp_path: Path
) -> None:
    """Each file once; the table has the last row of each key, and deleted ones not at all."""
    files = tmp_path / "files"
    files.mkdir()
    lines = [json.dumps({"user": f"u{n % 5}", "n": n}) for n in range(50)]
    (files / "a.json").write_text("\n".join(lines))
    target = {"path": str(files), "topic": topic, "key": "user"}
    first = jobs.backfill(around, **target, options=options)
    table = str(tmp_path / "table")
    jobs.materialize(around, [topic], table, options=options)
    before = {
        row["key"]: json.loads(row["value"]) for row in read_lake(around.spark, table).collect()
    }
    (files / "b.json").write_text(json.dumps({"user": "u1", "n": 1_000}))
    second = jobs.backfill(around, **target, options=options)
    with client.producer(topic) as producer:
        producer.send(None, key=b"u0")
    jobs.materialize(around, [topic], table, options=options)
    jobs.materialize(around, [topic], table, options=options)
    after = {
        bytes(row["key"]): json.loads(row["value"])
        for row in around.spark.read.parquet(f"{table}/current").collect()
    }

    assert (first.queries["topic"].rows, second.queries["topic"].rows) == (50, 1)
    assert {key: row["n"] for key, row in before.items()} == {b"u%d" % n: 45 + n for n in range(5)}
    assert {key: row["n"] for key, row in after.items()} == {
        b"u1": 1_000,
        b"u2": 47,
        b"u3": 48,
        b"u4": 49,
    }


SHOP = """
from pyspark.sql import functions as F
from pyspark.sql.types import StringType
from goqueue.spark.pipelines import Definition

def shout(text):
    return text.upper() + "!"

pipeline = Definition("shop")
pipeline.source("orders", topic="TOPIC", schema="id BIGINT, name STRING",
                watermark={"column": "timestamp", "delay": "10m"})
pipeline.source("people", json="people")
pipeline.step("unique", source="orders", dedup={"by": ["id"]})
pipeline.sql("known", "SELECT u.*, country FROM unique u JOIN people p USING (name)")

@pipeline.transform
def loud(known):
    return known.withColumn("name", F.udf(shout, StringType())("name"))

pipeline.step("minutes", source="loud", window={
    "column": "timestamp", "size": "1m", "by": ["country"],
    "aggregate": {"orders": "count(*)"}})
pipeline.sink("loud", source="loud", lake="lake", partition_by=["country"])
pipeline.sink("counts", source="minutes", topic="TOPIC-counts", output="append")
"""


def test_python_joins_windows_and_duplicates(
    client: Client, topic: str, around: Surroundings, options: RunOptions, tmp_path: Path
) -> None:
    """A Python file with functions of its own in workers, a join, a dedup and a window."""
    around.spark.createDataFrame(
        [("a", "AT"), ("b", "DE")], "name STRING, country STRING"
    ).write.json(str(tmp_path / "people"))
    file = tmp_path / "shop.py"
    file.write_text(SHOP.replace("TOPIC", topic))
    client.create_topic(f"{topic}-counts", partitions=1)
    old = datetime.now(UTC) - timedelta(hours=1)
    with client.producer(topic) as producer:
        for number in range(30):
            body = {"id": number // 2, "name": "abc"[number % 3]}
            producer.send(json.dumps(body).encode(), key=b"k", timestamp=old)
        producer.send(b'{"id": 99, "name": "a"}', key=b"k")
    loaded = load(file)
    state = run(loaded, around, options)
    rows = read_lake(around.spark, str(tmp_path / "lake")).select("id", "name", "country").collect()
    counts = values(client, f"{topic}-counts")

    unique = [(n, "abc"[2 * n % 3]) for n in range(15)] + [(99, "a")]
    expected = {(n, f"{name.upper()}!") for n, name in unique if name != "c"}
    assert state.state == "done"
    assert {(row["id"], row["name"]) for row in rows} == expected
    assert len(rows) == len(expected)
    assert {one["country"]: one["orders"] for one in counts} == {"AT": 5, "DE": 5}


TOTALS = "SELECT name, sum(n) AS n FROM orders GROUP BY name"


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_topic_takes_updates(
    client: Client, topic: str, run_text: Run, tmp_path: Path, delivery: str
) -> None:
    """A row for every group that changed; a batch that comes again is written once."""
    target = f"{topic}-totals"
    client.create_topic(target, partitions=1)
    text = f"""
        name: totals
        sources: {{orders: {{topic: {topic}, schema: "name STRING, n INT"}}}}
        transforms: {{totals: {{sql: "{TOTALS}"}}}}
        sinks: {{out: {{from: totals, topic: {target}, key: name, output: update,
                 delivery: {delivery}}}}}
    """
    for bodies in ([("a", 1), ("a", 1), ("b", 1)], [("b", 5)]):
        with client.producer(topic) as producer:
            for name, number in bodies:
                producer.send(json.dumps({"name": name, "n": number}).encode())
        run_text(text)
    # What a crash between our commit and Spark's own leaves: the batch is not done for Spark.
    commits = sorted((tmp_path / "state" / "totals").glob("**/commits/[0-9]*"))
    commits[-1].unlink()
    run_text(text)
    totals = [(one["name"], one["n"]) for one in values(client, target)]

    first, second = sorted(totals[:2]), totals[2:]
    assert first == [("a", 2), ("b", 1)]
    assert second == [("b", 6)] * (1 if delivery == "exactly-once" else 2)


def test_a_topic_takes_whole_results(client: Client, topic: str, run_text: Run) -> None:
    """Every row of the result with every batch, also those that did not change."""
    target = f"{topic}-totals"
    client.create_topic(target, partitions=1)
    text = f"""
        name: whole
        sources: {{orders: {{topic: {topic}, schema: "name STRING, n INT"}}}}
        transforms: {{totals: {{sql: "{TOTALS}"}}}}
        sinks: {{out: {{from: totals, topic: {target}, key: name, output: complete}}}}
    """
    for bodies in ([("a", 1), ("b", 1)], [("b", 5)]):
        with client.producer(topic) as producer:
            for name, number in bodies:
                producer.send(json.dumps({"name": name, "n": number}).encode())
        run_text(text)
    totals = [(one["name"], one["n"]) for one in values(client, target)]

    assert sorted(totals[:2]) == [("a", 1), ("b", 1)]
    assert sorted(totals[2:]) == [("a", 1), ("b", 6)]


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ("transforms: {x: {sql: SELECT nope FROM orders}}", "transforms.x: [UNRESOLVED_COLUMN"),
        (
            "expectations: {orders: [{that: amount >}]}",
            "expectations.orders[0].that: [PARSE_SYNTAX",
        ),
        (
            "transforms: {x: {sql: SELECT max(offset) AS m FROM orders}}",
            "sinks.out: [STREAMING_OUTPUT",
        ),
        (
            (
                "transforms: {x: {sql: SELECT offset + 1 AS n FROM orders}}\n"
                "expectations: {x: [{that: n > 0, else: quarantine}]}"
            ),
            "expectations.x[0]: its rows are no messages any more",
        ),
        ("transforms: {x: {sql: SELECT * FROM orders, from: [orders, files]}}", "sources.files: "),
    ],
    ids=["column", "rule", "streaming", "letters", "files"],
)
def test_spark_looks_at_everything_before_it_runs(
    topic: str, around: Surroundings, tmp_path: Path, parts: str, problem: str
) -> None:
    """What Spark would refuse is told with the part it is about, without starting a query."""
    sink = "x" if "x:" in parts else "orders"
    text = (
        f"sources: {{orders: {{topic: {topic}}}, files: {{parquet: nowhere}}}}\n"
        f"{parts}\nsinks: {{out: {{from: {sink}, topic: {topic}}}}}"
    )
    loaded = Loaded(pipeline=parse_text(text, folder=str(tmp_path)))

    with pytest.raises(PipelineError) as caught:
        analyse(loaded, around, Mode.AVAILABLE_NOW)
    assert problem in str(caught.value)
    assert "\tat " not in str(caught.value)


WRONG = """
sources: {orders: {topic: TOPIC}, twin: {topic: TOPIC}}
transforms:
  lost: {sql: SELECT nope FROM orders}
  after: {sql: SELECT * FROM lost}
  numbers: {sql: SELECT offset + 1 AS n FROM orders}
expectations:
  twin: [{that: amount >}]
  numbers: [{that: n > 0, else: quarantine}]
sinks:
  a: {from: after, topic: TOPIC}
  b: {from: twin, topic: TOPIC}
  c: {from: numbers, lake: lake, partition_by: [country]}
"""


def test_spark_says_everything_at_once(topic: str, around: Surroundings, tmp_path: Path) -> None:
    """A column, a rule, a quarantine and a sink that are wrong are told together."""
    text = WRONG.replace("TOPIC", topic)
    loaded = Loaded(pipeline=parse_text(text, folder=str(tmp_path)))

    with pytest.raises(PipelineError) as caught:
        analyse(loaded, around, Mode.AVAILABLE_NOW)
    assert [one.path for one in caught.value.problems] == [
        "transforms.lost",
        "expectations.twin[0].that",
        "expectations.numbers[0]",
        "sinks.c",
    ]


def test_failures_stop_a_run_and_are_explained(
    client: Client, topic: str, run_text: Run, tmp_path: Path
) -> None:
    """A rule that fails names the row; Delta that is not there is said so; nothing is written."""
    with client.producer(topic) as producer:
        producer.send(b'{"amount": 5}', key=b"good")
        producer.send(b'{"amount": -5}', key=b"bad")
    text = (
        f"name: strict\nsources: {{orders: {{topic: {topic}, schema: amount INT}}}}\n"
        "expectations: {orders: [{name: positive, that: amount > 0, else: fail}]}\n"
    )
    with pytest.raises(
        PipelineFailedError, match=r"expectation 'positive' of orders is broken"
    ) as it:
        run_text(f"{text}sinks: {{lake: {{from: orders, lake: lake}}}}")
    with pytest.raises(PipelineError, match="this session has no Delta"):
        run_text(f"{text}sinks: {{lake: {{from: orders, delta: lake}}}}")

    assert '"amount":-5' in str(it.value)
    assert not list((tmp_path / "lake").glob("*.parquet"))
    state = json.loads((tmp_path / "state" / "strict" / "state.json").read_text())
    assert state["state"] == "failed"
