"""Outputs that share a reading, on a real session against a real broker."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from goqueue.client.sync import Client
from goqueue.spark.pipelines.bind import Surroundings
from goqueue.spark.pipelines.lake_read import read_lake
from goqueue.spark.pipelines.state import StateFolder
from tests.spark.pipelines.reading import Run, values

SHARED = """
name: shared
sources:
  orders:
    topic: TOPIC
    schema: id INT, name STRING
    rows_max: 60
    watermark: {column: timestamp, delay: 1m}
  people: {json: ./people}
transforms:
  known: {sql: "SELECT o.*, p.country FROM orders o JOIN people p ON o.name = p.who"}
  minutes:
    from: orders
    window: {column: timestamp, size: 1m, aggregate: {n: count(*)}}
expectations:
  orders: [{name: readable, that: id IS NOT NULL, else: quarantine}]
  known: [{name: even, that: id % 2 = 0, else: drop}]
sinks:
  out: {from: known, topic: TOPIC-out, value: "CAST(id AS STRING)", partitions: 2}
  lake: {from: orders, lake: ./lake, partition_by: [topic]}
  table: {from: known, table: ./table, key: country, latest_by: id}
  minutes: {from: minutes, topic: TOPIC-minutes, partitions: 1}
"""


def test_several_outputs_read_a_topic_once(
    client: Client, topic: str, around: Surroundings, run_text: Run, tmp_path: Path
) -> None:
    """Every row once in every output, also of a batch that comes again; left out rows count."""
    text = SHARED.replace("TOPIC", topic)
    people = [{"who": name, "country": country} for name, country in (("a", "AT"), ("b", "DE"))]
    (tmp_path / "people").mkdir()
    (tmp_path / "people" / "1.json").write_text("\n".join(map(json.dumps, people)))
    for name in (f"{topic}-out", f"{topic}-minutes", f"{topic}.dlq"):
        client.create_topic(name, partitions=2)
    now = datetime.now(UTC)

    def send(first: int, count: int, at: datetime) -> None:
        with client.producer(topic) as producer:
            for number in range(first, first + count):
                body = {"id": number if number % 10 else None, "name": "abc"[number % 3]}
                producer.send(json.dumps(body).encode(), key=b"k%d" % (number % 7), timestamp=at)

    send(0, 100, now)
    first = run_text(text)
    send(100, 50, now - timedelta(hours=1))
    second = run_text(text)
    folder = StateFolder(tmp_path / "state", "shared")
    # What a crash between our commits and Spark's own leaves: the batch is not done for Spark.
    commits = folder.shared.checkpoint("orders-1") / "commits"
    max(commits.glob("[0-9]*"), key=lambda one: int(one.name)).unlink()
    again = run_text(text)

    good = [number for number in range(150) if number % 10]
    even = [number for number in good if number % 2 == 0 and number % 3 != 2]
    assert folder.shared.all() == {"orders-1": ["out", "lake", "table", "quarantine_orders"]}
    assert folder.alone() == ["minutes"]
    for state, rows in ((first, 100), (second, 50)):
        assert {name: query.rows for name, query in state.queries.items()} == dict.fromkeys(
            ("out", "lake", "table", "minutes", "quarantine_orders"), rows
        )
    assert again.state == "done"
    assert Counter(values(client, f"{topic}-out")) == Counter(even)
    lake = read_lake(around.spark, str(tmp_path / "lake")).select("id").collect()
    assert Counter(row["id"] for row in lake) == Counter(good)
    table = read_lake(around.spark, str(tmp_path / "table")).select("country", "id").collect()
    assert {row["country"]: row["id"] for row in table} == {
        "AT": max(number for number in even if number % 3 == 0),
        "DE": max(number for number in even if number % 3 == 1),
    }
    assert len(list(client.read(f"{topic}.dlq"))) == 15
    odd = [number for number in good if number % 2 and number % 3 != 2]
    assert first.violations == {
        "orders: readable": 10,
        "known: even": len([number for number in odd if number < 100]),
    }
    assert first.queries["minutes"].late_rows == 0
    assert second.queries["minutes"].late_rows > 0
