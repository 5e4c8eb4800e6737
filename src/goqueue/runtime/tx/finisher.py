"""The end of transactions: everybody who has something of one is told how it ended.

What was decided is carried out in any case; where that fails it is tried again until it
succeeds, because the outcome stands.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Final

from goqueue.base.errors import GoQueueError
from goqueue.core.tx.events import Confirmed, Told
from goqueue.core.tx.producer import COMMIT, TxProducer
from goqueue.core.tx.states import PREPARED, TxState
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.observability.tx_metrics import TxMetrics
from goqueue.runtime.machine import unawaited
from goqueue.runtime.tx.hosted_producer import HostedTxProducer
from goqueue.runtime.tx.markers import End, all_synced, begin_all
from goqueue.runtime.tx.participants import Participants
from goqueue.runtime.tx.roster import Roster

RETRY_SECONDS: Final = 1.0
FINISH_SECONDS: Final = 0.1
"""How long a commit that was announced waits for syncs that happen anyway."""
GROUP_PASSES_MAX: Final = 10

log = get_logger("goqueue.transactions")


class TxFinisher:
    """Carries out what was decided."""

    def __init__(
        self,
        participants: Participants,
        roster: Roster,
        metrics: TxMetrics,
    ) -> None:
        self._participants = participants
        self._roster = roster
        self._metrics = metrics
        self.is_stopped = False
        self._told: dict[str, HostedTxProducer] = {}
        self._finishing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<TxFinisher: {len(self._told)} to finish>"

    # Carrying out.

    async def carry_out(self, hosted: HostedTxProducer) -> None:
        """Announce the end everywhere, also when the caller is gone meanwhile.

        Of a commit everybody has heard then; that the disks know it is seen to a little later.
        """
        task = asyncio.get_running_loop().create_task(self._tell_once(hosted))
        await asyncio.shield(unawaited(task))

    async def _tell_once(self, hosted: HostedTxProducer) -> None:
        async with hosted.end_turn:
            producer = hosted.producer
            try:
                if producer.state in PREPARED and not producer.is_told:
                    await self._be_sure(hosted)
                    is_simple = self._participants.are_here and not producer.adopted
                    if producer.outcome() == COMMIT and is_simple:
                        await self._participants.enqueue(End.latest(producer))
                        producer.apply(Told())
                        self.finish_soon(hosted)
                    else:
                        await self._tell_family(hosted)
                else:
                    await self.finish(hosted)
                hosted.is_untold = False
            except GoQueueError:
                self.carry_out_later(hosted)
                raise

    def ask(self, hosted: HostedTxProducer) -> None:
        """Ask the disks for a decision just written and all it is about, in their next round."""
        syncs = self._participants.syncs(hosted.producer.ends)
        hosted.asked = begin_all([hosted.durable, *syncs])
        for sync in hosted.asked:
            unawaited(sync)

    async def _be_sure(self, hosted: HostedTxProducer) -> None:
        """Return when the decision is in force: it and all it is about are on the disk."""
        producer = hosted.producer
        if not hosted.asked:
            self.ask(hosted)
        asked, hosted.asked = hosted.asked, []
        try:
            await all_synced(asked)
        except GoQueueError:
            if not producer.ends:
                raise
            hosted.commit(producer.overrule().events)
            await hosted.durable()
        else:
            producer.apply(Confirmed())

    async def _tell_family(self, hosted: HostedTxProducer) -> None:
        """Announce the end, also of adopted transactions, and wait for the disks."""
        children = self._lead(hosted)
        await _all_of([self._tell_durably(hosted), *map(self._tell_child, children)])
        hosted.commit(hosted.producer.complete(hosted.producer.number).events)
        for gone in self._roster.release(children):
            unawaited(gone)

    def _lead(self, hosted: HostedTxProducer) -> list[HostedTxProducer]:
        """Let those that were adopted take the outcome, which is durable by now."""
        children = self._roster.children_of(hosted)
        outcome = hosted.producer.outcome()
        assert outcome is not None, "decided"
        for child in children:
            child.commit(child.producer.follow(outcome).events)
        return children

    async def _tell_child(self, child: HostedTxProducer) -> None:
        async with child.end_turn:
            if child.producer.state in PREPARED:
                # Its adopter may forget it only when it knows by itself how it ended.
                await _all_of([child.durable(), self._tell_durably(child)])
                child.commit(child.producer.complete(child.producer.number).events)
                self._metrics.followed(child.producer.outcome())

    async def _tell_durably(self, hosted: HostedTxProducer) -> None:
        """Tell everybody of the end and wait for the disks: for this one's, and earlier commits'.

        That the latest is complete says the same of all before it.
        """
        producer = hosted.producer

        def told() -> None:
            # An adopter is done only when its children are: it tells them all again until then.
            if not producer.adopted:
                producer.apply(Told())

        ends = [*unfinished_ends(producer), End.latest(producer)]
        await self._participants.deliver(hosted, ends, told)

    # Confirming that the end is durable everywhere.

    async def finish(self, hosted: HostedTxProducer) -> None:
        """Note that the end was announced everywhere, once that is durable."""
        producer = hosted.producer
        ends = unfinished_ends(producer)
        if producer.is_told and producer.state in PREPARED:
            ends.append(End.latest(producer))
        if not ends:
            return
        await self._participants.deliver(hosted, ends, _nothing)
        hosted.commit(producer.complete(ends[-1].control.number).events)

    async def finish_group(self, group: str) -> None:
        """Be done with commits that settled offsets of a group, so that no start tells it again.

        Who goes on committing all the while moves the group on in any case.
        """
        for _ in range(GROUP_PASSES_MAX):
            self._roster.check_whole()
            for hosted in [one for one in self._roster if one.is_untold]:
                await self.carry_out(hosted)
            found = [hosted for hosted in self._roster if _has_settled(hosted.producer, group)]
            if not found:
                return
            for hosted in found:
                await self.finish(hosted)
                await hosted.durable()

    def ensure_progress(self, hosted: HostedTxProducer) -> None:
        """See that what was decided goes on; of what was adopted its adopter takes care."""
        producer = hosted.producer
        if producer.adopter:
            return
        if producer.state in PREPARED and not producer.is_told:
            self.carry_out_later(hosted, pause_seconds=0)
        else:
            self.finish_soon(hosted)

    def finish_soon(self, hosted: HostedTxProducer) -> None:
        """Finish in a while: until then most of it is synced with what others write."""
        if hosted.is_closed:
            return
        self._told[hosted.producer.name] = hosted
        if self._finishing is None and not self.is_stopped:
            loop = asyncio.get_running_loop()
            self._finishing = loop.create_task(self._finish_all())
            unawaited(self._finishing)

    async def _finish_all(self) -> None:
        while self._told:
            await asyncio.sleep(FINISH_SECONDS)
            told, self._told = self._told, {}
            finishing = [self.finish(hosted) for hosted in told.values()]
            results = await asyncio.gather(*finishing, return_exceptions=True)
            for hosted, result in zip(told.values(), results, strict=True):
                if isinstance(result, GoQueueError):
                    self.carry_out_later(hosted)
        self._finishing = None

    def drop(self, gone: Iterable[HostedTxProducer]) -> list[asyncio.Task[None]]:
        """Stop working for producers that are not hosted here any more."""
        tasks: list[asyncio.Task[None]] = []
        for hosted in gone:
            self._told.pop(hosted.producer.name, None)
            if hosted.ending is not None:
                hosted.ending.cancel()
                tasks.append(hosted.ending)
            if hosted.end_turn.locked():
                tasks.append(asyncio.get_running_loop().create_task(_rest(hosted)))
        return tasks

    async def stop(self) -> None:
        """End; whatever is not finished is finished at the next start."""
        self.is_stopped = True
        if self._finishing is not None:
            self._finishing.cancel()
            await asyncio.wait([self._finishing])

    # Trying again.

    def carry_out_later(
        self, hosted: HostedTxProducer, *, pause_seconds: float = RETRY_SECONDS
    ) -> None:
        """Carry out what was decided in a while, unless that is on its way already."""
        if hosted.ending is not None or hosted.is_closed or self.is_stopped:
            return

        async def later() -> None:
            await asyncio.sleep(pause_seconds)
            hosted.ending = None
            await self.carry_out(hosted)

        hosted.ending = asyncio.get_running_loop().create_task(later())
        hosted.ending.add_done_callback(partial(self._look_at_end, hosted))

    def _look_at_end(self, hosted: HostedTxProducer, done: asyncio.Task[None]) -> None:
        if done.cancelled():
            return
        if done.exception() is None:
            hosted.ending_error = ""
            return
        name, error = hosted.producer.name, str(done.exception())
        if error != hosted.ending_error:
            # Where a disk has failed this goes on until a restart: it is said once.
            log.warning(LogEvent.TX_MARKERS_NOT_WRITTEN, id=name, error=error)
        hosted.ending_error = error
        self.carry_out_later(hosted)


def unfinished_ends(producer: TxProducer) -> list[End]:
    """Return the ends of earlier commits that may not be durable everywhere."""
    return [End.before(producer, ending) for ending in producer.unfinished.values()]


def _has_settled(producer: TxProducer, group: str) -> bool:
    """Return True if a commit of offsets of a group was told and is not noted as done."""
    ends = [ending.offsets for ending in producer.unfinished.values()]
    if producer.is_told and producer.state is TxState.PREPARE_COMMIT:
        ends.append(producer.offsets)
    return any(one.group == group for offsets in ends for one in offsets)


async def _rest(hosted: HostedTxProducer) -> None:
    """Return when no end is being announced."""
    async with hosted.end_turn:
        pass


async def _all_of(waits: Sequence[Awaitable[None]]) -> None:
    """Wait for everything, whatever fails; then raise what did."""
    for result in await asyncio.gather(*waits, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _nothing() -> None:
    """Take note of nothing."""
