"""Transactions that are open at a leader for long: what became of them is asked for.

A coordinator knows every place before anything is written there, and tells all of them of the end.
So this finds something only where a log was lost: a control frame that an unclean election cut off,
or a coordinator that lost its state. A transaction that no coordinator knows is aborted.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from goqueue.base.cluster_limits import TX_PLACES_MAX
from goqueue.base.errors import GoQueueError
from goqueue.base.ids import TopicName
from goqueue.base.units import SECOND_MS
from goqueue.core.delivery import events as delivery
from goqueue.core.record.control import Control
from goqueue.core.tx.producer import ABORT, COMMIT
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.leadership import Role
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.queue.consume import Consumption
from goqueue.runtime.queue.hosted_ledger import HostedLedger
from goqueue.runtime.tx.admissions import Admissions
from goqueue.runtime.tx.markers import MarkerWriter
from goqueue.runtime.tx.tx_link import TX_TOPIC, TxLink
from goqueue.wire.peer_calls import PeerOperation
from goqueue.wire.tx_peer_calls import AskedPlace, TxAnswer, TxAsk, TxFate, TxPlace

LOOK_SECONDS: Final = 10.0
OPEN_MS_MIN: Final = 30 * SECOND_MS
"""How long a transaction is open before its coordinator is asked; most end much sooner."""

log = get_logger("goqueue.transactions")


class Found(NamedTuple):
    """A transaction that is open in a partition, or for which a ledger holds messages."""

    number: int
    partition: Partition
    ledger: HostedLedger | None = None

    @property
    def spot(self) -> tuple[int, object, str]:
        """What it is known by."""
        return self.number, self.partition.name, self.ledger.group if self.ledger else ""

    @property
    def is_there(self) -> bool:
        """Return True if it is still open, and this node has a say in it."""
        if self.ledger is not None:
            return not self.ledger.is_closed and self.number in self.ledger.ledger.holds
        is_led = self.partition.leadership.role is Role.LEADER
        return is_led and self.number in self.partition.queue.tx

    def asked(self) -> AskedPlace:
        """Return how a coordinator is asked about it."""
        _, _, group = self.spot
        topic, number = self.partition.name
        return AskedPlace(self.number, TxPlace(topic, number, group))


class Orphans:
    """Looks for them, again and again."""

    def __init__(
        self,
        topics: Mapping[TopicName, Topic],
        consume: Consumption,
        clock: Clock,
        *,
        link: TxLink,
        writer: MarkerWriter,
        admissions: Admissions,
    ) -> None:
        self._topics = topics
        self._consume = consume
        self._clock = clock
        self._link = link
        self._writer = writer
        self._admissions = admissions
        self._since: dict[tuple[int, object, str], int] = {}
        """Since when each open transaction is known to be so here."""
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Orphans: {len(self._since)} transactions open>"

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._look_on())

    async def stop(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except GoQueueError as error:
                log.warning(LogEvent.TX_ORPHANS_NOT_ABORTED, error=error.message)
            except Exception:
                log.exception(LogEvent.TX_SWEEP_CRASHED)

    async def look(self) -> None:
        """Ask about what is open for long, and end what is over."""
        self._admissions.tidy()
        now_ms = self._clock.monotonic_ms()
        found = list(self._open_here())
        self._since = {one.spot: self._since.get(one.spot, now_ms) for one in found}
        old = [one for one in found if now_ms - self._since[one.spot] >= OPEN_MS_MIN]
        for start in range(0, len(old), TX_PLACES_MAX):
            await self._resolve(old[start : start + TX_PLACES_MAX])

    def _open_here(self) -> Iterator[Found]:
        for topic in list(self._topics.values()):
            for partition in topic.partitions:
                if partition.leadership.role is Role.LEADER:
                    for number in partition.queue.tx:
                        yield Found(number, partition)
        for ledger in self._consume.ledgers:
            if ledger.partition.leadership.role is Role.LEADER:
                for number in list(ledger.ledger.holds):
                    yield Found(number, ledger.partition, ledger)

    async def _resolve(self, found: Sequence[Found]) -> None:
        """Ask every coordinator: which of them knows a number is written nowhere here."""
        topic = self._topics.get(TopicName(TX_TOPIC))
        coordinators = range(0 if topic is None else len(topic.partitions))
        asked = [one.asked() for one in found]
        answers = await asyncio.gather(
            *[
                self._link.ask(number, PeerOperation.TX_ASK, TxAsk(number, asked), TxAnswer)
                for number in coordinators
            ]
        )
        for row, one in enumerate(found):
            fates = {answer.fates[row] for answer in answers if row < len(answer.fates)}
            if answers and TxFate.OPEN not in fates:
                self._end(one, is_commit=TxFate.COMMITTED in fates)

    def _end(self, one: Found, *, is_commit: bool) -> None:
        if not one.is_there:
            return
        self._admissions.end(one.number)
        if one.ledger is not None:
            ended = delivery.HoldEnded(transaction=one.number, is_commit=is_commit)
            one.ledger.commit([ended])
            return
        tx = one.partition.queue.tx
        log.warning(
            LogEvent.TX_OUTCOME_UNKNOWN,
            topic=one.partition.name.topic,
            partition=one.partition.name.partition,
            outcome=COMMIT if is_commit else ABORT,
            first_offset=tx.first_offset_of(one.number),
            messages=tx.count(one.number),
        )
        self._writer.write(one.partition, Control(one.number, is_commit=is_commit))
