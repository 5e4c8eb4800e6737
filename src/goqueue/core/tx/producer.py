"""One transactional producer and its latest transaction.

Shape: decider. The verbs only decide; ``apply`` only changes state. Each transaction has a number
of its own: a late or repeated request of an earlier one changes nothing and is told so.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from goqueue.base.errors import (
    InvalidRequestError,
    InvalidTransactionStateError,
    ProducerFencedError,
    StaleTransactionError,
    UnknownProducerError,
)
from goqueue.base.ids import Epoch, ProducerId
from goqueue.base.ids import Sequence as SequenceNumber
from goqueue.base.limits import TX_PARTITIONS_MAX, TX_TIMEOUT_MS_MAX, TX_TOKEN_CHARACTERS_MAX
from goqueue.core.decision import Decision
from goqueue.core.record.stamp import ProducerStamp
from goqueue.core.tx import events
from goqueue.core.tx.events import Event, Place
from goqueue.core.tx.states import IDLE, PREPARED, State, after

COMMIT: Final = "commit"
ABORT: Final = "abort"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks, and of which transaction; without a number, of whichever is open."""

    producer_id: int
    epoch: int
    number: int | None = None


class TxProducer:
    """Knows one transactional id."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = State.DEAD
        self.producer_id = 0
        self.epoch = 0
        self.timeout_ms = 0
        self.number = 0
        """The latest transaction."""
        self.begun_at_ms = 0
        self.partitions: dict[Place, None] = {}
        self.offsets: list[events.OffsetsAdded] = []
        self.holds: list[events.HoldsAdded] = []
        self.token = ""
        """What the last commit left for whoever comes next."""
        self.is_closing = False
        """A newer life is about to begin: this one is over, stored or not."""
        self._pending_token = ""
        self._begun_ms = 0
        self._heard_ms = 0

    def __repr__(self) -> str:
        return f"<TxProducer {self.name}: {self.state} in epoch {self.epoch}>"

    @property
    def stamp(self) -> ProducerStamp:
        """Who its latest life is."""
        return ProducerStamp(ProducerId(self.producer_id), Epoch(self.epoch), SequenceNumber(0))

    # What producers ask for.

    def init(
        self, *, producer_id: int, epoch: int, timeout_ms: int, at_ms: int
    ) -> Decision[Event, None]:
        """Begin a new life; nothing may be open any more."""
        if not 1 <= timeout_ms <= TX_TIMEOUT_MS_MAX:
            raise InvalidRequestError(
                f"transaction_timeout_ms: {timeout_ms} is not between 1 and {TX_TIMEOUT_MS_MAX}"
            )
        assert self.state in IDLE or self.state is State.DEAD, "what was open is ended first"
        event = events.Initialised(
            producer_id=producer_id, epoch=epoch, timeout_ms=timeout_ms, at_ms=at_ms
        )
        return Decision((event,), None)

    def begin(self, who: Identity, *, number: int, at_ms: int) -> Decision[Event, None]:
        """Begin a transaction."""
        self.check_life(who)
        if self.state not in IDLE:
            raise InvalidTransactionStateError("transaction already in progress")
        return Decision((events.Begun(number=number, at_ms=at_ms),), None)

    def add_partitions(self, who: Identity, places: Sequence[Place]) -> Decision[Event, None]:
        """Let the transaction write to partitions."""
        self.check_open(who)
        fresh = [place for place in dict.fromkeys(places) if place not in self.partitions]
        if len(self.partitions) + len(fresh) > TX_PARTITIONS_MAX:
            raise InvalidRequestError(
                f"a transaction may write to {TX_PARTITIONS_MAX} partitions at most"
            )
        return Decision((events.PartitionsAdded(partitions=fresh),) if fresh else (), None)

    def add_offsets(
        self, who: Identity, group: str, offsets: Sequence[tuple[str, int, int]]
    ) -> Decision[Event, None]:
        """Let the transaction commit offsets of a group."""
        self.check_open(who)
        self._check_room(len(offsets))
        event = events.OffsetsAdded(group=group, offsets=list(offsets))
        return Decision((event,) if offsets else (), None)

    def add_holds(
        self, who: Identity, group: str, places: Sequence[Place]
    ) -> Decision[Event, None]:
        """Let the transaction settle what a group has leased in partitions."""
        self.check_open(who)
        known = {place for one in self.holds if one.group == group for place in one.partitions}
        fresh = [place for place in dict.fromkeys(places) if place not in known]
        self._check_room(len(fresh))
        event = events.HoldsAdded(group=group, partitions=fresh)
        return Decision((event,) if fresh else (), None)

    def learn_partition(self, place: Place) -> Decision[Event, None]:
        """Take notice of a partition a crash kept the producer's words about from being stored."""
        found = () if place in self.partitions else (events.PartitionsAdded(partitions=[place]),)
        return Decision(found, None)

    def learn_hold(self, group: str, place: Place) -> Decision[Event, None]:
        """Take notice of a hold a crash kept the producer's words about from being stored."""
        known = any(one.group == group and place in one.partitions for one in self.holds)
        found = () if known else (events.HoldsAdded(group=group, partitions=[place]),)
        return Decision(found, None)

    def prepare(self, who: Identity, outcome: str, *, token: str = "") -> Decision[Event, bool]:
        """Decide the outcome of the open transaction; tell whether it was decided before.

        The same outcome may be asked for again and again; the other one is refused.
        """
        self.check_life(who)
        self._check_number(who)
        if len(token) > TX_TOKEN_CHARACTERS_MAX:
            raise InvalidRequestError(
                f"token: {len(token)} characters; the limit is {TX_TOKEN_CHARACTERS_MAX}"
            )
        if self.state is State.ONGOING:
            event: Event = (
                events.CommitPrepared(token=token) if outcome == COMMIT else events.AbortPrepared()
            )
            return Decision((event,), False)  # noqa: FBT003 - the reply is the answer
        if self.outcome() != outcome:
            raise InvalidTransactionStateError(
                f"invalid transaction state {self.state}: it cannot be ended by {outcome}"
            )
        return Decision((), True)  # noqa: FBT003 - the reply is the answer

    def give_up(self, reason: str) -> Decision[Event, None]:
        """Abort the open transaction because of time or a successor."""
        found = (events.AbortPrepared(reason=reason),) if self.state is State.ONGOING else ()
        return Decision(found, None)

    def complete(self) -> Decision[Event, None]:
        """Note that everybody has heard of the end."""
        return Decision((events.Completed(),) if self.state in PREPARED else (), None)

    def expire(self) -> Decision[Event, None]:
        """Let go of a producer that is idle for too long."""
        return Decision((events.Expired(),) if self.state in IDLE else (), None)

    # Looking.

    def outcome(self) -> str | None:
        """Return how the latest transaction ended or is ending."""
        match self.state:
            case State.PREPARE_COMMIT | State.COMPLETE_COMMIT:
                return COMMIT
            case State.PREPARE_ABORT | State.COMPLETE_ABORT:
                return ABORT
            case State.EMPTY | State.ONGOING | State.DEAD:
                return None

    @property
    def groups(self) -> list[str]:
        """The groups in which the transaction settles something."""
        return sorted({one.group for one in self.offsets} | {one.group for one in self.holds})

    def check_open(self, who: Identity) -> None:
        """Raise unless who speaks has this transaction open."""
        self.check_life(who)
        self._check_number(who)
        if self.state is not State.ONGOING:
            raise InvalidTransactionStateError(
                f"invalid transaction state {self.state}: no transaction is open"
            )

    def check_life(self, who: Identity) -> None:
        """Raise unless who speaks is the latest life of this producer."""
        if self.state is State.DEAD or who.producer_id != self.producer_id:
            raise UnknownProducerError(
                f"producer {who.producer_id} is not the one of {self.name}; init it again"
            )
        if who.epoch != self.epoch or self.is_closing:
            raise ProducerFencedError("producer fenced by newer instance")

    def _check_number(self, who: Identity) -> None:
        if who.number is not None and who.number != self.number:
            raise StaleTransactionError(
                f"transaction {who.number:016x} is over; the producer has gone on since"
            )

    def _check_room(self, count: int) -> None:
        known = sum(len(one.offsets) for one in self.offsets)
        known += sum(len(one.partitions) for one in self.holds)
        if known + count > TX_PARTITIONS_MAX:
            raise InvalidRequestError(
                f"a transaction may settle in {TX_PARTITIONS_MAX} partitions at most"
            )

    # Time. Not stored: a restart gives everybody their whole time again.

    def touch(self, now_ms: int) -> None:
        """Note that the producer was heard of."""
        self._heard_ms = now_ms

    def silent_ms(self, now_ms: int) -> int:
        """Return for how long the producer was not heard of."""
        return now_ms - self._heard_ms

    def deadline_ms(self) -> int | None:
        """Return when the open transaction is aborted."""
        return self._begun_ms + self.timeout_ms if self.state is State.ONGOING else None

    def start_clock(self, now_ms: int) -> None:
        """Count the time of the open transaction from now on."""
        self._begun_ms = self._heard_ms = now_ms

    # Changing.

    def apply(self, event: Event) -> None:  # noqa: C901 - one case for each event
        """Change state by one event."""
        match event:
            case events.Initialised():
                self.producer_id, self.epoch = event.producer_id, event.epoch
                self.timeout_ms = event.timeout_ms
                self.is_closing = False
                self._forget()
                self.number = 0
            case events.Begun(number=number, at_ms=at_ms):
                self._forget()
                self.number, self.begun_at_ms = number, at_ms
            case events.PartitionsAdded(partitions=partitions):
                self.partitions |= dict.fromkeys((topic, number) for topic, number in partitions)
            case events.OffsetsAdded():
                self.offsets.append(event)
            case events.HoldsAdded():
                self.holds.append(event)
            case events.CommitPrepared(token=token):
                self._pending_token = token
            case events.AbortPrepared():
                self._pending_token = ""
            case events.Completed():
                if self.state is State.PREPARE_COMMIT:
                    self.token = self._pending_token
            case events.Expired():
                self._forget()
            case events.Restored():
                self._restore(event)
                return
        self.state = after(self.state, event)

    def _forget(self) -> None:
        self.partitions = {}
        self.offsets = []
        self.holds = []
        self._pending_token = ""

    def snapshot(self) -> Iterable[Event]:
        """Return the event that rebuilds this state."""
        yield events.Restored(
            state=self.state,
            producer_id=self.producer_id,
            epoch=self.epoch,
            timeout_ms=self.timeout_ms,
            number=self.number,
            begun_at_ms=self.begun_at_ms,
            partitions=list(self.partitions),
            offsets=list(self.offsets),
            holds=list(self.holds),
            token=self.token,
            pending_token=self._pending_token,
        )

    def _restore(self, event: events.Restored) -> None:
        self.state = State(event.state)
        self.producer_id, self.epoch = event.producer_id, event.epoch
        self.timeout_ms, self.number = event.timeout_ms, event.number
        self.begun_at_ms = event.begun_at_ms
        self.partitions = dict.fromkeys((topic, number) for topic, number in event.partitions)
        self.offsets, self.holds = list(event.offsets), list(event.holds)
        self.token, self._pending_token = event.token, event.pending_token
