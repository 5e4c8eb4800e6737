"""The way into a transaction: who speaks is found, and the next transaction begins if it may."""

from collections.abc import Callable, Sequence
from typing import Final

from goqueue.core.tx.events import Place
from goqueue.core.tx.numbers import number_after
from goqueue.core.tx.producer import Identity
from goqueue.observability.tx_metrics import TxMetrics
from goqueue.runtime.clock import Clock
from goqueue.runtime.tx.finisher import TxFinisher
from goqueue.runtime.tx.hosted_producer import HostedTxProducer
from goqueue.runtime.tx.roster import Roster

UNFINISHED_MAX: Final = 64
"""So many commits of a producer wait for the disks before its next transaction does."""


class TxEntry:
    """Begins transactions of the producers that are hosted here."""

    def __init__(
        self,
        roster: Roster,
        endings: TxFinisher,
        clock: Clock,
        metrics: TxMetrics,
        number: Callable[[], int],
    ) -> None:
        self._roster = roster
        self._endings = endings
        self._clock = clock
        self._metrics = metrics
        self._number = number

    def __repr__(self) -> str:
        return f"<TxEntry to {self._roster!r}>"

    async def begin(self, who: Identity, name: str | None = None) -> int:
        """Begin a transaction; return its number."""
        hosted = await self._find_rested(who, name)
        number = self._number()
        self._begin(hosted, who, number)
        return number

    async def enter(
        self, who: Identity, name: str | None = None, *, places: Sequence[Place] = ()
    ) -> HostedTxProducer:
        """Return who speaks, in a transaction: the next one begins with its first request."""
        hosted = await self._find_rested(who, name)
        number = hosted.producer.number
        if number and who.number == number_after(number) and hosted.producer.may_begin:
            self._begin(hosted, who, who.number, places)
        return hosted

    def touch(self, hosted: HostedTxProducer) -> None:
        """Note that a producer was heard of."""
        hosted.touch(self._clock.monotonic_ms())

    def _begin(
        self, hosted: HostedTxProducer, who: Identity, number: int, places: Sequence[Place] = ()
    ) -> None:
        at_ms = self._clock.now_ms()
        decision = hosted.producer.begin(who, number=number, at_ms=at_ms, places=places)
        # With messages it is one record with what follows; a start would begin it again from them.
        (hosted.commit_later if places else hosted.commit)(decision.events)
        hosted.start_clock(self._clock.monotonic_ms())
        self._metrics.started.inc()

    async def _find_rested(self, who: Identity, name: str | None = None) -> HostedTxProducer:
        """Return who speaks, when not too many of their commits are unfinished."""
        hosted = self._roster.find(who, name)
        if hosted.is_untold:
            await self._endings.carry_out(hosted)
        if len(hosted.producer.unfinished) >= UNFINISHED_MAX:
            await self._endings.finish(hosted)
        return hosted
