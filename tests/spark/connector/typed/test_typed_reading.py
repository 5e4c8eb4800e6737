"""Typed columns through a real Spark from a real broker with its registry."""

import io
import json
from collections.abc import Iterable
from typing import Any

import fastavro
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from goqueue.client.sync import Client
from goqueue.core.schemas.proto_definition import ProtoDefinition
from goqueue.core.schemas.schema import Schema, SchemaType
from tests.acceptance.served import Served

SECONDS_MAX = 400
NUMBER = {"type": "integer"}
ORDER = {
    "type": "object",
    "properties": {"id": NUMBER, "name": {"type": "string"}, "key": {"type": "string"}},
}
BASE = ["topic", "partition", "offset", "timestamp", "key", "value", "headers", "priority"]


def load(spark: SparkSession, broker: Served, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("goqueue").option("servers", broker.address)
    return reader.options(subscribe=topic, schema="registry", **options).load()


def send(client: Client, topic: str, values: Iterable[bytes | None]) -> None:
    with client.producer(topic) as producer:
        for value in values:
            producer.send(value, partition=0)


def avro(root: dict[str, Any], schema_id: int, value: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(root), value)
    return b"\0" + schema_id.to_bytes(4, "big") + stream.getvalue()


def test_json_with_bad_rows(
    spark: SparkSession, broker: Served, client: Client, topic: str
) -> None:
    """Every row is there; one that cannot be read says why and what it was."""
    client.schemas.register(f"{topic}-value", ORDER)
    good = [json.dumps({"id": number, "name": f"n{number}"}).encode() for number in range(50)]
    send(client, topic, [*good, b"broken", b'{"id": "x", "key": "k"}', None, b'{"key": "k"}'])

    frame = load(spark, broker, topic)
    rows = frame.orderBy("offset").collect()

    assert frame.columns == [*BASE, "deliver_at", "id", "name", "key_", "_corrupt"]
    assert [(row.id, row.name, row["_corrupt"]) for row in rows[:50]] == [
        (number, f"n{number}", None) for number in range(50)
    ]
    assert (rows[50].id, rows[50].value) == (None, b"broken")
    assert rows[50]["_corrupt"].endswith(": broken")
    assert (
        rows[51]["_corrupt"]
        == 'Expected `int | null`, got `str` - at `$.id`: {"id": "x", "key": "k"}'
    )
    assert (rows[51].key_, rows[52]["_corrupt"], rows[53].key_) == (None, None, "k")


def test_json_that_names_an_unknown_schema_is_corrupt(
    spark: SparkSession, broker: Served, client: Client, topic: str
) -> None:
    """The id in front is asked for: an older version is read, what is no JSON schema is not."""
    older = client.schemas.register(f"{topic}-value", ORDER).id
    latest = client.schemas.register(f"{topic}-value", {**ORDER, "title": "order"}).id
    record = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
    other = client.schemas.register(f"{topic}-other", record, type="AVRO").id
    ids = [older, latest, other, 999_999]
    send(client, topic, [b"\0" + one.to_bytes(4, "big") + b'{"id": 1}' for one in ids])

    rows = load(spark, broker, topic).orderBy("offset").collect()

    assert [row.id for row in rows] == [1, 1, None, None]
    assert [(row["_corrupt"] or "").split(":")[0] for row in rows] == [
        "",
        "",
        f"schema {other} is of another language than the topic's",
        "there is no schema 999999",
    ]


def test_a_narrower_schema_reads_just_its_columns(
    spark: SparkSession, broker: Served, client: Client, topic: str
) -> None:
    client.schemas.register(topic, ORDER)
    send(client, topic, [b'{"id": 1, "name": "a"}', b'{"id": 2, "name": 5}', b"x"])
    reader = spark.read.format("goqueue").options(
        servers=broker.address, subscribe=topic, schema="registry"
    )

    ids = reader.schema("id BIGINT, offset BIGINT").load().orderBy("offset").collect()
    judged = reader.schema("offset BIGINT, _corrupt STRING").load().where("_corrupt IS NOT NULL")

    assert [tuple(row) for row in ids] == [(1, 0), (2, 1), (None, 2)]
    assert sorted(row.offset for row in judged.collect()) == [1, 2]
    with pytest.raises(PySparkException, match="column id is bigint, not string"):
        reader.schema("id STRING").load().collect()
    with pytest.raises(PySparkException, match="there is no column 'colour'"):
        reader.schema("colour STRING").load().collect()


def test_filters_on_typed_columns_and_others(
    spark: SparkSession, broker: Served, client: Client, topic: str
) -> None:
    """The same rows also in a session that would hand filters down."""
    client.schemas.register(topic, ORDER)
    send(client, topic, [json.dumps({"id": number}).encode() for number in range(50)] + [b"x"])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        rows = load(spark, broker, topic).where("offset >= 40 AND id % 2 = 0").collect()
        bad = load(spark, broker, topic).where("offset > 45 AND _corrupt IS NOT NULL").collect()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")

    assert sorted(row.id for row in rows) == [40, 42, 44, 46, 48]
    assert [row.value for row in bad] == [b"x"]


def test_avro_of_two_versions(
    spark: SparkSession, broker: Served, client: Client, topic: str
) -> None:
    """Messages of an old version are read by it, with the columns of the latest."""
    first = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    note = {"name": "note", "type": ["null", "string"], "default": None}
    second = {**first, "fields": [*first["fields"], note]}
    old = client.schemas.register(f"{topic}-value", first, type="AVRO")
    new = client.schemas.register(f"{topic}-value", second, type="AVRO")
    values = [avro(first, old.id, {"id": number}) for number in range(20)]
    values += [avro(second, new.id, {"id": number, "note": "n"}) for number in range(20, 40)]
    send(client, topic, [*values, b"\0\0\0\xff\xff\x02", b"\xff"])

    rows = load(spark, broker, topic).orderBy("offset").collect()

    assert [(row.id, row.note) for row in rows[:40]] == [
        (number, None if number < 20 else "n") for number in range(40)
    ]
    assert rows[40]["_corrupt"].startswith("there is no schema 65535: ")
    assert (rows[41].id, rows[41]["_corrupt"]) == (None, "/id: the message ends too early: \\xff")


def test_protobuf(spark: SparkSession, broker: Served, client: Client, topic: str) -> None:
    text = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
        import "google/protobuf/duration.proto";
        message Order { message Item { string sku = 1; uint64 count = 2; }
          int64 id = 1; repeated Item items = 2; map<string, int32> votes = 3;
          google.protobuf.Timestamp at = 4; google.protobuf.Duration took = 5; }"""
    client.schemas.register(topic, text, type="PROTOBUF")
    kind = ProtoDefinition(Schema(type=SchemaType.PROTOBUF, text=text), ()).message_class((0,))
    assert kind is not None
    full = kind(id=1, items=[{"sku": "a", "count": 2**64 - 1}], votes={"x": 1})
    full.at.FromSeconds(1_000)
    full.took.FromSeconds(90)
    send(client, topic, [full.SerializeToString(), b"\xff", b""])

    first, bad, empty = load(spark, broker, topic).orderBy("offset").collect()

    assert (first.id, first.votes, first.at.timestamp()) == (1, {"x": 1}, 1_000)
    assert [(item.sku, int(item["count"])) for item in first["items"]] == [("a", 2**64 - 1)]
    assert first.took.total_seconds() == 90
    assert bad.id is None
    assert "it is no Order" in bad["_corrupt"]
    assert (empty.id, empty["items"], empty.at, empty["_corrupt"]) == (0, [], None, None)


def test_a_stream_is_typed_too(
    spark: SparkSession, broker: Served, client: Client, topic: str, checkpoint: str
) -> None:
    """Over a restart; a topic that came to be meanwhile is read by its own schema."""
    client.schemas.register(topic, ORDER)
    send(client, topic, [b'{"id": 1}', b"bad"])

    def run(pattern: str) -> None:
        frame = (
            spark.readStream.format("goqueue")
            .options(servers=broker.address, subscribePattern=pattern, schema="registry")
            .options(startingOffsets="earliest", maxOffsetsPerTrigger="1")
            .load()
        )
        query = (
            frame.select("id", "_corrupt")
            .writeStream.format("parquet")
            .options(path=f"{checkpoint}.out", checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(SECONDS_MAX)

    run(f"{topic}.*")
    client.create_topic(f"{topic}-b", partitions=1)
    client.schemas.register(f"{topic}-b", ORDER)
    send(client, f"{topic}-b", [b'{"id": 2}'])
    run(f"{topic}.*")

    rows = spark.read.parquet(f"{checkpoint}.out").orderBy("id").collect()
    assert [row.id for row in rows] == [None, 1, 2]
    assert rows[0]["_corrupt"].endswith(": bad")


def test_several_topics_share_their_columns(
    spark: SparkSession, broker: Served, client: Client, topic: str
) -> None:
    other, odd = f"{topic}-other", f"{topic}-odd"
    record = {
        "type": "record",
        "name": "Other",
        "fields": [{"name": "id", "type": "int"}, {"name": "colour", "type": "string"}],
    }
    for name in (other, odd):
        client.create_topic(name, partitions=1)
    client.schemas.register(topic, ORDER)
    place = client.schemas.register(other, record, type="AVRO")
    client.schemas.register(odd, {"properties": {"id": {"type": "string"}}})
    send(client, topic, [b'{"id": 1, "name": "a"}'])
    send(client, other, [avro(record, place.id, {"id": 2, "colour": "red"})])

    both = load(spark, broker, f"{topic},{other}").select("id", "name", "colour").orderBy("id")

    assert [tuple(row) for row in both.collect()] == [(1, "a", None), (2, None, "red")]
    with pytest.raises(PySparkException, match=f"id is int64 by the schema of topic {topic}, and"):
        load(spark, broker, f"{topic},{odd}")


def test_what_has_no_columns_is_said(
    spark: SparkSession, broker: Served, client: Client, topic: str
) -> None:
    with pytest.raises(PySparkException, match=f"topic {topic} has none; register one as subject"):
        load(spark, broker, topic)
    client.schemas.register(topic, {"type": "string"})
    with pytest.raises(PySparkException, match="names no properties, so there are no columns"):
        load(spark, broker, topic)
    with pytest.raises(PySparkException, match="schema: 'avro' is none of registry, raw"):
        spark.read.format("goqueue").options(subscribe=topic, schema="avro").load()
