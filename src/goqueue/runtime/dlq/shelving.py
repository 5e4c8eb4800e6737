"""Where a job on dead letters finds the partitions they are in: here, or at their leaders.

A broker by itself has all of them. In a cluster the node that has the job asks the leader of each
partition, and the next one while leadership changes; it says in which epoch it has the job, so that
a node that was replaced works on nothing any more.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from goqueue.base.errors import (
    GoQueueError,
    InvalidRequestError,
    NotCoordinatorError,
    ProtocolError,
    StaleEpochError,
    TopicNotFoundError,
)
from goqueue.base.ids import NodeId, PartitionId, TopicName, TopicPartition
from goqueue.core.dlq.filter import Filter
from goqueue.core.dlq.record import read_story
from goqueue.core.dlq.redrive import Kind, Order
from goqueue.core.record.frame import read_header
from goqueue.core.record.message import Draft, Message
from goqueue.core.record.row import Row, encode_row
from goqueue.runtime.dlq.letters import DeadLetterRow
from goqueue.runtime.dlq.reports import Trial
from goqueue.runtime.dlq.shelf_steps import Left, ShelfCount, ShelfSteps, StepAsk, StepDone
from goqueue.runtime.forwarding import FORWARD_SECONDS, Forwarding
from goqueue.runtime.log.own_appends import check_topic
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import StateJournal
from goqueue.runtime.own_targets import OwnReply
from goqueue.wire.complaint import HEADER_FAULTS, complaint
from goqueue.wire.packet import Buffer
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation
from goqueue.wire.shelf_calls import SAMPLE_LETTERS, ShelfAsk, ShelfTold

_decode_ask: Final = msgspec.msgpack.Decoder(ShelfAsk).decode
_decode_told: Final = msgspec.msgpack.Decoder(ShelfTold).decode

HEARD_SECONDS: Final = 1.0
"""How long the progress of a job is asked for; then what was last heard is told."""

R = TypeVar("R")


class Shelving(Protocol):
    """What a job asks about the partitions of a topic of dead letters."""

    def epoch(self, topic: Topic) -> int:
        """Return in which epoch this node has the jobs of a topic, or raise that it has none."""
        ...

    def known(self, topic: Topic) -> Mapping[int, Left]:
        """Return how many letters ever left partitions, as was last heard."""
        ...

    async def refresh(self, topic: Topic, count: int) -> list[ShelfCount]:
        """Return how the first so many partitions stand, behind the steps under way."""
        ...

    async def hear(self, topic: Topic, count: int) -> None:
        """Bring what is known of the first so many partitions up to date, if they answer soon."""
        ...

    async def step(self, topic: Topic, number: int, ask: StepAsk) -> StepDone:
        """Work on one batch of a partition."""
        ...

    async def trial(self, topic: Topic, order: Order) -> Trial:
        """Return what a job would do."""
        ...

    def forget(self, topic: Topic) -> None:
        """Take notice that a topic is gone."""
        ...


class OwnShelving:
    """The partitions of a broker by itself."""

    def __init__(self, steps: ShelfSteps) -> None:
        self._steps = steps

    def __repr__(self) -> str:
        return f"<OwnShelving: {self._steps!r}>"

    def epoch(self, topic: Topic) -> int:  # noqa: ARG002 - it is always this broker
        """Return the only epoch there is."""
        return 0

    def known(self, topic: Topic) -> Mapping[int, Left]:
        """Return how many letters ever left each partition."""
        return {number: self._steps.left(topic, number) for number in range(len(topic.partitions))}

    async def refresh(self, topic: Topic, count: int) -> list[ShelfCount]:
        """Return how the first so many partitions stand."""
        return [await self._steps.count(topic, number) for number in range(count)]

    async def hear(self, topic: Topic, count: int) -> None:
        """Do nothing: what is known here is always up to date."""

    async def step(self, topic: Topic, number: int, ask: StepAsk) -> StepDone:
        """Work on one batch of a partition."""
        return await self._steps.step(topic, number, ask)

    async def trial(self, topic: Topic, order: Order) -> Trial:
        """Return what a job would do."""
        return await self._steps.trial(topic, range(len(topic.partitions)), order)

    def forget(self, topic: Topic) -> None:
        """Do nothing: nothing is kept here."""


class LedShelving:
    """The partitions of a cluster, at their leaders; answers for those that are led here."""

    def __init__(
        self,
        forwarding: Forwarding,
        topics: Mapping[TopicName, Topic],
        steps: ShelfSteps,
        state: StateJournal,
        *,
        state_topic: str,
    ) -> None:
        self._forwarding = forwarding
        self._topics = topics
        self._steps = steps
        self._state = state
        self._state_topic = TopicName(state_topic)
        self._known: dict[tuple[TopicName, int], dict[int, Left]] = {}

    def __repr__(self) -> str:
        return f"<LedShelving over {self._forwarding!r}>"

    def _job_home(self, topic: TopicName) -> TopicPartition:
        number = self._state.partition_of(topic)
        return TopicPartition(self._state_topic, PartitionId(number))

    def epoch(self, topic: Topic) -> int:
        """Return in which epoch this node has the jobs of a topic, or raise that it has none."""
        leader = self._forwarding.topology.leader_of(self._job_home(topic.record.name))
        if leader.node is None or not self._forwarding.is_here(leader.node):
            raise NotCoordinatorError(f"the jobs of {topic.record.name} are another node's")
        return leader.epoch

    def known(self, topic: Topic) -> Mapping[int, Left]:
        """Return how many letters ever left partitions, as was last heard of their leaders."""
        return self._known.get(_life(topic), {})

    def forget(self, topic: Topic) -> None:
        """Take notice that a topic is gone."""
        self._known.pop(_life(topic), None)

    # Asking.

    async def refresh(self, topic: Topic, count: int) -> list[ShelfCount]:
        """Return how the first so many partitions stand, or raise if one leader does not say."""
        epoch = self.epoch(topic)
        return await _all(
            [
                self._counted(topic, number, _asked("count", topic, number, epoch=epoch))
                for number in range(count)
            ]
        )

    async def hear(self, topic: Topic, count: int) -> None:
        """Bring what is known of the first so many partitions up to date, if they answer soon."""
        asked = [_asked("left", topic, number) for number in range(count)]
        asking = [self._counted(topic, one.partition, one) for one in asked]
        with contextlib.suppress(GoQueueError, TimeoutError):
            async with asyncio.timeout(HEARD_SECONDS):
                await _all(asking)

    async def _counted(self, topic: Topic, number: int, ask: ShelfAsk) -> ShelfCount:
        told, _ = await self._ask(ask)
        return ShelfCount(told.end_offset, told.depth, self._note(topic, number, told))

    async def step(self, topic: Topic, number: int, ask: StepAsk) -> StepDone:
        """Work on one batch of a partition, at its leader."""
        epoch, job = ask.job
        told, _ = await self._ask(
            _asked(
                "step",
                topic,
                number,
                epoch=epoch,
                job=job,
                order=_order_at(ask.order, number),
                start=ask.start,
                end=ask.end,
                allowed=ask.allowed,
            )
        )
        return StepDone(
            told.next_offset,
            self._note(topic, number, told),
            told.taken,
            told.unmatched,
            told.skipped,
            told.is_paced,
            told.is_over,
        )

    async def trial(self, topic: Topic, order: Order) -> Trial:
        """Return what a job would do, as all leaders say."""
        numbers = range(len(topic.partitions))
        answers = await _all(
            [
                self._ask(_asked("trial", topic, number, order=_order_at(order, number)))
                for number in numbers
            ]
        )
        sample: list[DeadLetterRow] = []
        for number, (told, payload) in zip(numbers, answers, strict=True):
            place = TopicPartition(topic.record.name, PartitionId(number))
            sample += _read_letters(place, told.sizes, payload)
        told_all = [told for told, _ in answers]
        return Trial(
            sum(told.taken for told in told_all),
            sum(told.unmatched for told in told_all),
            sum(told.skipped for told in told_all),
            sample[:SAMPLE_LETTERS],
            any(told.is_cut for told in told_all),
        )

    def _note(self, topic: Topic, number: int, told: ShelfTold) -> Left:
        left = {Kind.REDRIVE: told.redriven, Kind.PURGE: told.purged}
        self._known.setdefault(_life(topic), {})[number] = left
        return left

    async def _ask(self, ask: ShelfAsk) -> tuple[ShelfTold, memoryview]:
        place = TopicPartition(TopicName(ask.topic), PartitionId(ask.partition))

        async def at(node: NodeId) -> tuple[ShelfTold, memoryview]:
            if self._forwarding.is_here(node):
                told, frames = await self._serve(ask)
                return told, memoryview(b"".join(frames))
            packet = await self._forwarding.topology.request(
                node, PeerOperation.DEAD_LETTERS, ask, (), timeout_s=FORWARD_SECONDS
            )
            try:
                return _decode_told(packet.header), packet.payload
            except msgspec.MsgspecError as error:
                raise ProtocolError(f"node {node} answered what cannot be read") from error

        return await self._forwarding.find(lambda: self._forwarding.leader(place), at)

    # Answering.

    def handlers(
        self,
    ) -> Mapping[PeerOperation, Callable[[PeerIdentity, Buffer, memoryview], Awaitable[OwnReply]]]:
        """Return what peers may ask."""
        return {PeerOperation.DEAD_LETTERS: self.answer}

    async def answer(self, _: PeerIdentity, header: Buffer, __: memoryview) -> OwnReply:
        """Answer the node that has a job on dead letters which are led here, or raise."""
        try:
            ask = _decode_ask(header)
        except HEADER_FAULTS as error:
            raise InvalidRequestError(f"dead_letters: {complaint(ShelfAsk, error)}") from error
        told, frames = await self._serve(ask)
        return OwnReply(told, tuple(frames))

    async def _serve(self, ask: ShelfAsk) -> tuple[ShelfTold, Sequence[bytes]]:
        topology = self._forwarding.topology
        try:
            self._check_known(ask)
        except TopicNotFoundError:
            # This node may hear of a new topic later than the one that has the job.
            await topology.catch_up()
            self._check_known(ask)
        topic = check_topic(self._topics, ask.topic, ask.life)
        topic.partition(ask.partition).check_writable()
        topology.check_live()
        if ask.verb == "trial":
            trial = await self._steps.trial(topic, [ask.partition], _order_of(ask))
            return _told_trial(trial)
        if ask.verb == "left":
            return _told(self._steps.left(topic, ask.partition)), ()
        self._check_epoch(ask)
        if ask.verb == "count":
            count = await self._steps.count(topic, ask.partition)
            told = msgspec.structs.replace(
                _told(count.left), end_offset=count.end_offset, depth=count.depth
            )
            return told, ()
        job = (ask.epoch, ask.job)
        wanted = StepAsk(job, _order_of(ask), ask.start, ask.end, ask.allowed)
        done = await self._steps.step(topic, ask.partition, wanted)
        told = msgspec.structs.replace(
            _told(done.left),
            next_offset=done.next_offset,
            taken=done.taken,
            unmatched=done.unmatched,
            skipped=done.skipped,
            is_paced=done.is_paced,
            is_over=done.is_over,
        )
        return told, ()

    def _check_known(self, ask: ShelfAsk) -> None:
        check_topic(self._topics, ask.topic, ask.life)
        if ask.verb == "step" and ask.order is not None and ask.order.target:
            target = ask.order.target
            if TopicName(target) not in self._topics:
                raise TopicNotFoundError(f"topic not found: {target}")

    def _check_epoch(self, ask: ShelfAsk) -> None:
        """Refuse a node whose jobs are another one's now."""
        current = self._forwarding.topology.leader_of(self._job_home(TopicName(ask.topic))).epoch
        if ask.epoch < current:
            raise StaleEpochError(
                f"jobs of {ask.topic} are decided about in epoch {current}, not in {ask.epoch}"
            )


