"""``cluster/state.json`` and ``cluster/metadata.json``: for people to look at, never read back."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from goqueue.base.errors import GoQueueError
from goqueue.core.cluster.events import Event
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.consensus import Leading
from goqueue.runtime.cluster.node import Node
from goqueue.storage.disk import Disk, write_atomically
from goqueue.storage.raft_store import DIRECTORY
from goqueue.wire.http.cluster import cluster_metadata, cluster_state

STATE_VIEW: Final = f"{DIRECTORY}/state.json"
METADATA_VIEW: Final = f"{DIRECTORY}/metadata.json"
PAUSE_SECONDS: Final = 1.0
"""Least time between two writes: changes come in bursts, and nothing depends on these files."""

log = get_logger("goqueue.cluster")


class ClusterViews:
    """Writes both files when something has changed."""

    def __init__(self, node: Node, disk: Disk) -> None:
        self._node = node
        self._disk = disk
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        node.metadata.watch(self._note)
        node.metadata.watch_leader(self._note_leader)

    def start(self) -> None:
        """Begin to write."""
        self._changed.set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Write no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _note(self, _: Sequence[Event] | None) -> None:
        self._changed.set()

    def _note_leader(self, _: Leading) -> None:
        self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            image, sight = self._node.metadata.image, self._node.sight()
            shown = (
                (STATE_VIEW, cluster_state(image, sight)),
                (METADATA_VIEW, cluster_metadata(image, sight)),
            )
            try:
                for path, value in shown:
                    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
                    await asyncio.to_thread(write_atomically, self._disk, path, text + b"\n")
            except GoQueueError as error:
                log.warning(LogEvent.VIEW_NOT_WRITTEN, error=error.message)
            await asyncio.sleep(PAUSE_SECONDS)
