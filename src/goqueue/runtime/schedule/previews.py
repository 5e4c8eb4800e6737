"""What delayed messages are: read from the log for a list of them, a few reads for many."""

import asyncio
from collections.abc import Sequence
from typing import Final

from goqueue.base.grant import BROKER_READS
from goqueue.base.ids import Offset
from goqueue.base.units import MiB
from goqueue.core.record.message import Message
from goqueue.runtime.log.isolation import Isolation
from goqueue.runtime.log.page import Page, read_page
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic

EVERYTHING: Final = Isolation(show_delayed=True, is_committed=False)
NEIGHBOURS: Final = 256
"""Messages that lie this close together are read at once."""


async def read_messages(
    topic: Topic, partition: Partition, offsets: Sequence[int]
) -> dict[int, Message]:
    """Return messages of a partition by offset, in order; those that cannot be read are absent."""
    found: dict[int, Message] = {}
    wanted = set(offsets)
    reached = partition.log.start_offset
    for offset in offsets:
        if reached <= offset < partition.visible_offset:
            page = await read_from(topic, partition, offset, count_max=NEIGHBOURS)
            found.update({one.offset: one for one in page.messages if one.offset in wanted})
            # A page ends early where messages are large.
            reached = Offset(max(page.next_offset, offset + 1))
            # Reading may not wait for anything: others get their turn in between.
            await asyncio.sleep(0)
    return found


async def read_from(topic: Topic, partition: Partition, offset: int, *, count_max: int) -> Page:
    """Return what lies at an offset and behind it, whether or not it is due."""
    return await read_page(
        BROKER_READS,
        topic,
        partition.name.partition,
        offset=Offset(offset),
        count_max=count_max,
        bytes_max=1 * MiB,
        lens=EVERYTHING,
    )
