"""``client.schemas`` and what a producer is told of messages that do not fit."""

import asyncio
from pathlib import Path

import pytest

import goqueue
from goqueue import aio
from goqueue.base.errors import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    SchemaNotFoundError,
    SchemaViolationError,
    SubjectNotFoundError,
)

ORDER = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


def test_schemas_are_registered_and_shown(tmp_path: Path) -> None:
    """Texts or objects, by version or by id, with what they refer to."""
    with goqueue.open(tmp_path / "data") as client:
        place = client.schemas.register("orders", ORDER)
        assert (place.id, place.version) == (1, 1)
        avro = client.schemas.register("names", '"string"', type="AVRO")
        used = client.schemas.register(
            "users", {"$ref": "o"}, references=[("o", "orders", place.version)]
        )

        assert client.schemas.get("orders").schema.startswith('{"type"')
        assert client.schemas.by_id(avro.id).type == "AVRO"
        assert client.schemas.by_id(used.id).references == [("o", "orders", 1)]
        assert [one.name for one in client.schemas.subjects()] == ["names", "orders", "users"]
        assert client.schemas.check("orders", {**ORDER, "required": ["id", "x"]}) != []
        assert client.schemas.check("orders", ORDER, version=1) == []
        assert client.schemas.set_compatibility("FULL", "orders") == "FULL"
        assert client.schemas.compatibility() == "BACKWARD"
        assert client.schemas.validate("orders", [b'{"id": 1}', b"{}"]) == {
            1: '/: "id" is a required property'
        }
        with pytest.raises(IncompatibleSchemaError, match="/x: the property is required"):
            client.schemas.register("orders", {**ORDER, "required": ["id", "x"]})
        with pytest.raises(InvalidSchemaError):
            client.schemas.register("orders", b"\xff")
        with pytest.raises(SchemaNotFoundError):
            client.schemas.by_id(99)
        assert client.schemas.delete("users") == [1]
        assert client.schemas.delete("users", permanent=True) == [1]
        with pytest.raises(SubjectNotFoundError):
            client.schemas.get("users")


@pytest.mark.parametrize("count", [1, 2, 50])
def test_each_future_has_its_own_answer(client: goqueue.Client, count: int) -> None:
    """Messages that fit are published however many of their batch do not."""
    refused: list[int] = []
    name = f"orders-{count}"
    client.schemas.register(name, ORDER)
    client.create_topic(name, partitions=2, schema_validation="on")
    with client.producer(name, on_error=lambda _, number: refused.append(number)) as producer:
        sent = [
            (producer.send(b'{"id": 1}', key=b"k"), producer.send(b"{}", key=b"k"))
            for _ in range(count)
        ]
        producer.flush()
        # The producer goes on as if nothing had happened.
        last = producer.send(b'{"id": 2}', key=b"k").result(60)

    assert [good.result(60).offset for good, _ in sent] == list(range(count))
    assert last.offset == count
    for _, bad in sent:
        with pytest.raises(SchemaViolationError, match=f"subject {name} version 1: /: "):
            bad.result(60)
    assert len(list(client.read(name))) == count + 1
    assert sum(refused) == count


def test_the_same_in_an_event_loop(address: str) -> None:
    """The asynchronous client has the same registry and the same refusals."""

    async def main() -> None:
        async with await aio.connect(address) as client:
            await client.schemas.register("orders", ORDER)
            await client.create_topic("orders", partitions=1, schema_validation="on")
            async with client.producer("orders") as producer:
                good, bad = producer.send(b'{"id": 1}'), producer.send(b'{"id": []}')
                assert (await good).offset == 0
                with pytest.raises(SchemaViolationError, match=r"/id: \[\] is not of type"):
                    await bad
            assert (await client.schemas.get("orders", 1)).version == 1

    asyncio.run(main())
