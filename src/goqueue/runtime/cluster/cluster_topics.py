"""The topics of the cluster's image on this node: opened, configured, extended, removed.

Every node has every topic, also those of which it holds no replica. One task brings the broker to
what the image says, as often as that changes. The folder of a topic says which topic it is of: one
of another topic with the same name, deleted while this node was down, is moved away.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from typing import Final, Protocol

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import Position, TopicId, TopicName
from goqueue.core.cluster.image import ClusterTopic
from goqueue.core.topics.catalog import Topic as TopicRecord
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.broker import Broker
from goqueue.runtime.cluster.image_source import ImageSource
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.log.topic_files import remove_topic_files
from goqueue.runtime.log.topic_opening import TopicOpening
from goqueue.storage.disk import Disk, write_atomically

FOLDER_ID: Final = "cluster.id"
"""The file in the folder of a topic that names its cluster and its id there."""

RETRY_SECONDS: Final = 1.0

log = get_logger("goqueue.replicas")


class TopicsHost(Protocol):
    """Who holds the replicas of the topics."""

    def topic_opened(self, topic: ClusterTopic) -> Awaitable[None]:
        """Take the roles of a topic that was just opened, or has more partitions."""
        ...

    def topic_closes(self, name: TopicName) -> Awaitable[None]:
        """Give up all replicas of a topic, durably."""
        ...


class ClusterTopics:
    """Keeps the topics of a broker as the image says."""

    def __init__(self, broker: Broker, source: ImageSource, host: TopicsHost) -> None:
        self._broker = broker
        self._source = source
        self._host = host
        self._open: dict[TopicId, Topic] = {}
        self._asked = 0
        self._done = 0
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()
        self._is_stopped = False
        self._has_strangers = False

    def __repr__(self) -> str:
        return f"<ClusterTopics: {len(self._open)} open>"

    def find(self, topic_id: TopicId) -> Topic | None:
        """Return a topic by its id, if it is open."""
        return self._open.get(topic_id)

    def look_again(self) -> None:
        """Take note that the topics of the image may have changed."""
        self._asked += 1
        if self._task is None and not self._is_stopped:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def remove_strangers(self) -> None:
        """Remove the folders of topics that were deleted while this node was down."""
        self._has_strangers = True
        self.look_again()

    async def settled(self) -> None:
        """Return when the broker has the topics that the image has now."""
        wanted = self._asked
        while self._done < wanted:
            await self._next_news()

    async def served(self, name: TopicName) -> None:
        """Return when the broker has a topic that the image has."""
        while name in self._source.image.catalog.topics and name not in self._broker.topics:
            await self._next_news()

    async def removed(self, name: TopicName) -> None:
        """Return when the broker no longer has a topic that the image has not."""
        while name not in self._source.image.catalog.topics and name in self._broker.topics:
            await self._next_news()

    async def _next_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    async def stop(self) -> None:
        """Open and remove nothing more."""
        self._is_stopped = True
        if self._retry is not None:
            self._retry.cancel()
        if self._task is not None:
            # What is half open is finished: a thread may be at it.
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._done < self._asked and not self._is_stopped:
                asked = self._asked
                await self._reconcile()
                self._done = asked
                self._news.set()
        finally:
            self._task = None
            self._news.set()

    async def _reconcile(self) -> None:
        image = self._source.image
        for topic_id in [one for one in self._open if one not in image.topics]:
            await self._close(topic_id)
        for topic_id, topic in list(self._open.items()):
            wanted = image.topics.get(topic_id)
            if wanted is not None and topic.record != image.catalog.topics[wanted.name]:
                await self._change(topic, wanted, image.catalog.topics[wanted.name])
        missing = [one for one in image.topics.values() if one.id not in self._open]
        if missing:
            await self._open_all(missing)
        if self._has_strangers:
            self._has_strangers = False
            await self._remove_strangers()

    # Opening.

    async def _open_all(self, missing: Sequence[ClusterTopic]) -> None:
        try:
            await self._open_some(missing)
        except (GoQueueError, OSError) as error:
            if len(missing) == 1:
                self._not_opened(missing[0].name, error)
                return
            # One of them: the others are opened without it.
            for topic in missing:
                await self._open_all([topic])

    async def _open_some(self, wanted: Sequence[ClusterTopic]) -> None:
        for topic in wanted:
            await self._claim(topic)
        broker, image = self._broker, self._source.image
        # Folders are claimed by threads; a topic may have been deleted meanwhile.
        missing = [one for one in wanted if one.id in image.topics]
        for topic in wanted:
            if topic.id not in image.topics:
                await self._disclaim(topic.name)
        openings = [broker.opening(image.catalog.topics[topic.name]) for topic in missing]
        await broker.open_partitions(openings)
        for topic, opening in zip(missing, openings, strict=True):
            self._open[topic.id] = broker.catalogue.adopt(opening)
            if topic.id in image.topics:
                await self._host.topic_opened(image.topics[topic.id])
            await asyncio.sleep(0)

    async def _claim(self, topic: ClusterTopic) -> None:
        """See to it that the folder of a topic is its own."""
        disk, wanted = self._broker.disk, f"{self._source.image.cluster_id} {topic.id}\n".encode()
        loop = asyncio.get_running_loop()
        if await loop.run_in_executor(None, _read_id, disk, topic.name) == wanted:
            return
        # What is known of replicas is known by the name: first the files, then that, then the id.
        await loop.run_in_executor(None, _move_away, disk, topic.name)
        await self._host.topic_closes(topic.name)
        await loop.run_in_executor(None, _write_id, disk, topic.name, wanted)

    async def _disclaim(self, name: TopicName) -> None:
        """Remove the folder of a topic that was deleted before it was opened."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, remove_topic_files, self._broker.disk, name)

    async def _remove_strangers(self) -> None:
        """Remove folders of this cluster's topics that it does not have any more."""
        disk, image = self._broker.disk, self._source.image
        loop = asyncio.get_running_loop()
        for name in map(TopicName, disk.list_directory("logs")):
            content = await loop.run_in_executor(None, _read_id, disk, name)
            cluster_id, _, number = content.decode(errors="replace").strip().rpartition(" ")
            if name in image.catalog.topics or not number.isdecimal():
                continue
            if cluster_id == image.cluster_id and int(number) < image.next_topic_id:
                await loop.run_in_executor(None, _move_away, disk, name)
                await self._host.topic_closes(name)

    # Changing.

    async def _change(self, topic: Topic, wanted: ClusterTopic, record: TopicRecord) -> None:
        catalogue = self._broker.catalogue
        if record.partitions == len(topic.partitions):
            catalogue.follow(topic, record)
            return
        opening: TopicOpening = self._broker.opening(record)
        opening.keep(topic.partitions)
        try:
            await self._broker.open_partitions([opening])
        except (GoQueueError, OSError) as error:
            self._not_opened(topic.record.name, error)
            return
        catalogue.grow(topic, opening)
        await self._host.topic_opened(wanted)

    async def _close(self, topic_id: TopicId) -> None:
        topic = self._open.pop(topic_id)
        name = topic.record.name
        try:
            await self._host.topic_closes(name)
            self._broker.catalogue.drop(topic)
        except (GoQueueError, OSError) as error:
            # The folder is another topic's now, or none's; a start or a new topic moves it away.
            _not_removed(name, error)

    def _not_opened(self, name: str, error: Exception) -> None:
        log.error(LogEvent.TOPIC_NOT_OPENED, topic=name, error=str(error))
        if self._retry is None and not self._is_stopped:
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self.look_again()


def _not_removed(name: str, error: Exception) -> None:
    log.error(LogEvent.TOPIC_NOT_REMOVED, topic=name, error=str(error))


def _read_id(disk: Disk, name: TopicName) -> bytes:
    try:
        file = disk.open(f"logs/{name}/{FOLDER_ID}")
    except FileNotFoundError:
        return b""
    with contextlib.closing(file):
        return bytes(file.read(Position(0), file.size()))


def _move_away(disk: Disk, name: TopicName) -> None:
    if disk.exists(f"logs/{name}"):
        log.warning(LogEvent.FOLDER_REPLACED, folder=f"logs/{name}")
        remove_topic_files(disk, name)


def _write_id(disk: Disk, name: TopicName, content: bytes) -> None:
    disk.make_directory(f"logs/{name}")
    write_atomically(disk, f"logs/{name}/{FOLDER_ID}", content)
