"""How much of its replies the system keeps for a client that does not read them."""

import asyncio
import socket
from typing import Final

from goqueue.base.units import KiB

UNSENT_BYTES_MAX: Final = 128 * KiB
"""So much may wait in the system until it can be sent.

What is on its way does not count, so a fast reader far away is not slowed down. Without it the
system takes some megabytes for a client that reads nothing, and the work for them is done."""


def keep_little_unsent(transport: asyncio.BaseTransport) -> None:
    """Have the system take no more of the replies than it can soon send."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family in {socket.AF_INET, socket.AF_INET6}:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
