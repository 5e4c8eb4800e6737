"""What a producer of a cluster sends next, and to which node. No I/O.

Every partition has an outbox of its own, with its own identity: order, sequences and doubts are
matters of a partition, so one whose leader is gone holds up none of the others. Batches of one pile
for partitions with one leader go out in one request.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple

import msgspec

from goqueue.base.errors import (
    ClosedError,
    GoQueueError,
    InvalidTransactionStateError,
    LeaderNotAvailableError,
    ProtocolError,
    from_code,
)
from goqueue.base.limits import PRODUCER_IDS_ASKED_MAX
from goqueue.client.protocol.cluster_view import LOST, MOVED, ClusterView
from goqueue.client.protocol.exchange import Answer, decode
from goqueue.client.protocol.outbox import Batch, Outbox, OwnerType, Pause, Step, produced_of
from goqueue.client.protocol.tx_outbox import TxOutbox
from goqueue.wire import calls
from goqueue.wire.packet import Buffer

PAUSE_SECONDS_MAX: Final = 0.25
"""The longest pause before a partition is tried again: its leader is there again any moment."""

Place = tuple[str, int]


class _Piece(NamedTuple, Generic[OwnerType]):
    """Batches of one partition, and the outbox they are from."""

    lane: Outbox[OwnerType]
    batches: list[Batch[OwnerType]]


class _LeaderRequest(NamedTuple, Generic[OwnerType]):
    """What goes to one node in one request."""

    node: str
    pieces: list[_Piece[OwnerType]]

    @property
    def batches(self) -> list[Batch[OwnerType]]:
        return [batch for piece in self.pieces for batch in piece.batches]


class RoutedOutbox(Generic[OwnerType]):
    """The batches of one producer for the leaders of their partitions."""

    def __init__(
        self,
        view: ClusterView,
        make: Callable[[], Outbox[OwnerType]],
        *,
        in_flight_max: int,
    ) -> None:
        self._view = view
        self._make = make
        self._in_flight_max = in_flight_max
        self.on_change: Callable[[], None] = lambda: None
        """Called when a batch was placed or failed."""
        self._fatal: GoQueueError | None = None
        self._lanes: dict[Place, Outbox[OwnerType]] = {}
        self._awake: dict[Outbox[OwnerType], None] = {}
        """Those in which something has happened since they were asked for a step."""
        self._resting: dict[Outbox[OwnerType], float] = {}
        """Until when those that wait for a time are not asked."""
        self._strangers: dict[Outbox[OwnerType], calls.InitProducer] = {}
        """Those that need an identity."""
        self._introducing: list[Outbox[OwnerType]] = []
        self._ready: deque[_LeaderRequest[OwnerType]] = deque()
        self._requests: dict[int, _LeaderRequest[OwnerType]] = {}
        """Those under way, by the identity of their first batch."""
        self._unsettled = 0

    def __repr__(self) -> str:
        return f"<RoutedOutbox of {len(self._lanes)} partitions, {len(self._requests)} under way>"

    @property
    def fatal(self) -> GoQueueError | None:
        """Why nothing more is sent."""
        return self._fatal

    @property
    def has_slot(self) -> bool:
        """Return True if requests could go out at once."""
        most = self._in_flight_max * max(len(self._view.nodes), 1)
        return not self._ready and len(self._requests) < most

    @property
    def is_idle(self) -> bool:
        """Return True if every batch is placed or failed."""
        return not self._unsettled

    @property
    def deadline(self) -> float:
        """Return when the last of the batches must be placed."""
        return max(lane.deadline for lane in self._lanes.values() if not lane.is_idle)

    def submit(self, batches: list[Batch[OwnerType]]) -> None:
        """Queue batches of one topic; those for one leader go out in one request."""
        own: dict[Place, list[Batch[OwnerType]]] = {}
        for batch in batches:
            own.setdefault((batch.owner.topic, batch.part.partition), []).append(batch)
        self._unsettled += len(batches)
        for place, some in own.items():
            lane = self._lane(place)
            lane.submit(some)
            self._awake[lane] = None

    def _lane(self, place: Place) -> Outbox[OwnerType]:
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = self._make()
            lane.backoff_s_max = PAUSE_SECONDS_MAX
            lane.on_change = self._one_settled
            lane.fatal = self._fatal
        return lane

    def _one_settled(self) -> None:
        self._unsettled -= 1
        self.on_change()

    def abort(self, reason: GoQueueError | None = None) -> None:
        """Fail everything that is not placed, and all that may follow."""
        closed = ClosedError("the producer was closed before this was sent")
        self._fatal = self._fatal or reason or closed
        for lane in self._lanes.values():
            lane.abort(self._fatal)
        self._forget_all()

    def forget(self, reason: GoQueueError) -> None:
        """Fail everything that is not placed; its numbers may be taken or not."""
        for lane in self._lanes.values():
            lane.forget(reason)
        self._forget_all()

    def _forget_all(self) -> None:
        self._awake, self._resting, self._strangers = {}, {}, {}
        self._introducing, self._ready, self._requests = [], deque(), {}

    def expire(self, now: float) -> None:
        """Fail what waits and is past its deadline."""
        for lane in list(self._resting):
            lane.expire(now)
            self._wake(lane)

    # What to do next.

    def step(self, now: float) -> Step[OwnerType]:
        """Return what to send to one node, or when to ask again; None until something happens."""
        self._collect(now)
        request = self._next_request()
        if request is not None:
            batches = request.batches
            self._requests[id(batches[0])] = request
            return batches
        if self._strangers and not self._introducing:
            return self._introduce()
        if self._resting:
            return Pause(min(self._resting.values()))
        return None

    def _collect(self, now: float) -> None:
        """Ask every outbox in which something happened what it sends, and put that together."""
        for lane in [one for one, until in self._resting.items() if until <= now]:
            self._wake(lane)
        requests: dict[tuple[str, int], list[_Piece[OwnerType]]] = {}
        while self._awake:
            lane = next(iter(self._awake))
            del self._awake[lane]
            self._ask(lane, requests, now)
        self._ready += [_LeaderRequest(node, pieces) for (node, _), pieces in requests.items()]

    def _wake(self, lane: Outbox[OwnerType]) -> None:
        self._resting.pop(lane, None)
        self._awake[lane] = None

    def _ask(
        self,
        lane: Outbox[OwnerType],
        requests: dict[tuple[str, int], list[_Piece[OwnerType]]],
        now: float,
    ) -> None:
        while (step := lane.step(now)) is not None:
            if isinstance(step, Pause):
                self._resting[lane] = step.until
                return
            if isinstance(step, calls.InitProducer):
                self._strangers[lane] = step
                return
            first = step[0]
            topic, partition = first.owner.topic, first.part.partition
            leader = self._view.leader_of(topic, partition)
            if leader is None:
                self._view.mark_stale()
                reason = f"{topic}/{partition} has no leader at present{self._view.trouble()}"
                lane.failed(step, LeaderNotAvailableError(reason), now)
            else:
                requests.setdefault((leader, first.number), []).append(_Piece(lane, step))
        if lane.fatal is not None and self._fatal is None:
            self._doom(lane.fatal)

    def _doom(self, error: GoQueueError) -> None:
        """End the producer by what one of its partitions met with."""
        self.abort(error)

    def _next_request(self) -> _LeaderRequest[OwnerType] | None:
        """Return the first request whose node has room for one more."""
        busy: dict[str, int] = {}
        for request in self._requests.values():
            busy[request.node] = busy.get(request.node, 0) + 1
        for place, request in enumerate(self._ready):
            if busy.get(request.node, 0) < self._in_flight_max:
                del self._ready[place]
                return request
        return None

    def _introduce(self) -> calls.InitProducer:
        """Ask for an identity: the next life of one outbox, or new ones for all that have none."""
        for lane, header in self._strangers.items():
            if header.producer_id:
                self._introducing = [lane]
                return header
        self._introducing = list(self._strangers)[:PRODUCER_IDS_ASKED_MAX]
        return calls.InitProducer(0, 0, len(self._introducing))

    # What a request says.

    @staticmethod
    def seconds_left(batches: Sequence[Batch[OwnerType]], now: float) -> float:
        """Return how long an answer may be waited for."""
        return Outbox.seconds_left(batches, now)

    def node_of(self, batches: Sequence[Batch[OwnerType]]) -> str:
        """Return the address of the node that a request is for."""
        request = self._requests.get(id(batches[0]))
        return "" if request is None else request.node

    def content(
        self, batches: Sequence[Batch[OwnerType]]
    ) -> tuple[calls.Produce, Sequence[Buffer]]:
        """Return the header and the payload of a request."""
        request = self._requests[id(batches[0])]
        parts: list[calls.ProducePart] = []
        payload: list[Buffer] = []
        for lane, own in request.pieces:
            more, frames = lane.packed(own)
            parts += more
            payload += frames
        return request.pieces[0].lane.header_of(batches, parts), payload

    # What came back.

    def answered(self, batches: Sequence[Batch[OwnerType]], answer: Answer, now: float) -> None:
        """Take the reply to a request."""
        try:
            produced = produced_of(answer, len(batches))
        except ProtocolError as error:
            self.failed(batches, error, now)
            return
        request = self._requests.pop(id(batches[0]), None)
        if request is None:
            return
        place = 0
        for lane, own in request.pieces:
            parts = produced.parts[place : place + len(own)]
            place += len(own)
            for failure in (part.failure for part in parts if part.failure is not None):
                if isinstance(from_code(failure.code, failure.message), MOVED):
                    self._view.mark_stale()
            lane.took(own, msgspec.structs.replace(produced, parts=parts), now)
            self._wake(lane)

    def failed(self, batches: Sequence[Batch[OwnerType]], error: GoQueueError, now: float) -> None:
        """Take note that a request was refused, or that no answer came."""
        request = self._requests.pop(id(batches[0]), None)
        if request is None:
            return
        if isinstance(error, LOST):
            self._view.suspect(request.node, now)
            error = type(error)(f"{self._view.name_of(request.node)}: {error.message}")
        elif isinstance(error, MOVED):
            self._view.mark_stale()
        for lane, own in request.pieces:
            lane.failed(own, error, now)
            self._wake(lane)

    def introduced(self, answer: Answer, now: float) -> None:
        """Take the identities that were asked for."""
        try:
            identity = decode(answer.header, calls.ProducerIdentity)
        except ProtocolError as error:
            self.not_introduced(error, now)
            return
        lanes, self._introducing = self._introducing, []
        others = [calls.ProducerIdentity(number, 0) for number in identity.others]
        # A broker that gives one at a time is asked again for the rest.
        for lane, own in zip(lanes, [identity, *others], strict=False):
            self._strangers.pop(lane, None)
            lane.become(own)
            self._wake(lane)

    def not_introduced(self, error: GoQueueError, now: float) -> None:
        """Take note that there is no identity yet."""
        lanes, self._introducing = self._introducing, []
        for lane in lanes:
            self._strangers.pop(lane, None)
            lane.not_introduced(error, now)
            self._wake(lane)
            if lane.fatal is not None:
                self._doom(lane.fatal)
                return


class RoutedTxOutbox(RoutedOutbox[OwnerType]):
    """The batches of transactions: all partitions have the identity of their session."""

    is_ended = False
    """Never: a commit behind messages of several leaders waits until they have them all."""
    end_failure: GoQueueError | None = None

    def __init__(
        self, view: ClusterView, make: Callable[[], TxOutbox[OwnerType]], *, in_flight_max: int
    ) -> None:
        super().__init__(view, make, in_flight_max=in_flight_max)
        self._identity: calls.ProducerIdentity | None = None

    def _lane(self, place: Place) -> Outbox[OwnerType]:
        is_new = place not in self._lanes
        lane = super()._lane(place)
        if is_new and self._identity is not None:
            self._tx(lane).identify(self._identity)
            lane.fatal = self._fatal
        return lane

    def _doom(self, error: GoQueueError) -> None:
        self.shut(error)

    @staticmethod
    def _tx(lane: Outbox[OwnerType]) -> TxOutbox[OwnerType]:
        assert isinstance(lane, TxOutbox), "made as one"
        return lane

    def identify(self, identity: calls.ProducerIdentity) -> None:
        """Use an identity from now on, with nothing under way."""
        self._identity = identity
        self._fatal = None
        self._forget_all()
        for lane in self._lanes.values():
            self._tx(lane).identify(identity)

    @property
    def is_spoiled(self) -> bool:
        """Whether sequence numbers were given away that the broker may not have seen."""
        return any(self._tx(lane).is_spoiled for lane in self._lanes.values())

    @property
    def rows(self) -> int:
        """How many messages of the transaction were given to be sent."""
        return sum(self._tx(lane).rows for lane in self._lanes.values())

    @property
    def is_all_sent(self) -> bool:
        """Return True if everything is under way or there, with no trouble so far."""
        are_sent = all(self._tx(lane).is_all_sent for lane in self._lanes.values())
        return are_sent and not self._ready and self._fatal is None

    def commit_with_last(self, rows_elsewhere: int, token: str) -> None:
        """Refuse: messages of several leaders and the decision are not one request."""
        del rows_elsewhere, token
        raise InvalidTransactionStateError("a commit in a cluster is a request of its own")

    def shut(self, reason: GoQueueError) -> None:
        """Send no more; what is under way may still be answered."""
        self._fatal = self._fatal or reason
        self._resting, self._awake = {}, {}
        for request in list(self._ready):
            self._requests[id(request.batches[0])] = request
            self.failed(request.batches, self._fatal, -math.inf)
        self._ready.clear()
        for lane in self._lanes.values():
            self._tx(lane).shut(self._fatal)
