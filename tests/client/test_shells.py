"""Both clients offer the same administration: names, arguments, types and docstrings."""

import inspect
from collections.abc import Iterator
from datetime import datetime
from typing import assert_type

import pytest

import goqueue
from goqueue.client.aclient import AsyncClient
from goqueue.client.admin.dlq import LetterPage
from goqueue.client.admin.schemas import AsyncSchemas, RegisteredSchema
from goqueue.client.admin.shells import Schemas
from goqueue.client.sync import Client
from goqueue.wire.calls import TopicState, TopicSummary
from goqueue.wire.trace_calls import TraceEntry

PAIRS = [(AsyncClient, Client), (AsyncSchemas, Schemas)]


def calls_of(kind: type) -> Iterator[str]:
    for name, call in inspect.getmembers(kind, inspect.iscoroutinefunction):
        if not name.startswith("_") and name != "close":
            assert call.__doc__, name
            yield name


@pytest.mark.parametrize(
    ("there", "here", "name"),
    [(there, here, name) for there, here in PAIRS for name in calls_of(there)],
)
def test_a_call_is_the_same_in_both_clients(there: type, here: type, name: str) -> None:
    """What helps in one, and is documented there, is true of the other."""
    awaited, blocking = getattr(there, name), getattr(here, name)

    assert inspect.signature(blocking) == inspect.signature(awaited)
    assert inspect.getdoc(blocking) == inspect.getdoc(awaited)
    assert not inspect.iscoroutinefunction(blocking)


@pytest.mark.parametrize("name", ["read", "read_batches", "producer", "consumer"])
def test_messages_are_asked_for_alike(name: str) -> None:
    """Reading, publishing and consuming take the same options in both."""
    awaited, blocking = getattr(AsyncClient, name), getattr(Client, name)

    assert inspect.signature(blocking).parameters == inspect.signature(awaited).parameters


def types_of_blocking_calls(client: goqueue.Client) -> None:
    """Checked by mypy --strict: what is returned has its type, a wrong argument is an error."""
    assert_type(client.list_topics(), list[TopicSummary])
    assert_type(client.create_topic("t", partitions=2, retention_ms=5), TopicState)
    assert_type(client.delete_group("g", force=True), None)
    assert_type(client.offsets("t", at=datetime.now().astimezone()), dict[int, int])
    assert_type(client.dlq_peek("t", limit=3, reason="x"), LetterPage)
    assert_type(client.search_traces(topic="t"), list[TraceEntry])
    assert_type(client.schemas.get("s", 1), RegisteredSchema)
    client.create_topic("t", partitions="2")  # type: ignore[arg-type]
    client.list_topics("t")  # type: ignore[call-arg]
    client.describe_topic()  # type: ignore[call-arg]
    client.dlq_peek("t", resaon="x")  # type: ignore[call-arg]
    client.read("t", from_="earliest")  # type: ignore[call-arg]
    client.schemas.get(1)  # type: ignore[arg-type]
