"""What goes on beside the handling of messages: heartbeats, settlements, extensions, hand-overs.

Runs in the client's event loop, so that a handler that takes its time loses neither its place in
the group nor the messages that wait behind it.
"""

import asyncio
import time
from collections.abc import Callable
from logging import getLogger
from typing import Final

from goqueue.base.errors import (
    ConnectionLostError,
    DeadlineExceededError,
    GoQueueError,
    InvalidRequestError,
)
from goqueue.base.units import SECOND_MS
from goqueue.client.aio.link import Link
from goqueue.client.consumer.delivery import Order
from goqueue.client.consumer.hold import Holdings, Place, settlements
from goqueue.client.consumer.membership import Membership, places_of
from goqueue.client.consumer.options import AUTO_ACK_INTERVAL_MS, ConsumerOptions, Refusal
from goqueue.client.consumer.targets import NOT_A_MEMBER, PollTargets
from goqueue.client.protocol.exchange import BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, decode
from goqueue.wire import group_calls
from goqueue.wire.packet import Operation
from goqueue.wire.queue_calls import Settle, Settled

TICK_SECONDS_MIN: Final = 0.001
FLUSH_SECONDS: Final = 0.002
IDLE_SECONDS: Final = 1.0
REVOKE_SECONDS: Final = 50.0
"""How long messages in hand may hold up a hand-over, where the broker names no time."""
REVOKE_SHARE: Final = 0.8
"""The part of the time for a hand-over that is waited; then it is done without them."""

log = getLogger("goqueue.consumer")


