"""The end of transactions: everybody who has something of one is told how it ended.

What was decided is carried out whoever asked for it; where that fails it is tried again until it
succeeds, because the outcome stands.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import Offset, TopicName
from goqueue.core.delivery import events as delivery
from goqueue.core.record.batch import batch_fields
from goqueue.core.record.frame import read_header
from goqueue.core.tx.numbers import number_after
from goqueue.core.tx.producer import COMMIT, TxProducer
from goqueue.core.tx.states import PREPARED, State
from goqueue.observability.logging import get_logger
from goqueue.observability.tx_metrics import TxMetrics
from goqueue.runtime.clock import Clock
from goqueue.runtime.consume import Consumption
from goqueue.runtime.partition import Partition
from goqueue.runtime.topic import Topic
from goqueue.runtime.tx_producer import HostedTxProducer
from goqueue.runtime.tx_roster import Roster
from goqueue.runtime.tx_telling import End, Teller

RETRY_SECONDS: Final = 1.0
FINISH_SECONDS: Final = 0.1
"""How long a commit that everybody was told of waits for syncs that happen anyway."""
GROUP_PASSES_MAX: Final = 10

log = get_logger("goqueue.transactions")


class Endings:
    """Carries out what was decided."""

    def __init__(
        self,
        topics: Mapping[TopicName, Topic],
        consume: Consumption,
        roster: Roster,
        clock: Clock,
        metrics: TxMetrics,
    ) -> None:
        self._topics = topics
        self._roster = roster
        self._consume = consume
        self._teller = Teller(topics, consume, clock)
        self._clock = clock
        self._metrics = metrics
        self.is_stopped = False
        self._told: dict[str, HostedTxProducer] = {}
        self._finishing: asyncio.Task[None] | None = None
        self.has_strays = False
        """Something of nobody could not be aborted and is to be looked at again."""

    def __repr__(self) -> str:
        return f"<Endings{' with strays' if self.has_strays else ''}>"

    # Starting.

    def recover(self) -> None:
        """Tell of what was decided, and end what nobody decided, before anybody is served.

        What was decided is on the disk by now, like everything else that was read.
        """
        for hosted in self._roster:
            try:
                self._recover(hosted)
            except GoQueueError as error:
                name = hosted.producer.name
                log.warning("a transaction is ended later", id=name, error=error.message)
        self.abort_strays()

    def _recover(self, hosted: HostedTxProducer) -> None:
        producer = hosted.producer
        for ending in producer.unfinished.values():
            self._teller.tell(End.before(producer, ending))
        if producer.ends and not self._look_for(producer):
            hosted.commit(producer.overrule().events)
        elif producer.state is State.PREPARE_COMMIT:
            producer.confirm()
            if not producer.adopted:
                self._teller.tell(End.latest(producer))
                producer.is_told = True

    def _look_for(self, producer: TxProducer) -> bool:
        """Tell whether everything of a commit in doubt reached the disk, by its last messages."""
        for topic, number, offset in producer.ends:
            known = self._topics.get(TopicName(topic))
            if known is not None and number < len(known.partitions):
                partition = known.partitions[number]
                if not is_there(partition, Offset(offset), producer.number):
                    return False
        return True

    def abort_strays(self) -> None:
        """Abort transactions the coordinator does not know: nobody was told of their messages.

        Of those it knows, it learns where a crash kept it from hearing that they had been there.
        It knows the one that follows a producer's latest, too: only that it began was lost.
        """
        self.has_strays = False
        known: dict[int, HostedTxProducer] = {}
        for hosted in self._roster:
            producer = hosted.producer
            if producer.number and producer.state is not State.DEAD:
                known[number_after(producer.number)] = hosted
            if producer.state is State.ONGOING or producer.state in PREPARED:
                known[producer.number] = hosted
            known.update(dict.fromkeys(producer.unfinished, hosted))
        try:
            self._abort_stray_messages(known)
            self._abort_stray_holds(known)
        except GoQueueError as error:
            self.has_strays = True
            log.warning("transactions of nobody are aborted later", error=error.message)

    def _abort_stray_messages(self, known: Mapping[int, HostedTxProducer]) -> None:
        for topic in self._topics.values():
            for partition in topic.partitions:
                place = (str(topic.record.name), int(partition.name.partition))
                for number in partition.queue.tx:
                    hosted = known.get(number)
                    if hosted is None:
                        self._teller.abort_stray(partition, number)
                    elif self._takes_up(hosted, number):
                        hosted.commit(hosted.producer.learn_partition(place).events)

    def _abort_stray_holds(self, known: Mapping[int, HostedTxProducer]) -> None:
        for ledger in self._consume.ledgers:
            name = ledger.partition.name
            for number in list(ledger.ledger.holds):
                hosted = known.get(number)
                if hosted is None:
                    ledger.commit([delivery.HoldEnded(transaction=number, is_commit=False)])
                elif self._takes_up(hosted, number):
                    place = (str(name.topic), int(name.partition))
                    hosted.commit(hosted.producer.learn_hold(ledger.group, place).events)

    def _takes_up(self, hosted: HostedTxProducer, number: int) -> bool:
        """Tell whether a transaction is open; the producer's next one begins again for that.

        Its client may come back for it, and what the logs have of it is not sent a second time.
        """
        producer = hosted.producer
        if number == number_after(producer.number):
            if not producer.may_begin or producer.is_closing:
                # The one before has still to be told of: nothing of this one may be aborted.
                self.has_strays = True
                return False
            hosted.commit(producer.resume(number, at_ms=self._clock.now_ms()).events)
            producer.start_clock(self._clock.monotonic_ms())
        return hosted.has_open(number)

    # Carrying out.

    def unproven(self, producer: TxProducer) -> list[tuple[str, int, int]]:
        """Return the last message in each partition where the disk has not confirmed it yet."""
        found: list[tuple[str, int, int]] = []
        for partition in self._teller.partitions(producer.partitions):
            last = partition.queue.tx.last_offset_of(producer.number)
            if last is not None and last >= partition.log.durable_offset:
                found.append((*partition.name, last))
        return found

    async def stored(self, producer: TxProducer) -> None:
        """Return when all messages of the open transaction that are in the log are on the disk."""
        await _all_of(self._stored(self.unproven(producer)))

    def count(self, producer: TxProducer) -> int:
        """Return how many messages of the open transaction are in the log."""
        partitions = self._teller.partitions(producer.partitions)
        return sum(partition.queue.tx.count(producer.number) for partition in partitions)

    async def carry_out(self, hosted: HostedTxProducer) -> None:
        """Tell everybody of the end, also when whoever asked for it is gone meanwhile.

        Of a commit everybody has heard then; that the disks know it is seen to a little later.
        """
        task = asyncio.get_running_loop().create_task(self._tell_once(hosted))
        task.add_done_callback(look_at)
        await asyncio.shield(task)

    async def _tell_once(self, hosted: HostedTxProducer) -> None:
        async with hosted.end_turn:
            producer = hosted.producer
            try:
                if producer.state in PREPARED and not producer.is_told:
                    await self._be_sure(hosted)
                    if producer.outcome() == COMMIT and not producer.adopted:
                        await self._teller.tell_soon(End.latest(producer))
                        producer.is_told = True
                        self.finish_soon(hosted)
                    else:
                        await self._tell_family(hosted)
                else:
                    await self.finish(hosted)
            except GoQueueError:
                self.carry_out_later(hosted)
                raise

    def ask(self, hosted: HostedTxProducer) -> None:
        """Ask the disks for a decision just written and all it is about, in their next round."""
        try:
            hosted.asked = [hosted.durable(), *self._stored(hosted.producer.ends)]
        except GoQueueError as error:
            # One of them has failed before: who waits is told.
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            failed.add_done_callback(look_at)
            hosted.asked = [failed]

    async def _be_sure(self, hosted: HostedTxProducer) -> None:
        """Return when the decision is in force: it and all it is about are on the disk."""
        producer = hosted.producer
        if not hosted.asked:
            self.ask(hosted)
        asked, hosted.asked = hosted.asked, []
        try:
            await _all_synced(asked)
        except GoQueueError:
            if not producer.ends:
                raise
            hosted.commit(producer.overrule().events)
            await hosted.durable()
        else:
            producer.confirm()

    async def _tell_family(self, hosted: HostedTxProducer) -> None:
        """Tell everybody, let those that were adopted do the same, and wait for the disks."""
        children = self._lead(hosted)
        await _all_of([self._tell_durably(hosted), *map(self._tell_child, children)])
        hosted.commit(hosted.producer.complete(hosted.producer.number).events)
        for gone in self._roster.release(children):
            gone.add_done_callback(look_at)

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
        end = End.latest(hosted.producer)
        self._teller.tell(end)
        # An adopter is done only when its children are: it tells them all again until then.
        hosted.producer.is_told = not hosted.producer.adopted
        await _all_of(self._teller.waits(end))

    # Being sure that everybody knows.

    async def finish(self, hosted: HostedTxProducer) -> None:
        """Note that everybody was told, when the disks know it."""
        producer = hosted.producer
        ends = [End.before(producer, ending) for ending in producer.unfinished.values()]
        if producer.is_told and producer.state in PREPARED:
            ends.append(End.latest(producer))
        if not ends:
            return
        self._teller.tell(*ends)
        await _all_synced(self._teller.waits(*ends))
        hosted.commit(producer.complete(ends[-1].control.number).events)

    async def finish_group(self, group: str) -> None:
        """Be done with commits that settled offsets of a group, so that no start tells it again.

        Who goes on committing all the while moves the group on in any case.
        """
        for _ in range(GROUP_PASSES_MAX):
            found = [hosted for hosted in self._roster if _has_settled(hosted.producer, group)]
            if not found:
                return
            for hosted in found:
                await self.finish(hosted)
                await hosted.durable()

    def see_to(self, hosted: HostedTxProducer) -> None:
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
        self._told[hosted.producer.name] = hosted
        if self._finishing is None and not self.is_stopped:
            loop = asyncio.get_running_loop()
            self._finishing = loop.create_task(self._finish_all())
            self._finishing.add_done_callback(look_at)

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
        if hosted.ending is not None or self.is_stopped:
            return

        async def later() -> None:
            await asyncio.sleep(pause_seconds)
            hosted.ending = None
            await self.carry_out(hosted)

        hosted.ending = asyncio.get_running_loop().create_task(later())
        hosted.ending.add_done_callback(partial(self._look_at_end, hosted))

    def _look_at_end(self, hosted: HostedTxProducer, done: asyncio.Task[None]) -> None:
        if done.cancelled() or done.exception() is None:
            return
        name, error = hosted.producer.name, done.exception()
        log.warning("a transaction is not ended yet", id=name, error=str(error))
        self.carry_out_later(hosted)

    def _stored(self, ends: Iterable[tuple[str, int, int]]) -> list[asyncio.Future[None]]:
        places = [(topic, number) for topic, number, _ in ends]
        return [partition.durable() for partition in self._teller.partitions(places)]


def _has_settled(producer: TxProducer, group: str) -> bool:
    """Tell whether a commit of offsets of a group was told and is not noted as done."""
    ends = [ending.offsets for ending in producer.unfinished.values()]
    if producer.is_told and producer.state is State.PREPARE_COMMIT:
        ends.append(producer.offsets)
    return any(one.group == group for offsets in ends for one in offsets)


async def _all_of(waits: Sequence[Awaitable[None]]) -> None:
    """Wait for everything, whatever fails; then raise what did."""
    for result in await asyncio.gather(*waits, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


async def _all_synced(syncs: Sequence[asyncio.Future[None]]) -> None:
    """Wait for every sync, then raise the first failure."""
    failure: GoQueueError | None = None
    for sync in syncs:
        try:
            await sync
        except GoQueueError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def is_there(partition: Partition, offset: Offset, number: int) -> bool:
    """Tell whether a message of a transaction is in the log; what is gone since was there."""
    log = partition.log
    if offset < log.start_offset:
        return True
    if offset >= log.end_offset:
        return False
    piece = partition.reader.read(offset, end_offset=log.end_offset, bytes_max=1)
    if not piece.frames:
        # It cannot be read: damage is reported, and undoes nothing.
        return True
    header = read_header(piece.frames)
    if header.is_hole or not header.is_batch:
        return header.is_hole
    return batch_fields(header, piece.frames[: header.size]).transaction == number


def look_at(done: asyncio.Future[None]) -> None:
    """Look at how something ended that nobody may have waited for."""
    if not done.cancelled():
        done.exception()
