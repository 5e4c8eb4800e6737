"""The participants of transactions in a cluster: each hears from its coordinator by requests.

What was decided is told to the leader of every partition, again and again with pauses, until the
leader of that time has answered that it is committed. A partition may get another leader at any
moment; each attempt finds out who it is.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from goqueue.base.cluster_limits import TX_PLACES_MAX
from goqueue.base.errors import (
    GoQueueError,
    LeaderNotAvailableError,
    PartitionNotFoundError,
    ShuttingDownError,
    TopicNotFoundError,
    from_code,
)
from goqueue.base.ids import NodeId, PartitionId, TopicName, TopicPartition
from goqueue.core.tx.producer import TxProducer
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.tx.hosted_producer import HostedTxProducer
from goqueue.runtime.tx.markers import Author, End, Sync
from goqueue.runtime.tx.tx_link import PAUSE_SECONDS, PAUSE_SECONDS_MAX, TX_TOPIC, TxLink
from goqueue.wire.peer_calls import PeerOperation
from goqueue.wire.tx_peer_calls import MarkKind, TxMark, TxMarked, TxMarks

ATTEMPTS_MAX: Final = 10
"""So often a mark is sent before who waits for it hears that it is not answered yet; some 3 s."""


class Message(NamedTuple):
    """What is told of one transaction, and the places that have not answered."""

    kind: MarkKind
    number: int
    author: Author
    marks: Sequence[TxMark]


Failures = list[tuple[Message, GoQueueError]]
"""Places that were not told, and why."""


class RemoteParticipants:
    """Leaders of partitions, on this node and on others."""

    are_here = False

    def __init__(
        self, topics: Mapping[TopicName, Topic], link: TxLink, home: Callable[[str], int]
    ) -> None:
        self._topics = topics
        self._link = link
        self._home = home
        self.is_stopped = False

    def __repr__(self) -> str:
        return f"<RemoteParticipants by {self._link!r}>"

    # What they have of a transaction.

    def count(self, producer: TxProducer) -> int | None:
        """Return how many messages there are: known where it writes to no partition."""
        return None if producer.partitions else 0

    def unproven(self, producer: TxProducer) -> list[tuple[str, int, int]]:
        """Return nothing: what was acknowledged is committed, and nothing else is counted."""
        del producer
        return []

    def syncs(self, ends: Iterable[tuple[str, int, int]]) -> list[Sync]:
        """Return nothing: a decision about what others have waits for their word."""
        del ends
        return []

    async def stored(self, hosted: HostedTxProducer) -> None:
        """Return when messages whose acks do not wait for the disk are durable, too."""
        producer = hosted.producer
        marks = [TxMark(topic, number) for topic, number in producer.partitions]
        loose = [mark for mark in marks if self._is_loose(mark.topic)]
        if loose:
            author = Author.of(producer)
            await self._tell(hosted, [Message(MarkKind.STORE, producer.number, author, loose)])

    def _is_loose(self, topic: str) -> bool:
        known = self._topics.get(TopicName(topic))
        return known is not None and not known.settings.is_fsync

    # How it ended.

    def enqueue(self, end: End) -> asyncio.Future[None]:
        """Refuse: nobody else hears in the same step."""
        raise AssertionError(f"{end} is delivered")

    async def deliver(
        self, hosted: HostedTxProducer, ends: Sequence[End], told: Callable[[], None]
    ) -> None:
        """Return when every leader has an end committed, then call back."""
        messages = [_message_of(end) for end in ends]
        await self._tell(hosted, [one for one in messages if one.marks])
        told()

    async def _tell(self, hosted: HostedTxProducer, messages: list[Message]) -> None:
        """Tell until all have answered, some times; stop when the producer is hosted elsewhere."""
        pause_s, failures = PAUSE_SECONDS, Failures()
        for attempt in range(ATTEMPTS_MAX):
            if not messages:
                return
            if attempt:
                await hosted.while_hosted(asyncio.sleep(pause_s))
                pause_s = min(pause_s * 2, PAUSE_SECONDS_MAX)
            if self.is_stopped:
                raise ShuttingDownError("the broker is stopping")
            failures = await hosted.while_hosted(self._try(hosted, messages))
            messages = [message for message, _ in failures]
        if failures:
            raise failures[0][1]

    async def _try(self, hosted: HostedTxProducer, messages: Sequence[Message]) -> Failures:
        """Tell everybody once; return who could not be told, and why."""
        coordinator = self._home(hosted.producer.name)
        epoch = self._epoch_of(coordinator)
        failures: Failures = []
        sends = []
        for message in messages:
            by_node, lost = self._sort(message)
            failures += lost
            for node, marks in by_node.items():
                for some in _cut(marks):
                    part = message._replace(marks=some)
                    sends.append(self._send(node, coordinator, epoch, part))
        for found in await asyncio.gather(*sends):
            failures += found
        return failures

    def _epoch_of(self, coordinator: int) -> int:
        topic = self._topics[TopicName(TX_TOPIC)]
        return topic.partition(coordinator).leadership.epoch

    def _sort(self, message: Message) -> tuple[dict[NodeId, list[TxMark]], Failures]:
        """Return the places by their leaders, and those that have none."""
        by_node: dict[NodeId, list[TxMark]] = {}
        lost: Failures = []
        for mark in message.marks:
            place = TopicPartition(TopicName(mark.topic), PartitionId(mark.partition))
            try:
                by_node.setdefault(self._link.leader_of(place), []).append(mark)
            except (TopicNotFoundError, PartitionNotFoundError):
                # Gone since, and everything in it.
                continue
            except LeaderNotAvailableError as error:
                lost.append((message._replace(marks=[mark]), error))
        return by_node, lost

    async def _send(self, to: NodeId, coordinator: int, epoch: int, message: Message) -> Failures:
        name, producer_id, producer_epoch = message.author
        call = TxMarks(
            coordinator,
            epoch,
            message.kind,
            message.number,
            name,
            producer_id,
            producer_epoch,
            list(message.marks),
        )
        try:
            answer = await self._link.request(to, PeerOperation.TX_MARK, call, TxMarked)
        except GoQueueError as error:
            return [(message, error)]
        found: Failures = []
        for one in answer.failures:
            if one.row < len(message.marks):
                failure = from_code(one.failure.code, one.failure.message)
                found.append((message._replace(marks=[message.marks[one.row]]), failure))
        return found


def _message_of(end: End) -> Message:
    """Return what is told of an end, and where."""
    marks = [TxMark(topic, number) for topic, number in end.partitions]
    marks += [
        TxMark(topic, number, held.group) for held in end.holds for topic, number in held.partitions
    ]
    if end.control.is_commit:
        marks += [
            TxMark(topic, number, settled.group, offset)
            for settled in end.offsets
            for topic, number, offset in settled.offsets
        ]
    kind = MarkKind.COMMIT if end.control.is_commit else MarkKind.ABORT
    return Message(kind, end.control.number, end.author, marks)


def _cut(marks: Sequence[TxMark]) -> Iterator[list[TxMark]]:
    """Yield as many places at a time as one request may name."""
    rest = iter(marks)
    while some := list(islice(rest, TX_PLACES_MAX)):
        yield some
