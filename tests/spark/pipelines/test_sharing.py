"""Which outputs are read together, and what becomes of those that come and go. No Spark."""

import json
from pathlib import Path

import pytest

from goqueue.base.errors import GoQueueError
from goqueue.spark.pipelines.graph import Graph, plan
from goqueue.spark.pipelines.load import parse_text
from goqueue.spark.pipelines.sharing import (
    Reading,
    can_share,
    cuts_of,
    leavers,
    parts_between,
    readings,
)
from goqueue.spark.pipelines.spec import Mode, Sink, TopicSink
from goqueue.spark.pipelines.state import StateFolder

SHOP = """
sources:
  orders: {topic: orders, watermark: {column: timestamp, delay: 10m}}
  people: {json: ./people}
transforms:
  named: {sql: SELECT * FROM orders JOIN people}
  large: {sql: SELECT * FROM named WHERE amount > 100}
  unique: {from: named, dedup: {by: [id]}}
  small: {sql: SELECT * FROM unique WHERE amount < 100}
  mine: {python: "steps.py:mine", from: orders}
sinks:
  all: {from: orders, topic: all}
  large: {from: large, lake: ./large}
  small: {from: small, topic: small}
  tiny: {from: small, table: ./tiny, key: id, latest_by: offset}
  mine: {from: mine, topic: mine}
  far: {from: orders, lake: "s3a://far"}
  sums: {from: large, topic: sums, output: update}
"""
PLAIN = {"orders", "named", "large", "mine"}


@pytest.fixture
def graph() -> Graph:
    return plan(parse_text(SHOP), Mode.AVAILABLE_NOW)


@pytest.fixture
def sinks(graph: Graph) -> dict[str, Sink]:
    quarantine = TopicSink(name="quarantine_orders", input="orders", topic="*")
    return {**graph.pipeline.sinks, quarantine.name: quarantine}


def shown(found: list[Reading]) -> dict[str, tuple[str, ...]]:
    return {one.name: one.outputs for one in found}


def test_what_hangs_on_one_stream_is_read_together(graph: Graph, sinks: dict[str, Sink]) -> None:
    """Down to what has a memory or is Python; where a sink cannot share, it has its own query."""
    found = readings(graph, sinks, PLAIN, alone=(), together={})

    assert shown(found) == {
        "far": ("far",),
        "sums": ("sums",),
        "mine": ("mine",),
        "orders-1": ("all", "large", "quarantine_orders"),
        "small-1": ("small", "tiny"),
    }
    assert [one.name for one in found if one.is_shared] == ["orders-1", "small-1"]
    assert {one.part for one in found if one.name in {"orders-1", "mine"}} == {"mine", "orders"}
    assert not can_share(sinks["far"])
    assert parts_between(graph, "orders", {"large", "orders"}) == {
        "orders",
        "named",
        "people",
        "large",
    }


def test_nobody_is_moved(graph: Graph, sinks: dict[str, Sink]) -> None:
    """Who has a checkpoint goes on with it; newcomers have the past to read, by themselves."""
    found = readings(
        graph,
        sinks,
        PLAIN,
        alone=("large", "small"),
        together={"orders-1": ["all", "gone"], "unique-1": ["lost"]},
    )

    assert shown(found) == {
        "orders-1": ("all",),
        "large": ("large",),
        "small": ("small",),
        "far": ("far",),
        "sums": ("sums",),
        "tiny": ("tiny",),
        "mine": ("mine",),
        "quarantine_orders": ("quarantine_orders",),
    }


def test_who_cannot_go_on_with_the_others_leaves(graph: Graph, sinks: dict[str, Sink]) -> None:
    """One whose steps have got a memory, and one that is not there while the others go on."""
    cuts = cuts_of(graph, sinks, PLAIN)
    together = {"orders-1": ["all", "small", "gone"], "orders-2": ["lost", "away"]}

    assert leavers(cuts, together) == [
        ("orders-1", "small", "small"),
        ("orders-1", "gone", "orders"),
    ]


def test_a_reading_on_the_disk(tmp_path: Path) -> None:
    """A sink that leaves takes a copy of how far it is, and goes on counting as it did."""
    folder = StateFolder(tmp_path, "shop")
    shared = folder.shared
    members = shared.begin("orders-1", ["a", "b", "c", "d"])
    checkpoint = shared.checkpoint("orders-1")
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "7").write_text("place")
    (checkpoint / "metadata").write_text('{"id": "one"}')
    (folder.checkpoint("own")).mkdir(parents=True)
    shared.leave("orders-1", "b", "large")
    copied = shared.checkpoint("large-1")

    assert shared.begin("orders-1", ["other"]).writer == members.writer
    assert shared.all() == {"large-1": ["b"], "orders-1": ["a", "c", "d"]}
    assert (copied / "offsets" / "7").read_text() == "place"
    assert json.loads((copied / "metadata").read_text())["id"] != "one"
    assert shared.members("large-1").writer_of("b") == members.writer_of("b")
    assert members.writer_of("a") != members.writer_of("b")
    assert (folder.sinks(), folder.alone()) == (["a", "b", "c", "d", "own"], ["own"])
    folder.reset("b")
    folder.reset("a")
    assert shared.all() == {"orders-1": ["c", "d"]}
    (tmp_path / "shop" / "shared" / "orders-1" / "sinks.json").write_text("{")
    with pytest.raises(GoQueueError, match="cannot be read"):
        shared.all()
    folder.reset()
    assert folder.sinks() == []