async def _all(asking: Sequence[Awaitable[R]]) -> list[R]:
    """Return all answers, or raise the first error when all are over."""
    outcomes = await asyncio.gather(*asking, return_exceptions=True)
    found: list[R] = []
    for one in outcomes:
        if isinstance(one, BaseException):
            raise one
        found.append(one)
    return found


def _life(topic: Topic) -> tuple[TopicName, int]:
    return topic.record.name, topic.record.created_ms


def _asked(verb: str, topic: Topic, number: int, **fields: object) -> ShelfAsk:
    name, life = _life(topic)
    asked = ShelfAsk("count", name, number, life)
    return msgspec.structs.replace(asked, verb=verb, **fields)


def _order_at(order: Order, number: int) -> Order:
    """Return what an order means for one partition: of the places it names, its own."""
    places = order.filter.places
    if places is None:
        return order
    own: dict[int, list[int]] = {number: places[number]} if number in places else {}
    chosen: Filter = msgspec.structs.replace(order.filter, places=own)
    return msgspec.structs.replace(order, filter=chosen)


def _order_of(ask: ShelfAsk) -> Order:
    if ask.order is None:
        raise InvalidRequestError("order: it is missing")
    return ask.order


def _told(left: Left) -> ShelfTold:
    return ShelfTold(redriven=left[Kind.REDRIVE], purged=left[Kind.PURGE])


def _told_trial(trial: Trial) -> tuple[ShelfTold, Sequence[bytes]]:
    frames = [frame_of(letter.message) for letter in trial.sample]
    told = ShelfTold(
        taken=trial.matched,
        unmatched=trial.unmatched,
        skipped=trial.skipped,
        is_cut=trial.is_cut,
        sizes=[len(frame) for frame in frames],
    )
    return told, frames


def frame_of(message: Message) -> bytes:
    """Return a message as a row frame, to travel."""
    draft = Draft(
        key=message.key,
        value=message.value,
        timestamp_us=message.timestamp_us,
        headers=message.headers,
        priority=message.priority,
    )
    return encode_row(draft, offset=message.offset)


def _read_letters(
    place: TopicPartition, sizes: Sequence[int], payload: memoryview
) -> list[DeadLetterRow]:
    letters: list[DeadLetterRow] = []
    position = 0
    for size in sizes:
        frame = payload[position : position + size]
        position += size
        message = Row(read_header(frame), frame).message(place.topic, place.partition)
        letters.append(DeadLetterRow(message, read_story(message.headers)))
    return letters
