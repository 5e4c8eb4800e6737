"""Which producer ids were handed out, and which of their lives may still publish.

Shape: decider. Ids are reserved in blocks, so that handing one out seldom waits for the disk; a
restart skips the rest of a block and never hands out an id twice.
"""

from typing import Final

import msgspec

from goqueue.base.errors import (
    InvalidRequestError,
    ProducerFencedError,
    UnknownProducerError,
)
from goqueue.base.ids import Epoch, ProducerId
from goqueue.base.limits import PRODUCER_LIVES_MAX
from goqueue.core.decision import Decision
from goqueue.core.record.stamp import ProducerStamp

IDS_PER_BLOCK: Final = 1_000
EPOCH_MAX: Final = 65_535


class IdsReserved(msgspec.Struct, frozen=True, tag="ids_reserved", kw_only=True):
    """Producer ids below ``end_id`` may be handed out."""

    end_id: int


class LifeBegun(msgspec.Struct, frozen=True, tag="life_begun", kw_only=True):
    """A producer began a new life; the older ones are fenced everywhere."""

    producer_id: int
    epoch: int


class LivesForgotten(msgspec.Struct, frozen=True, tag="lives_forgotten", kw_only=True):
    """Of producers with ids below ``below_id`` only those that follow are known."""

    below_id: int


Event = IdsReserved | LifeBegun | LivesForgotten


class IdGiven(msgspec.Struct, frozen=True, kw_only=True):
    """An id was handed out. Not stored: after a restart the whole block is gone."""

    producer_id: int


class BlockSkipped(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of the last block may have been handed out before a restart. Not stored."""


Notice = IdGiven | BlockSkipped
"""What is applied like an event and never stored."""


class Identities:
    """Hands out producer ids and epochs."""

    def __init__(self) -> None:
        self._next_id = 1
        self._end_id = 1
        self._epochs: dict[int, int] = {}
        self._known_from = 1

    @property
    def next_id(self) -> int:
        """The id that is handed out next."""
        return self._next_id

    def init(self) -> Decision[Event, ProducerStamp]:
        """Give a new producer its id; a fresh block of ids is an event."""
        reply = ProducerStamp(ProducerId(self._next_id), Epoch(0), 0)  # type: ignore[arg-type]
        if self._next_id < self._end_id:
            return Decision((), reply)
        return Decision((IdsReserved(end_id=self._end_id + IDS_PER_BLOCK),), reply)

    def renew(self, *, producer_id: int, epoch: int) -> Decision[Event, ProducerStamp]:
        """Begin the next life of a producer, fencing the one that asks and all before it."""
        self.check(producer_id=producer_id, epoch=epoch)
        if epoch >= EPOCH_MAX:
            raise InvalidRequestError(f"epoch: {epoch} is the last; begin with a new producer id")
        event = LifeBegun(producer_id=producer_id, epoch=epoch + 1)
        stamp = ProducerStamp(ProducerId(producer_id), Epoch(epoch + 1), 0)  # type: ignore[arg-type]
        return Decision((event,), stamp)

    def check(self, *, producer_id: int, epoch: int) -> None:
        """Refuse an id that was never handed out and a life that is over."""
        # A reserved id nobody has yet is refused, too: its first messages would pass for repeats.
        if not 0 < producer_id < self._next_id:
            raise UnknownProducerError(f"producer {producer_id} is not known")
        if producer_id < self._known_from and producer_id not in self._epochs:
            raise UnknownProducerError(f"producer {producer_id} is not known any more")
        current = self._epochs.get(producer_id, 0)
        if epoch < current:
            raise ProducerFencedError(
                f"producer {producer_id} epoch {epoch} is fenced by epoch {current}"
            )
        if epoch > current:
            raise UnknownProducerError(
                f"producer {producer_id} epoch {epoch} was never begun; {current} is current"
            )

    def apply(self, event: Event | Notice) -> None:
        """Change state by one event."""
        match event:
            case IdsReserved(end_id=end_id):
                # The ids of an older block that were not handed out before a restart are skipped.
                self._next_id = max(self._next_id, self._end_id)
                self._end_id = end_id
            case LifeBegun(producer_id=producer_id, epoch=epoch):
                self._epochs[producer_id] = epoch
                if len(self._epochs) > PRODUCER_LIVES_MAX:
                    self._apply_forgetting()
            case LivesForgotten(below_id=below_id):
                self._known_from = below_id
            case IdGiven(producer_id=producer_id):
                assert producer_id == self._next_id, "ids are handed out in order"
                self._next_id += 1
            case BlockSkipped():
                self._next_id = self._end_id

    def _apply_forgetting(self) -> None:
        """Forget the oldest quarter. Follows from the events alone, so a replay does the same."""
        ids = sorted(self._epochs)
        self._known_from = ids[len(ids) // 4]
        for producer_id in ids[: len(ids) // 4]:
            del self._epochs[producer_id]

    def snapshot(self) -> list[Event]:
        """Return the events that rebuild this state."""
        lives = [LifeBegun(producer_id=p, epoch=e) for p, e in self._epochs.items()]
        forgotten = [LivesForgotten(below_id=self._known_from)] if self._known_from > 1 else []
        return [IdsReserved(end_id=self._end_id), *forgotten, *lives]
