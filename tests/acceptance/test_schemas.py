"""The schema registry of a real broker process, met with the clients its users have."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool

import goqueue
from goqueue.base.errors import SchemaViolationError
from goqueue.core.schemas.proto_parser import ProtoParser
from tests.acceptance.served import Served

ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["id"],
    "additionalProperties": False,
}
USER = {
    "type": "record",
    "name": "User",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("schemas") / "data") as broker:
        yield broker


@pytest.fixture
def registry(served: Served) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": f"http://{served.http_address}"}) as client:
        yield client


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def send(served: Served, topic: str, *values: bytes) -> list[BaseException | None]:
    """Publish into a topic whose schema is enforced; return what was refused."""
    with goqueue.connect(served.address) as client:
        if topic not in [one.name for one in client.list_topics()]:
            client.create_topic(topic, partitions=1, schema_validation="on")
        with client.producer(topic) as producer:
            futures = [producer.send(value) for value in values]
            return [future.exception(60) for future in futures]


def visit_class() -> Any:
    """Return the class of a message whose type is the second in its file."""
    file = ProtoParser(
        """
        syntax = "proto3";
        package shop;
        message Place { int64 seconds = 1; }
        message Visit {
            string page = 1;
            repeated Place places = 2;
            map<string, Place> by_name = 3;
        }
        """
    ).parse()
    file.name = "visit.proto"
    pool = DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Visit"))


def test_the_json_serializer_of_confluent_works(
    served: Served, registry: SchemaRegistryClient
) -> None:
    """What it registers is enforced, what it writes is taken, and it reads it back."""
    serialize = JSONSerializer(json.dumps(ORDER), registry)
    deserialize = JSONDeserializer(json.dumps(ORDER), schema_registry_client=registry)
    good = serialize({"id": 7, "note": "x"}, context("orders"))
    assert good is not None
    bad = good[:5] + b'{"id": "seven"}'

    refused = send(served, "orders", good, bad, b'{"id": 8}')

    assert refused[0] is None
    assert refused[2] is None
    assert isinstance(refused[1], SchemaViolationError)
    assert "subject orders-value version 1: /id" in str(refused[1])
    assert deserialize(good, context("orders")) == {"id": 7, "note": "x"}


def test_the_avro_serializer_of_confluent_works(
    served: Served, registry: SchemaRegistryClient
) -> None:
    """Records are registered, enforced and read back, also by an evolved reader."""
    serialize = AvroSerializer(registry, json.dumps(USER))
    evolved = {**USER, "fields": [*USER["fields"], {"name": "age", "type": "int", "default": 0}]}
    deserialize = AvroDeserializer(registry, json.dumps(evolved))
    good = serialize({"id": 1, "name": "Ann"}, context("users"))
    assert good is not None

    refused = send(served, "users", good, good[:-1], good + b"x")

    assert refused[0] is None
    assert [type(one) for one in refused[1:]] == [SchemaViolationError] * 2
    assert deserialize(good, context("users")) == {"id": 1, "name": "Ann", "age": 0}
    assert registry.register_schema("users-value", Schema(json.dumps(evolved), "AVRO")) > 1


def test_the_protobuf_serializer_of_confluent_works(
    served: Served, registry: SchemaRegistryClient
) -> None:
    """Generated classes register their descriptors; messages carry the place of their type."""
    visit = visit_class()
    serialize = ProtobufSerializer(visit, registry)
    deserialize = ProtobufDeserializer(visit, {}, registry)
    good = serialize(visit(page="/", places=[{"seconds": 5}]), context("visits"))
    assert good is not None

    refused = send(served, "visits", good, good[:-1], good[:5] + b"\x02\x12")

    assert refused[0] is None
    assert [type(one) for one in refused[1:]] == [SchemaViolationError] * 2
    assert deserialize(good, context("visits")).places[0].seconds == 5


def test_the_client_of_confluent_sees_the_codes_it_knows(registry: SchemaRegistryClient) -> None:
    """Every error has the status and the number that programs written for it look for."""
    text = json.dumps(ORDER)
    narrowed = json.dumps({**ORDER, "required": ["id", "note"]})
    registry.register_schema("codes", Schema(text, "JSON"))

    def code_of(call: Any, *arguments: Any, **more: Any) -> tuple[int, int]:
        with pytest.raises(SchemaRegistryError) as caught:
            call(*arguments, **more)
        return caught.value.http_status_code, caught.value.error_code

    assert code_of(registry.get_latest_version, "nobody") == (404, 40401)
    assert code_of(registry.get_version, "codes", 9) == (404, 40402)
    assert code_of(registry.get_schema, 999_999) == (404, 40403)
    assert code_of(registry.lookup_schema, "codes", Schema('{"type": "null"}', "JSON")) == (
        404,
        40403,
    )
    assert code_of(registry.register_schema, "codes", Schema('{"type": 5}', "JSON")) == (422, 42201)
    assert code_of(registry.register_schema, "codes", Schema("{", "AVRO")) == (422, 42201)
    assert code_of(registry.get_version, "codes", "x") == (422, 42202)
    assert code_of(registry.set_compatibility, "codes", "SIDEWAYS") == (422, 42203)
    assert code_of(registry.register_schema, "codes", Schema(narrowed, "JSON")) == (409, 409)
    assert code_of(registry.delete_version, "codes", 1, permanent=True) == (404, 40407)
    assert code_of(registry.delete_subject, "nobody") == (404, 40401)


def test_the_client_of_confluent_manages_subjects(registry: SchemaRegistryClient) -> None:
    """Subjects, versions, modes, references, deletion and lookups behave as it expects."""
    money = json.dumps(
        {"type": "record", "name": "Money", "fields": [{"name": "n", "type": "int"}]}
    )
    price = json.dumps(
        {"type": "record", "name": "Price", "fields": [{"name": "money", "type": "Money"}]}
    )
    money_id = registry.register_schema("money", Schema(money, "AVRO"))
    reference = SchemaReference(name="Money", subject="money", version=1)
    price_id = registry.register_schema("price", Schema(price, "AVRO", [reference]))

    assert registry.register_schema("money-copy", Schema(money, "AVRO")) == money_id
    assert registry.get_schema(price_id).references == [reference]
    assert {"money", "price"} <= set(registry.get_subjects())
    assert registry.get_versions("money") == [1]
    assert registry.get_latest_version("price").schema_id == price_id
    assert registry.lookup_schema("money", Schema(money, "AVRO")).version == 1
    assert registry.test_compatibility("money", Schema(money, "AVRO"))
    assert registry.get_compatibility() == "BACKWARD"
    registry.set_compatibility("money", "FULL")
    assert registry.get_compatibility("money") == "FULL"
    with pytest.raises(SchemaRegistryError, match="referred to"):
        registry.delete_subject("money")
    assert registry.delete_subject("price") == [1]
    assert registry.delete_subject("price", permanent=True) == [1]
    assert registry.delete_subject("money") == [1]
    assert "money" not in registry.get_subjects()


def test_ids_outlive_a_kill(tmp_path: Path) -> None:
    """After SIGKILL every schema has the id and the version it had, and new ids are new."""
    with Served(tmp_path / "data") as broker:
        with SchemaRegistryClient({"url": f"http://{broker.http_address}"}) as client:
            first = client.register_schema("orders", Schema(json.dumps(ORDER), "JSON"))
            second = client.register_schema("users", Schema(json.dumps(USER), "AVRO"))
            client.delete_subject("users")
            client.delete_subject("users", permanent=True)
        broker.kill()
        broker.start()

        with SchemaRegistryClient({"url": f"http://{broker.http_address}"}) as client:
            assert (first, second) == (1, 2)
            assert client.get_subjects() == ["orders"]
            assert client.get_latest_version("orders").schema_id == 1
            assert client.register_schema("users", Schema(json.dumps(USER), "AVRO")) == 3
        assert broker.complaints() == []
