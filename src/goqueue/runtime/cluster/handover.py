"""Another node leads the quorum before its leader stops, so that no election is waited for."""

import asyncio
from typing import Final

from goqueue.base.errors import GoQueueError
from goqueue.runtime.cluster.consensus import Consensus
from goqueue.runtime.cluster.metadata import Metadata

TRANSFER_SECONDS: Final = 2.0
"""How long a controller that stops waits for another one to lead the quorum."""


async def hand_over(quorum: Consensus, metadata: Metadata) -> None:
    """Let the first voter that can lead the quorum do so; give up if none can."""
    for peer in quorum.members.voters:
        node = metadata.node_of(peer)
        record = metadata.image.nodes.get(node) if node else None
        if node == metadata.own or record is None or record.is_fenced:
            continue
        try:
            async with asyncio.timeout(TRANSFER_SECONDS):
                await quorum.transfer(peer)
        except (GoQueueError, TimeoutError):
            continue
        return