class Upkeep:
    """Looks after a consumer's membership and what it holds."""

    def __init__(self, link: Link, options: ConsumerOptions, *, timeout_s: float) -> None:
        self.hold = Holdings(options.on_refused, group=options.group)
        self.membership = Membership(link, options, timeout_s=timeout_s)
        self.targets = PollTargets(link.cluster, options.group, timeout_s=timeout_s)
        """Where messages are polled and settled."""
        self.pump: Callable[[], None] = lambda: None
        """Takes replies that wait while the consuming thread is busy."""
        self.failure: GoQueueError | None = None
        self.is_asleep = True
        """Whether it waits to be woken before it looks for settlements again."""
        self._link = link
        self._options = options
        self._timeout_s = timeout_s
        linger_ms = AUTO_ACK_INTERVAL_MS if options.auto_ack else options.settle_linger_ms
        self._tick_s = max(linger_ms / SECOND_MS, TICK_SECONDS_MIN)
        self._awake = asyncio.Event()
        self._nudged = asyncio.Event()
        self._revoking: dict[Place, float] = {}
        self._joining: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.sending: set[asyncio.Task[None]] = set()
        """Settlements under way, but for those of the consuming thread's own connection."""
        self._backoff_s = 0.0
        self._quiet_until_s = 0.0
        self._trouble = ""
        """What settlements were last answered with, where that may pass."""

    def __repr__(self) -> str:
        return f"<Upkeep of {self.membership!r}, {self.hold!r}>"

    # Life.

    async def start(self) -> None:
        """Join the group and begin."""
        await self.membership.join()
        self._learn()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._beat_on()), loop.create_task(self._tend_on())]
        for task in self._tasks:
            task.add_done_callback(self._ended)
        # The broker waits only a short grace for a member that lost its connection.
        self._link.watch(self.nudge)

    async def stop(self) -> None:
        """Give back what was not handed out, send what was settled, and leave."""
        self.hold.release_all()
        try:
            if self.failure is None:
                await self.flush()
            elif self.hold.has_unsent:
                # The group takes nothing from us any more: whoever settled these must know.
                raise self.failure
        finally:
            await self._end()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Take note of what ended a task that goes on for ever: whoever consumes is told."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the consumer cannot go on", exc_info=error)
            self.failure = self.failure or GoQueueError(f"the consumer cannot go on: {error!r}")

    async def _end(self) -> None:
        self._link.unwatch(self.nudge)
        tasks = [*self._tasks, *self.sending, *([self._joining] if self._joining else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=self._timeout_s)
            for task in pending:
                log.warning("waited %g s for %r; left without it", self._timeout_s, task)
        try:
            await self.membership.leave()
        except GoQueueError as error:
            # Its session ends by itself then.
            log.warning("left the group without saying so: %s", error.message)

    def _learn(self) -> None:
        lease_ms = self.membership.group_options.get("visibility_timeout_ms")
        if isinstance(lease_ms, int):
            self.hold.lease_ms = lease_ms
        self.hold.is_auto_commit = self.membership.group_options.get("auto_commit") is True
        ordering = self.membership.group_options.get("ordering")
        self.hold.is_by_key = ordering == "key"
        self.hold.polls_max = self._options.polls_max(ordering)

    # Called by whoever consumes, from the loop.

    def wake(self) -> None:
        """Look for settlements now and then: somebody has messages in hand."""
        self._awake.set()

    def nudge(self) -> None:
        """Ask the group at once what has changed."""
        self._nudged.set()

    async def rejoin(self) -> None:
        """Join again, once for all who noticed that we are no member any more."""
        if self._joining is None or self._joining.done():
            self._joining = asyncio.get_running_loop().create_task(self._rejoin())
        await asyncio.shield(self._joining)

    async def _rejoin(self) -> None:
        # What was leased before belongs to others now, or soon will.
        places = self.hold.places()
        self.hold.revoke(places)
        is_same = await self.membership.join()
        self._learn()
        self._revoking.clear()
        self.hold.reopen(places, time.monotonic())
        whom = "the same" if is_same else "a new"
        log.warning("joined group %s again, as %s member", self._options.group, whom)

    async def flush(self) -> None:
        """Send every settlement and return when all were answered."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            self._settle_now()
            # After a failure there is a pause in which nothing goes out: what came since is news.
            if self.hold.is_answered and not self.hold.has_news:
                return
            if time.monotonic() > deadline_s:
                seconds = f"{self._timeout_s:g}"
                raise DeadlineExceededError(f"settlements: no answer in {seconds} s{self._trouble}")
            # The consuming thread's replies come in through its own connection.
            self.pump()
            if self.sending:
                await asyncio.wait(self.sending, timeout=FLUSH_SECONDS)
            else:
                await asyncio.sleep(FLUSH_SECONDS)

    # Settlements.

    def _settle_now(self) -> None:
        if time.monotonic() >= self._quiet_until_s:
            self.send(self.hold.collect())

    def send(self, orders: list[Order]) -> None:
        """Send settlements, to the leader of each partition."""
        homes, homeless = self.targets.homes_of(orders)
        if homeless:
            self.hold.failed(homeless)
            self.refresh()
        member = self.membership.member_id
        for node, own in homes.items():
            for header, batch in settlements(self._options.group, member, own):
                task = asyncio.get_running_loop().create_task(self._send(node, header, batch))
                self.sending.add(task)
                task.add_done_callback(self.sending.discard)

    def refresh(self) -> None:
        """Ask where leaders are, if that is due."""
        cluster = self.targets.cluster
        if cluster is not None and cluster.is_due(asyncio.get_running_loop().time()):
            self._link.refresh_soon()

    async def _send(self, node: str, header: Settle, orders: list[Order]) -> None:
        try:
            answer = await self._link.at(node).request(Operation.SETTLE, header)
        except NOT_A_MEMBER as error:
            self.hold.failed(orders)
            self.nudge()
            self._pause(error)
        except GoQueueError as error:
            self.hold.failed(orders, None if error.retryable else error)
            self._pause(error)
            if self.targets.note(node, error, asyncio.get_running_loop().time()):
                self.refresh()
        except BaseException:
            self.hold.failed(orders)
            raise
        else:
            self._backoff_s = 0.0
            self._trouble = ""
            self.hold.answered(orders, decode(answer.header, Settled).parts)

    def _pause(self, error: GoQueueError) -> None:
        self._trouble = f"; the last try: {error.message}"
        self._backoff_s = min(max(self._backoff_s * 2, BACKOFF_SECONDS), BACKOFF_SECONDS_MAX)
        self._quiet_until_s = time.monotonic() + self._backoff_s

    # Tending.

    async def _tend_on(self) -> None:
        polls = -1
        while True:
            await self._until_due()
            if self.hold.polls == polls:
                self.pump()
                self._settle_now()
            # Whoever polls has sent its settlements with it.
            polls = self.hold.polls
            self.send(self.hold.keep(time.monotonic()))
            if self._revoking:
                await self._hand_over()

    async def _until_due(self) -> None:
        if self.hold.has_open or self._revoking:
            await asyncio.sleep(self._tick_s)
            return
        self._awake.clear()
        self.is_asleep = True
        try:
            async with asyncio.timeout(min(IDLE_SECONDS, self.hold.lease_ms / SECOND_MS / 8)):
                await self._awake.wait()
        except TimeoutError:
            return
        finally:
            self.is_asleep = False

    async def _hand_over(self) -> None:
        """Give up the partitions nobody here works on any more, or works on for too long."""
        now_s = time.monotonic()
        self._settle_now()
        ready = [
            place
            for place, until_s in self._revoking.items()
            if now_s >= until_s or self.hold.is_clear([place])
        ]
        # All at once if possible: each hand-over is a step of the whole group.
        if len(ready) < len(self._revoking) and now_s < max(self._revoking.values()):
            return
        try:
            await self.membership.revoked(ready, self.membership.generation)
        except GoQueueError as error:
            log.info("partitions are not given up yet: %s", error.message)
            self.nudge()
            return
        self.hold.reopen(ready, time.monotonic())
        for place in ready:
            self._revoking.pop(place, None)
        self.nudge()

    # Heartbeats.

    async def _beat_on(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self.membership.interval_s):
                    await self._nudged.wait()
            except TimeoutError:
                pass
            # Cleared before the heartbeat: who nudges while it is answered may know more.
            self._nudged.clear()
            try:
                await self._beat()
            except (ConnectionLostError, DeadlineExceededError) as error:
                log.info("no heartbeat: %s", error.message)
            except GoQueueError as error:
                if error.retryable:
                    continue
                log.warning("the group refuses us: %s", error.message)
                self.failure = error
                return

    async def _beat(self) -> None:
        try:
            assignment = await self.membership.beat()
        except NOT_A_MEMBER:
            await self.rejoin()
        else:
            self._follow(assignment)

    def _follow(self, assignment: group_calls.MemberAssignment) -> None:
        places = places_of(assignment.to_revoke)
        within_ms = assignment.revoke_within_ms
        seconds = REVOKE_SECONDS if within_ms is None else within_ms / SECOND_MS * REVOKE_SHARE
        until_s = time.monotonic() + seconds
        known = self._revoking
        self._revoking = {place: known.get(place, until_s) for place in places}
        if given_back := set(known) - set(places):
            # Another change of the group leaves them with us.
            self.hold.reopen(given_back, time.monotonic())
        if places:
            self.hold.revoke(places)
            self._awake.set()


LEASE_OVER: Final = frozenset({"stale_receipt", "receipt_expired", "unknown_receipt"})
"""Codes of settlements that came too late: the message is, or was, delivered again."""


def check_refused(hold: Holdings, *, is_closing: bool = False) -> None:
    """Raise if settlements were refused since the last time.

    Whoever closes is told only of those that failed for another reason than their time being over:
    late ones were logged, and nothing is lost by them.
    """
    count, refused = hold.take_refused()
    if is_closing:
        refused = [one for one in refused if one.error.code not in LEASE_OVER]
        count = len(refused)
    if refused:
        raise refused_error(count, refused)


def refused_error(count: int, refused: list[Refusal]) -> GoQueueError:
    """Return what to raise for settlements that were refused."""
    first = refused[0]
    kind = type(first.error) if isinstance(first.error, GoQueueError) else InvalidRequestError
    return kind(
        f"{count} settlements were refused; the first: {first.verb} of {first.topic}/"
        f"{first.partition} offset {first.offset}: {first.error.message}"
    )
