"""Schemas on every node: one decides, the others follow."""

from functools import partial
from typing import Any

import pytest

from goqueue.base.errors import NotCoordinatorError, SchemaViolationError
from goqueue.base.ids import NodeId
from goqueue.core.record.message import Draft
from goqueue.core.schemas.compatibility import Compatibility
from goqueue.core.schemas.events import Event
from goqueue.core.schemas.schema import read_schema
from goqueue.runtime.schemas.schema_feed import snapshot_of
from goqueue.runtime.schemas.schemas import Schemas
from tests.runtime.grants import PUBLISHING
from tests.service.fleet import ServiceFleet, place, run_services

SCHEMAS = place("__schemas", 0)
ONE = read_schema('{"type": "object", "required": ["id"]}', "JSON", [])
TWO = read_schema('{"type": "object"}', "JSON", [])


def _agree(registries: list[Schemas], wanted: list[Event]) -> bool:
    return all(one.view is not None or one.history is not None for one in registries) and all(
        snapshot_of(one.registry) == wanted for one in registries
    )


async def publish(fleet: ServiceFleet, node: str, value: bytes) -> Any:
    topic = fleet.nodes[NodeId(node)].broker.topic("orders")
    partition = list(fleet.nodes).index(NodeId(node))
    (result,) = await topic.publish_drafts(PUBLISHING, [(Draft(value=value), partition)])
    return result


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_schema_is_used_on_another_node_a_moment_after_it_was_registered(seed: int) -> None:
    """Hard case 20: a schema that is not known is asked for before a message is refused."""

    async def run(fleet: ServiceFleet) -> None:
        fleet.delay_s = 0.5
        fleet.create("orders", 3, {"schema_validation": "on"})
        deciding = fleet.nodes[NodeId("a")].broker.schemas
        views = [fleet.nodes[NodeId(node)].broker.schemas for node in "bc"]
        await fleet.until(lambda: all(one.view is not None for one in views))
        await deciding.configure("orders", Compatibility.NONE)
        await deciding.register("orders", ONE)
        for node in "bc":
            assert isinstance(await publish(fleet, node, b'{"id": 1}'), tuple)
            assert isinstance(await publish(fleet, node, b"{}"), SchemaViolationError)
        await deciding.register("orders", TWO)
        for node in "bc":
            assert isinstance(await publish(fleet, node, b"{}"), tuple)

    run_services(run, seed=seed, nodes=3)


def test_every_node_has_the_registry_of_the_one_that_decides() -> None:
    """Over lost answers, a removal, and another node that decides; only that one changes it."""

    async def run(fleet: ServiceFleet) -> None:
        fleet.loss = 0.2
        for number, leader in enumerate("abcab"):
            await fleet.move(SCHEMAS, leader)
            broker = fleet.nodes[NodeId(leader)].broker
            await broker.schemas.register(f"subject-{number}", ONE)
            await broker.schemas.register(f"subject-{number}", TWO)
            await broker.schemas.delete_version(f"subject-{number}", 1)
            if number:
                await broker.schemas.delete_subject(f"subject-{number - 1}")
                await broker.schemas.delete_subject(f"subject-{number - 1}", is_permanent=True)
            wanted = snapshot_of(broker.schemas.own)
            registries = [node.broker.schemas for node in fleet.nodes.values()]
            await fleet.until(partial(_agree, registries, wanted))
            for node in fleet.nodes.values():
                if node.name != leader:
                    with pytest.raises(NotCoordinatorError):
                        await node.broker.schemas.register("other", ONE)

    run_services(run, nodes=3)


def test_what_does_not_fit_is_kept_by_the_leader_of_the_dead_letters() -> None:
    """A message that is refused on one node is kept on another."""

    async def run(fleet: ServiceFleet) -> None:
        fleet.create("orders", 3, {"schema_validation": "dlq"})
        await fleet.nodes[NodeId("a")].broker.schemas.register("orders", ONE)
        for node in "abc":
            result = await publish(fleet, node, b"{}")
            assert isinstance(result, SchemaViolationError)
            assert "kept in orders.dlq" in result.message
        kept = [
            node.partition(place("orders.dlq", number)).log.end_offset
            for number, node in enumerate(fleet.nodes.values())
        ]

        assert sum(kept) == 3

    run_services(run, nodes=3)
