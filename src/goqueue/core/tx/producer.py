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
from goqueue.core.tx.events import Event, Notice, Place
from goqueue.core.tx.states import IDLE, PREPARED, TxState, after

COMMIT: Final = "commit"
ABORT: Final = "abort"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks, and of which transaction; without a number, of whichever is open."""

    producer_id: int
    epoch: int
    number: int | None = None

    def in_transaction(self, number: int) -> "Identity":
        """Return who speaks of a transaction, unless one was named."""
        return self if self.number else msgspec.structs.replace(self, number=number or None)


class TxProducer:
    """Knows one transactional id."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = TxState.DEAD
        self.producer_id = 0
        self.epoch = 0
        self.timeout_ms = 0
        self.renews: tuple[int, int] | None = None
        """The life that asked for the latest one, by id and epoch."""
        self.number = 0
        """The latest transaction."""
        self.begun_at_ms = 0
        self.partitions: dict[Place, None] = {}
        self.offsets: list[events.OffsetsAdded] = []
        self.holds: list[events.HoldsAdded] = []
        self.token = ""
        """What the last commit left for the next life."""
        self.is_detached = False
        """Nothing is added to the transaction any more; it waits to be adopted."""
        self.adopted: dict[int, events.Child] = {}
        """By their numbers, the transactions that end as this one does."""
        self.adopter = ""
        """Whose transaction decides about this one. Not stored: the adopter's event says so."""
        self.is_closing = False
        """A newer life is about to begin: this one is over, stored or not."""
        self.ends: list[tuple[str, int, int]] = []
        """The last messages of a decided commit that the disks have still to confirm."""
        self.is_told = False
        """The outcome was announced everywhere; not stored, since a start announces it again."""
        self.unfinished: dict[int, events.Ending] = {}
        """Earlier commits of which the disks have not confirmed that everybody was told."""
        self._pending_token = ""

    def __repr__(self) -> str:
        return f"<TxProducer {self.name}: {self.state} in epoch {self.epoch}>"

    @property
    def stamp(self) -> ProducerStamp:
        """Who its latest life is."""
        return ProducerStamp(ProducerId(self.producer_id), Epoch(self.epoch), SequenceNumber(0))

    # What producers ask for.

    def init(
        self,
        *,
        producer_id: int,
        epoch: int,
        timeout_ms: int,
        at_ms: int,
        renews: tuple[int, int] | None = None,
    ) -> Decision[Event, None]:
        """Begin a new life; nothing may be open any more."""
        if not 1 <= timeout_ms <= TX_TIMEOUT_MS_MAX:
            raise InvalidRequestError(
                f"transaction_timeout_ms: {timeout_ms} is not between 1 and {TX_TIMEOUT_MS_MAX}"
            )
        assert self.state in IDLE or self.state is TxState.DEAD, "what was open is ended first"
        event = events.Initialised(
            producer_id=producer_id,
            epoch=epoch,
            timeout_ms=timeout_ms,
            at_ms=at_ms,
            renews=renews,
        )
        return Decision((event,), None)

    def is_repeat(self, who: Identity) -> bool:
        """Return True if a life asks again for the one it was given, which has done nothing yet."""
        return self.renews == (who.producer_id, who.epoch) and not self.number

    def begin(
        self, who: Identity, *, number: int, at_ms: int, places: Sequence[Place] = ()
    ) -> Decision[Event, None]:
        """Begin a transaction that writes to partitions."""
        self.check_life(who)
        if not self.may_begin:
            raise InvalidTransactionStateError("transaction already in progress")
        self._check_places(places)
        return Decision(
            (events.TxBegun(number=number, at_ms=at_ms, partitions=list(places)),), None
        )

    def resume(self, number: int, *, at_ms: int) -> Decision[Event, None]:
        """Begin the next transaction in the place of its client: a crash lost that it had begun."""
        assert self.may_begin, "the one before is over"
        return Decision((events.TxBegun(number=number, at_ms=at_ms),), None)

    @property
    def may_begin(self) -> bool:
        """Return True if the transaction before is over, as far as anybody can see."""
        is_told = self.state is TxState.PREPARE_COMMIT and self.is_told and not self.adopted
        return (self.state in IDLE or is_told) and not self.adopter

    def add_partitions(self, who: Identity, places: Sequence[Place]) -> Decision[Event, None]:
        """Let the transaction write to partitions."""
        self.check_open(who)
        fresh = [place for place in dict.fromkeys(places) if place not in self.partitions]
        self._check_places([*self.partitions, *fresh])
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

    def detach(self, who: Identity) -> Decision[Event, None]:
        """Leave the transaction as it is to whoever adopts or ends it. May be asked again."""
        if self.is_detached and self.state is TxState.ONGOING:
            self.check_life(who)
            self._check_number(who)
            return Decision((), None)
        self.check_open(who)
        if self.adopted:
            raise InvalidTransactionStateError(
                "a transaction that has adopted others cannot be detached"
            )
        return Decision((events.Detached(),), None)

    def learn_partition(self, place: Place) -> Decision[Event, None]:
        """Take notice of a partition a crash kept the producer's words about from being stored."""
        found = () if place in self.partitions else (events.PartitionsAdded(partitions=[place]),)
        return Decision(found, None)

    def learn_hold(self, group: str, place: Place) -> Decision[Event, None]:
        """Take notice of a hold a crash kept the producer's words about from being stored."""
        known = any(one.group == group and place in one.partitions for one in self.holds)
        found = () if known else (events.HoldsAdded(group=group, partitions=[place]),)
        return Decision(found, None)

    def prepare(
        self,
        who: Identity,
        outcome: str,
        *,
        token: str = "",
        ends: Sequence[tuple[str, int, int]] = (),
    ) -> Decision[Event, bool]:
        """Decide the outcome of the open transaction; tell whether it was decided before.

        The same outcome may be asked for again and again; the other one is refused. ``ends`` are
        last messages that are not durable yet: until they are, the decision binds nobody.
        """
        self.check_life(who)
        self._check_number(who)
        if len(token) > TX_TOKEN_CHARACTERS_MAX:
            raise InvalidRequestError(
                f"token: {len(token)} characters; the limit is {TX_TOKEN_CHARACTERS_MAX}"
            )
        self._check_own()
        if self.state is TxState.ONGOING:
            event: Event = (
                events.CommitPrepared(token=token, ends=list(ends))
                if outcome == COMMIT
                else events.AbortPrepared()
            )
            return Decision((event,), False)  # noqa: FBT003 - the reply is the answer
        if self.outcome() != outcome:
            raise InvalidTransactionStateError(
                f"invalid transaction state {self.state}: it cannot be ended by {outcome}"
            )
        return Decision((), True)  # noqa: FBT003 - the reply is the answer

    def give_up(self, reason: str) -> Decision[Event, None]:
        """Abort the open transaction because of time or a successor."""
        self._check_own()
        found = (events.AbortPrepared(reason=reason),) if self.state is TxState.ONGOING else ()
        return Decision(found, None)

    def follow(self, outcome: str) -> Decision[Event, None]:
        """Take the outcome of the transaction that adopted this one."""
        if self.state is not TxState.ONGOING:
            return Decision((), None)
        if outcome == COMMIT:
            return Decision((events.CommitPrepared(),), None)
        return Decision((events.AbortPrepared(reason="its adopter"),), None)

    def overrule(self) -> Decision[Event, None]:
        """Abort what was to be committed: not all of it reached the disk, and nobody was told."""
        assert self.state is TxState.PREPARE_COMMIT, "decided"
        assert self.ends, "in doubt"
        return Decision((events.AbortPrepared(reason="some of it was lost"),), None)

    def complete(self, number: int) -> Decision[Event, None]:
        """Note that everybody has heard of the end of a transaction, and of those before it."""
        is_latest = number == self.number and self.state in PREPARED
        is_known = is_latest or number in self.unfinished
        return Decision((events.TxCompleted(number=number),) if is_known else (), None)

    def expire(self) -> Decision[Event, None]:
        """Let go of a producer that is idle for too long."""
        return Decision((events.Expired(),) if self.state in IDLE else (), None)

    # Looking.

    def outcome(self) -> str | None:
        """Return how the latest transaction ended or is ending."""
        match self.state:
            case TxState.PREPARE_COMMIT | TxState.COMPLETE_COMMIT:
                return COMMIT
            case TxState.PREPARE_ABORT | TxState.COMPLETE_ABORT:
                return ABORT
            case TxState.EMPTY | TxState.ONGOING | TxState.DEAD:
                return None

    @property
    def shown_state(self) -> TxState:
        """The state as others see it: one whose end was announced is over."""
        if not self.is_told:
            return self.state
        return {
            TxState.PREPARE_COMMIT: TxState.COMPLETE_COMMIT,
            TxState.PREPARE_ABORT: TxState.COMPLETE_ABORT,
        }.get(self.state, self.state)

    @property
    def is_open(self) -> bool:
        """Return True if somebody still waits for the end of the latest transaction."""
        return self.shown_state not in IDLE and self.state is not TxState.DEAD

    @property
    def is_busy(self) -> bool:
        """Return True if there is anything to be done for this producer."""
        return self.state is TxState.ONGOING or self.state in PREPARED or bool(self.unfinished)

    @property
    def groups(self) -> list[str]:
        """The groups in which the transaction settles something."""
        return sorted({one.group for one in self.offsets} | {one.group for one in self.holds})

    def check_open(self, who: Identity) -> None:
        """Raise unless who speaks has this transaction open."""
        self.check_life(who)
        self._check_number(who)
        if self.state is not TxState.ONGOING:
            raise InvalidTransactionStateError(
                f"invalid transaction state {self.state}: no transaction is open"
            )
        self._check_own()
        if self.is_detached:
            raise InvalidTransactionStateError(
                "the transaction was detached: nothing can be added to it"
            )

    def check_known(self, who: Identity) -> None:
        """Raise unless messages of who speaks are wanted, or may be there already."""
        if self.outcome() != COMMIT:
            self.check_open(who)
        self.check_life(who)
        self._check_number(who)

    def check_life(self, who: Identity) -> None:
        """Raise unless who speaks is the latest life of this producer."""
        if self.state is TxState.DEAD or who.producer_id != self.producer_id:
            raise UnknownProducerError(
                f"producer {who.producer_id} is not the one of {self.name}; init it again"
            )
        if who.epoch != self.epoch or self.is_closing:
            raise ProducerFencedError("producer fenced by newer instance")

    def _check_own(self) -> None:
        if self.adopter:
            raise InvalidTransactionStateError(
                f"the transaction was adopted by {self.adopter} and ends with that one"
            )

    def _check_number(self, who: Identity) -> None:
        if who.number is not None and who.number != self.number:
            raise StaleTransactionError(
                f"transaction {who.number:016x} is over; the producer has gone on since"
            )

    @staticmethod
    def _check_places(places: Sequence[Place]) -> None:
        if len(places) > TX_PARTITIONS_MAX:
            raise InvalidRequestError(
                f"a transaction may write to {TX_PARTITIONS_MAX} partitions at most"
            )

    def _check_room(self, count: int) -> None:
        known = sum(len(one.offsets) for one in self.offsets)
        known += sum(len(one.partitions) for one in self.holds)
        if known + count > TX_PARTITIONS_MAX:
            raise InvalidRequestError(
                f"a transaction may settle in {TX_PARTITIONS_MAX} partitions at most"
            )

    # Changing.

    def apply(self, event: Event | Notice) -> None:  # noqa: C901, PLR0912 - a case for each event
        """Change state by one event, or by what is not stored because it follows from others."""
        if isinstance(event, events.Notice):
            self._apply_notice(event)
            return
        match event:
            case events.Initialised():
                self.producer_id, self.epoch = event.producer_id, event.epoch
                self.timeout_ms, self.renews = event.timeout_ms, event.renews
                self.is_closing = False
                self._forget()
                self.unfinished = {}
                self.number = 0
            case events.TxBegun(number=number, at_ms=at_ms, partitions=places):
                if self.state is TxState.PREPARE_COMMIT:
                    self._set_aside()
                self._forget()
                self.number, self.begun_at_ms = number, at_ms
                self.partitions = dict.fromkeys((topic, number) for topic, number in places)
            case events.PartitionsAdded(partitions=partitions):
                self.partitions |= dict.fromkeys((topic, number) for topic, number in partitions)
            case events.OffsetsAdded():
                self.offsets.append(event)
            case events.HoldsAdded():
                self.holds.append(event)
            case events.Detached():
                self.is_detached = True
            case events.Adopted(children=children):
                self.adopted |= {child.number: child for child in children}
            case events.CommitPrepared(token=token, ends=ends):
                self._pending_token, self.ends = token, ends
            case events.AbortPrepared():
                self._pending_token, self.ends = "", []
            case events.TxCompleted(number=number):
                self._finish(number or self.number)
                if number and number != self.number:
                    return
                if self.state is TxState.PREPARE_COMMIT:
                    self.token = self._pending_token
            case events.Expired():
                self._forget()
            case events.TxRestored():
                self._restore(event)
                return
        self.state = after(self.state, event)

    def _apply_notice(self, notice: Notice) -> None:
        match notice:
            case events.Told():
                self.is_told = True
            case events.Confirmed():
                self.ends = []
            case events.Closing():
                self.is_closing = True
            case events.AdoptedBy(name=name):
                self.adopter = name

    def _set_aside(self) -> None:
        """Keep of a commit that is in force what may have to be told again."""
        self.token = self._pending_token
        self.unfinished[self.number] = events.Ending(
            number=self.number,
            partitions=list(self.partitions),
            offsets=self.offsets,
            holds=self.holds,
        )

    def _finish(self, number: int) -> None:
        """Let go of the commits up to a number."""
        if number == self.number:
            self.unfinished = {}
        elif number in self.unfinished:
            numbers = list(self.unfinished)
            for one in numbers[: numbers.index(number) + 1]:
                del self.unfinished[one]

    def _forget(self) -> None:
        self.ends = []
        self.is_told = False
        self.partitions = {}
        self.offsets = []
        self.holds = []
        self.is_detached = False
        self.adopted = {}
        self.adopter = ""
        self._pending_token = ""

    def snapshot(self) -> Iterable[Event]:
        """Return the event that rebuilds this state."""
        yield events.TxRestored(
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
            is_detached=self.is_detached,
            adopted=list(self.adopted.values()),
            ends=list(self.ends),
            unfinished=list(self.unfinished.values()),
            renews=self.renews,
        )

    def _restore(self, event: events.TxRestored) -> None:
        self.state = TxState(event.state)
        self.producer_id, self.epoch = event.producer_id, event.epoch
        self.timeout_ms, self.number = event.timeout_ms, event.number
        self.renews = event.renews
        self.begun_at_ms = event.begun_at_ms
        self.partitions = dict.fromkeys((topic, number) for topic, number in event.partitions)
        self.offsets, self.holds = list(event.offsets), list(event.holds)
        self.token, self._pending_token = event.token, event.pending_token
        self.is_detached = event.is_detached
        self.adopted = {child.number: child for child in event.adopted}
        self.ends = list(event.ends)
        self.unfinished = {one.number: one for one in event.unfinished}
