"""Producer ids in a cluster: every node gives them out of blocks that only it has.

The block of an id says whose it is: a partition of the coordinators of transactions, or none, for
producers without transactions. Lives of producers are known to no table there: the ledger of each
partition fences the earlier ones, so the next life of a producer can begin on any node.
"""

import asyncio
import contextlib
from typing import Final

from goqueue.base.cluster_limits import ID_BLOCK, PLAIN_PRODUCERS_OWNER
from goqueue.base.errors import (
    GoQueueError,
    InvalidRequestError,
    InvalidTransactionStateError,
    UnknownProducerError,
)
from goqueue.base.ids import Epoch, ProducerId
from goqueue.base.ids import Sequence as SequenceNumber
from goqueue.core.producers.id_blocks import PRODUCER_IDS, owner_of
from goqueue.core.producers.identities import EPOCH_MAX
from goqueue.core.record.stamp import ProducerStamp
from goqueue.runtime.log.producer_ids import ProducerIds
from goqueue.runtime.machine import Journal
from goqueue.runtime.topology import IdBlock, Topology

AHEAD: Final = ID_BLOCK // 10
"""With so many ids left the next block is asked for."""


def producer_ids_of(journal: Journal, topology: Topology | None) -> ProducerIds:
    """Return what gives out the ids of producers on a broker alone, or on a node of a cluster."""
    return ProducerIds(journal) if topology is None else ProducerBlocks(journal, topology)


class ProducerBlocks(ProducerIds):
    """The identities of producers on a node of a cluster."""

    def __init__(self, journal: Journal, topology: Topology) -> None:
        super().__init__(journal)
        self._topology = topology
        self._block = self._next = range(0)
        self._asking: asyncio.Task[IdBlock] | None = None
        self.check_life = self._check_life

    def __repr__(self) -> str:
        return f"<ProducerBlocks: {len(self._block) + len(self._next)} ids at hand>"

    @property
    def next_id(self) -> int:
        """The id the next new producer gets, as far as this node has ids."""
        return (self._block or self._next or range(1)).start

    def init(self) -> ProducerStamp:
        """Refuse: an id may have to be asked for, see ``take``."""
        raise AssertionError("ids of a cluster are awaited")

    async def take(self) -> ProducerStamp:
        """Give a new producer its identity; only the first waits for a block."""
        while not self._block:
            if self._next:
                self._block, self._next = self._next, range(0)
            else:
                # The block belongs to the node: who asks and goes away leaves it to the next.
                await asyncio.shield(self._ask())
        given, self._block = self._block[0], self._block[1:]
        if len(self._block) < AHEAD and not self._next:
            self._ask()
        return _stamp(given, 0)

    def _ask(self) -> "asyncio.Task[IdBlock]":
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._allocate())
            self._asking.add_done_callback(self._asked)
        return self._asking

    async def _allocate(self) -> IdBlock:
        # A data directory that served alone has given out ids of its own.
        above = self.identities.next_id
        return await self._topology.allocate_ids(
            PRODUCER_IDS, owner=PLAIN_PRODUCERS_OWNER, above=above
        )

    def _asked(self, task: "asyncio.Task[IdBlock]") -> None:
        self._asking = None
        with contextlib.suppress(GoQueueError, asyncio.CancelledError):
            # Who waits gets the error; asked ahead, the next one asks again.
            first, size = task.result()
            self._next = range(first, first + size)

    def renew(self, *, producer_id: int, epoch: int) -> ProducerStamp:
        """Begin the next life of a producer; partitions fence the earlier ones as they see it."""
        self._check_life(producer_id=producer_id, epoch=epoch)
        if epoch >= EPOCH_MAX:
            raise InvalidRequestError(f"epoch: {epoch} is the last; begin with a new producer id")
        return _stamp(producer_id, epoch + 1)

    def _check_life(self, *, producer_id: int, epoch: int) -> None:
        """Refuse an id that cannot have been given out; its life is a matter of each partition."""
        del epoch
        if producer_id <= 0:
            raise UnknownProducerError(f"producer {producer_id} is not known")

    def check_free(self, producer_id: int) -> None:
        """Refuse what is not done in a transaction by a producer that has them."""
        if owner_of(producer_id) != PLAIN_PRODUCERS_OWNER and producer_id > 0:
            raise InvalidTransactionStateError(
                f"producer {producer_id} is transactional: it publishes in transactions only"
            )


def _stamp(producer_id: int, epoch: int) -> ProducerStamp:
    return ProducerStamp(ProducerId(producer_id), Epoch(epoch), SequenceNumber(0))
