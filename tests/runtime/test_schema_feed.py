"""Schemas on every node: one decides, the others follow."""

import asyncio
from typing import Any

import pytest

from goqueue.base.errors import NotCoordinatorError, SchemaViolationError
from goqueue.base.ids import NodeId
from goqueue.core.record.message import Draft
from goqueue.core.schemas.compatibility import Compatibility
from goqueue.core.schemas.schema import read_schema
from goqueue.runtime.schemas.schema_feed import snapshot_of
from tests.runtime.grants import PUBLISHING
from tests.service.fleet import ServiceFleet, place, run_services

SCHEMAS = place("__schemas", 0)
ONE = read_schema('{"type": "object", "required": ["id"]}', "JSON", [])
TWO = read_schema('{"type": "object"}', "JSON", [])


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
        await asyncio.sleep(2)
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
            await asyncio.sleep(30)
            wanted = snapshot_of(broker.schemas.own)
            for node in fleet.nodes.values():
                assert snapshot_of(node.broker.schemas.registry) == wanted
                if node.name != leader:
                    with pytest.raises(NotCoordinatorError):
                        await node.broker.schemas.register("other", ONE)

    run_services(run, nodes=3)
