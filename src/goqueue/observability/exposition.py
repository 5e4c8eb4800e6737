"""The metrics as text, rendered without keeping the broker from its work.

Writing the text takes long where there are many topics: half a second for a few hundred. So only
the numbers are read in the event loop, one family at a time, and the text is written in a thread.
One text is rendered at a time, and requests within a second of the last one get that one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from goqueue.observability.metrics import Metrics

INTERVAL_SECONDS: Final = 1.0
"""How old a text may be that is handed out again."""


class Exposition:
    """Writes the text of the metrics, once for all who ask at the same time."""

    def __init__(self, metrics: Metrics, prepare: Callable[[], Awaitable[None]]) -> None:
        self._metrics = metrics
        self._prepare = prepare
        """Finds out what the gauges cannot read off by themselves."""
        self._text = b""
        self._expires_at = 0.0
        self._under_way: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "idle" if self._under_way is None else "under way"
        return f"<Exposition of {len(self._text)} bytes, {state}>"

    async def text(self) -> bytes:
        """Return everything in Prometheus' text format, a second old at most."""
        if self._under_way is not None:
            await asyncio.shield(self._under_way)
        elif asyncio.get_running_loop().time() >= self._expires_at:
            self._under_way = asyncio.create_task(self._write())
            # Whoever asked first may go away; the others wait for the same text.
            await asyncio.shield(self._under_way)
        return self._text

    async def _write(self) -> None:
        try:
            await self._prepare()
            families = []
            for family in self._metrics.gather():
                families.append(family)
                # Reading the numbers of many topics takes a while: others run in between.
                await asyncio.sleep(0)
            self._text = await asyncio.to_thread(self._metrics.write, families)
            self._expires_at = asyncio.get_running_loop().time() + INTERVAL_SECONDS
        finally:
            self._under_way = None
