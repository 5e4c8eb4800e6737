"""Producer ids of a cluster: from blocks that only one node has."""

import asyncio

import pytest

from goqueue.base.cluster_limits import ID_BLOCK
from goqueue.base.errors import (
    InvalidRequestError,
    InvalidTransactionStateError,
    LeaderNotAvailableError,
    UnknownProducerError,
)
from goqueue.base.ids import NodeId
from goqueue.core.producers.identities import EPOCH_MAX
from tests.service.fleet import ServiceFleet, run_services


def test_no_id_is_given_twice_by_any_node() -> None:
    """P3: the repeats of one producer are never taken for those of another."""

    async def scenario(fleet: ServiceFleet) -> None:
        ids = [node.broker.producer_ids for node in fleet.nodes.values()]
        given = await asyncio.gather(*(one.take() for one in ids for _ in range(ID_BLOCK + 50)))
        numbers = [stamp.producer_id for stamp in given]

        assert len(set(numbers)) == len(numbers)
        assert min(numbers) > 0
        # The next block is asked for ahead, and once.
        assert len(fleet.blocks) == 2 * len(ids)
        for number in numbers:
            ids[0].check_free(number)
            ids[0].check_life(producer_id=number, epoch=0)

    run_services(scenario)


def test_the_next_life_begins_on_any_node() -> None:
    """Lives are fenced by the partitions; a node needs no table of other nodes' producers."""

    async def scenario(fleet: ServiceFleet) -> None:
        there, here = (node.broker for node in fleet.nodes.values())
        stamp = await here.producer_ids.take()
        renewed = there.renew_producer(producer_id=stamp.producer_id, epoch=0)

        assert (renewed.producer_id, renewed.epoch) == (stamp.producer_id, 1)
        with pytest.raises(InvalidRequestError):
            there.renew_producer(producer_id=stamp.producer_id, epoch=EPOCH_MAX)
        with pytest.raises(UnknownProducerError):
            there.renew_producer(producer_id=0, epoch=1)
        with pytest.raises(InvalidTransactionStateError):
            there.check_free(1)

    run_services(scenario)


def test_a_node_without_ids_says_so_and_asks_again() -> None:
    """A controller that does not answer costs the callers of that moment, not the next ones."""

    async def scenario(fleet: ServiceFleet) -> None:
        ids = fleet.nodes[NodeId("a")].broker.producer_ids
        fleet.has_controller = False
        with pytest.raises(LeaderNotAvailableError):
            await ids.take()
        fleet.has_controller = True

        assert (await ids.take()).producer_id > 0

    run_services(scenario)
