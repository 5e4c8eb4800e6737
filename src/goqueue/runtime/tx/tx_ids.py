"""Identities of transactional producers in a cluster, from blocks of their coordinators.

Lives are kept with the producer's own state, and fenced by its coordinator and by every partition
that has messages of it; there is no table of them.
"""

import asyncio
from typing import Final

from goqueue.base.ids import Epoch, ProducerId
from goqueue.base.ids import Sequence as SequenceNumber
from goqueue.core.producers.id_blocks import PRODUCER_IDS, owner_of
from goqueue.core.producers.identities import EPOCH_MAX
from goqueue.core.record.stamp import ProducerStamp
from goqueue.core.tx.producer import TxProducer
from goqueue.runtime.topology import Topology

FIRST_EPOCH: Final = 0


class TxIds:
    """Gives out ids that say which partition of ``__transactions`` knows their producer."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._blocks: dict[int, range] = {}
        # Guards the asking for a block: who comes meanwhile gets an id of the same one.
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<TxIds: {sum(map(len, self._blocks.values()))} ids at hand>"

    async def next_life(
        self, producer: TxProducer, *, coordinator: int, above: int
    ) -> ProducerStamp:
        """Return the next life of a producer: of its id, or of a new one where that is used up.

        ``above`` is an id that this node may have given out when it was alone.
        """
        is_own = producer.producer_id and owner_of(producer.producer_id) == coordinator
        if is_own and producer.epoch < EPOCH_MAX:
            return _stamp(producer.producer_id, producer.epoch + 1)
        async with self._turn:
            block = self._blocks.get(coordinator)
            if not block:
                first, size = await self._topology.allocate_ids(
                    PRODUCER_IDS, owner=coordinator, above=above
                )
                block = range(first, first + size)
            self._blocks[coordinator] = block[1:]
        return _stamp(block[0], FIRST_EPOCH)


def _stamp(producer_id: int, epoch: int) -> ProducerStamp:
    return ProducerStamp(ProducerId(producer_id), Epoch(epoch), SequenceNumber(0))
