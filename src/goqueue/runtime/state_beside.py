"""The state log of a node in a cluster: what is decided about messages lies beside them.

Machines of a name (groups, schedules, jobs) are in ``__consumer_offsets`` as on one node. Ledgers,
changed delays and the index of dead letters of a partition are in the state log beside it
(``runtime/log/topic_states.py``), which has the same leader: whoever leads the messages decides
about them. A home that stands for a partition is written ``TOPIC/NUMBER``, as no name can be.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from goqueue.base.errors import GoQueueError, NotLeaderError, TopicNotFoundError
from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.runtime.ballast import Ballast
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import Placed, StatePart
from goqueue.runtime.state_log import SNAPSHOT_BYTES_MIN, LoadedPart, StateLog

_OF_PLACE: Final = "/"
_ELSEWHERE: Final = "the state of this partition is not loaded here; ask again"


class _PlacedPart(LoadedPart):
    """The state log beside a partition, and what is known of the machines in it."""

    __slots__ = ("_number", "_topic")

    def __init__(self, topic: Topic, number: int) -> None:
        super().__init__()
        self._topic = topic
        self._number = number
        self.log = topic.state_of(number)

    def make(self) -> Partition:
        """Return the log, which is made the first time."""
        self.log = self._topic.make_state(self._number)
        return self.log


class PlacedState(StateLog):
    """Keeps machines of names in a topic, and those of partitions beside them."""

    is_beside = True

    def __init__(
        self,
        open_topic: Callable[[], Topic],
        clock: Clock,
        ballast: Ballast,
        *,
        partitions: int,
        topics: Mapping[TopicName, Topic],
        snapshot_bytes_min: int = SNAPSHOT_BYTES_MIN,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(
            open_topic,
            clock,
            ballast,
            partitions=partitions,
            snapshot_bytes_min=snapshot_bytes_min,
            prepare=prepare,
        )
        self._topics = topics
        self._places: dict[str, _PlacedPart] = {}

    # Parts.

    @property
    def parts(self) -> Sequence[StatePart]:
        """Everything that is loaded with all partitions led here."""
        return [*self.partitions, *map(_place_of, self._places)]

    def load(self, part: StatePart) -> None:
        """Read what a part has; its machines may be hosted from now on."""
        if isinstance(part, TopicPartition):
            topic = self._topics.get(part.topic)
            if topic is None:
                raise TopicNotFoundError(f"topic not found: {part.topic}")
            placed = _PlacedPart(topic, topic.partition(part.partition).name.partition)
            self._places[_home(part)] = placed
        super().load(part)

    def unload(self, part: StatePart) -> None:
        """Take no more changes of a part and forget what was read of it."""
        if isinstance(part, TopicPartition):
            self._places.pop(_home(part), None)
        else:
            super().unload(part)

    async def drain(self, part: StatePart) -> None:
        """Return when everything written to a part is durable, or never will be."""
        if not isinstance(part, TopicPartition):
            await super().drain(part)
            return
        topic = self._topics.get(part.topic)
        log = None if topic is None else topic.state_of(part.partition)
        if log is not None:
            with contextlib.suppress(GoQueueError):
                await asyncio.wait([log.durable()])

    def _part(self, part: StatePart) -> LoadedPart:
        return self._places[_home(part)] if isinstance(part, TopicPartition) else self._parts[part]

    def forget_topic(self, topic: Topic) -> None:
        """Let go of the state of a topic that is gone; its files are removed with it."""
        for partition in topic.partitions:
            self._places.pop(_home(partition.name), None)

    # Places.

    def home_of(self, owner: str, place: TopicPartition) -> str:  # noqa: ARG002 - the place decides
        """Return the home of what any owner decides about the messages of a partition."""
        return _home(place)

    def is_in(self, home: str, part: StatePart) -> bool:
        """Return True if a part holds the machines of a home."""
        if isinstance(part, TopicPartition):
            return home == _home(part)
        return _OF_PLACE not in home and self.partition_of(home) == part

    def is_loaded(self, place: TopicPartition) -> bool:
        """Return True if messages of a partition may be decided about here."""
        return _home(place) in self._places

    def check_owner(self, owner: str) -> None:
        """Let be: who owns something says nothing of where it is."""

    def check_places(self, owner: str, parts: Iterable[Placed]) -> None:  # noqa: ARG002
        """Raise unless what any owner decides about messages of partitions is loaded."""
        for part in parts:
            self.check_place(part.partition)

    def check_place(self, place: TopicPartition) -> None:
        """Raise unless what any owner decides about messages of a partition is loaded.

        Of a partition that does not exist nothing is kept anywhere.
        """
        home, topic = _home(place), self._topics.get(place.topic)
        if home not in self._places and topic and 0 <= place.partition < len(topic.partitions):
            raise NotLeaderError(_ELSEWHERE)

    def durable_at(self, owner: str, parts: Iterable[Placed]) -> asyncio.Future[None]:  # noqa: ARG002
        """Return a future that is done when what was decided there is durable."""
        homes = dict.fromkeys([_home(part.partition) for part in parts])
        return all_done([self.durable(home) for home in homes])

    async def settle_at(self, owner: str, parts: Iterable[Placed], *, is_alone: bool) -> None:
        """Return when what was decided there is durable."""
        placed = list(parts)
        homes = dict.fromkeys([_home(part.partition) for part in placed])
        if len(homes) == 1:
            partition = self._log_of(self._at(*homes))
            await self._settle(partition, is_alone=is_alone)
        else:
            await self.durable_at(owner, placed)

    def durable(self, home: str) -> asyncio.Future[None]:
        """Return a future that is done when everything written for a home is durable."""
        part = self._at(home)
        is_unwritten = part.log is None and isinstance(part, _PlacedPart)
        return all_done([]) if is_unwritten else super().durable(home)

    # Finding.

    def forget(self, key: str, *, home: str) -> asyncio.Future[None]:
        """Write that a machine is gone. One whose partition is not here goes with it, or there."""
        if _OF_PLACE in home and home not in self._places:
            return all_done([])
        return super().forget(key, home=home)

    def _at(self, home: str) -> LoadedPart:
        placed = self._places.get(home)
        if placed is not None:
            return placed
        if _OF_PLACE in home:
            raise NotLeaderError(_ELSEWHERE)
        return super()._at(home)

    def _log_of(self, part: LoadedPart) -> Partition:
        if part.log is None and isinstance(part, _PlacedPart):
            return part.make()
        return super()._log_of(part)


def all_done(futures: Sequence[asyncio.Future[None]]) -> asyncio.Future[None]:
    """Return a future that is done when all are, or when the first one fails."""
    if len(futures) == 1:
        return futures[0]
    whole = asyncio.get_running_loop().create_future()
    left = dict.fromkeys(futures)
    if not left:
        whole.set_result(None)
    for future in left.copy():
        future.add_done_callback(partial(_note_done, whole, left))
    return whole


def _note_done(
    whole: asyncio.Future[None],
    left: dict[asyncio.Future[None], None],
    done: asyncio.Future[None],
) -> None:
    error = None if done.cancelled() else done.exception()
    left.pop(done, None)
    if whole.done():
        return
    if done.cancelled():
        whole.cancel()
    elif error is not None:
        whole.set_exception(error)
    elif not left:
        whole.set_result(None)


def _home(place: TopicPartition) -> str:
    return f"{place.topic}{_OF_PLACE}{place.partition}"


def _place_of(home: str) -> TopicPartition:
    topic, _, number = home.rpartition(_OF_PLACE)
    return TopicPartition(TopicName(topic), PartitionId(int(number)))
