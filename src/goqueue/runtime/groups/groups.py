"""Every consumer group of a broker: joining, leaving, and what becomes of those who fell silent."""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from goqueue.base.errors import (
    GoQueueError,
    GroupNotFoundError,
    OverloadedError,
    ShuttingDownError,
)
from goqueue.base.ids import GroupId, MemberId, TopicName, TopicPartition
from goqueue.base.limits import GROUPS_MAX
from goqueue.base.names import group_name
from goqueue.base.units import SECOND_MS
from goqueue.core.decision import Decision
from goqueue.core.groups.connections import Connections
from goqueue.core.groups.events import Event
from goqueue.core.groups.group import Group
from goqueue.core.groups.member import JoinRequest
from goqueue.core.groups.tally import Tally
from goqueue.observability.events import LogEvent
from goqueue.observability.group_metrics import GroupMeter, GroupMetrics
from goqueue.observability.logging import get_logger
from goqueue.observability.metrics import Metrics
from goqueue.runtime.clock import Clock
from goqueue.runtime.groups.absences import STALL_MS, Absences
from goqueue.runtime.groups.gauges import group_metrics
from goqueue.runtime.groups.group_news import GroupNews, Watcher
from goqueue.runtime.groups.hosted_group import KEY_PREFIX, HostedGroup
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import StateJournal, homes_in

SWEEP_INTERVAL_MS: Final = SECOND_MS
TOKEN_BYTES: Final = 8

log = get_logger("goqueue.groups")


class Counts(Mapping[TopicName, int]):
    """How many partitions each topic has, read off the topics when it is asked."""

    def __init__(self, topics: Mapping[TopicName, Topic]) -> None:
        self._topics = topics

    def __getitem__(self, name: TopicName) -> int:
        return len(self._topics[name].partitions)

    def __iter__(self) -> Iterator[TopicName]:
        return iter(self._topics)

    def __len__(self) -> int:
        return len(self._topics)


class Groups:
    """Hosts one decider per group. Runs in the broker's event loop."""

    def __init__(
        self,
        state: StateJournal,
        topics: Mapping[TopicName, Topic],
        *,
        clock: Clock,
        metrics: Metrics,
        token: Callable[[], str] = lambda: secrets.token_hex(TOKEN_BYTES),
    ) -> None:
        self.tally = Tally()
        self._state = state
        self._counts = Counts(topics)
        self._clock = clock
        self._token = token
        self._metrics = GroupMetrics(metrics)
        self._groups: dict[GroupId, HostedGroup] = {}
        self._watchers: list[Watcher] = []
        self._task: asyncio.Task[None] | None = None
        self._connections = Connections()
        self._absences = Absences(clock=clock, remove=self._remove_lost)
        self._latest_ms = self._lives = 0
        self._process = ""
        self._is_stopped = False
        self._is_ending = False
        """Whether connections end because the broker ends them."""
        self._is_failing = False
        metrics.collect_from(lambda: group_metrics(self._groups))

    def __repr__(self) -> str:
        return f"<Groups: {len(self._groups)}>"

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, name: str) -> bool:
        return name in self._groups

    def __iter__(self) -> Iterator[HostedGroup]:
        return iter([self._groups[name] for name in sorted(self._groups)])

    def get(self, name: str) -> HostedGroup:
        """Return a group or raise."""
        hosted = self._groups.get(GroupId(name))
        if hosted is None:
            if self._is_stopped:
                raise ShuttingDownError("the broker is stopping")
            self._state.check(name)
            raise GroupNotFoundError("group not found")
        return hosted

    is_near = True

    def find(self, name: str) -> HostedGroup | None:
        """Return a group that is hosted here."""
        return self._groups.get(GroupId(name))

    def is_ready(self, name: str, member: str, generation: int) -> bool:  # noqa: ARG002 - as views
        """Return True: nobody else knows more."""
        return True

    async def prepare(self, name: str, member: str = "", generation: int = 0) -> None:
        """Return at once: nobody else knows more."""

    def keep_while(self, has_ledgers: Callable[[str], bool]) -> None:
        """Let be: a group is kept until it is deleted."""

    def want(self, name: str) -> None:
        """Let be: all there are are here."""

    def is_loaded(self, name: str) -> bool:
        """Return True if it is known here whether there is such a group, and all about it."""
        try:
            self._state.check(name)
        except GoQueueError:
            return False
        return True

    def watch(self, watcher: Watcher) -> None:
        """Call back for members that are gone, partitions lost and groups deleted.

        It is called right after the change, in the same step: what it appends to the state of the
        same home comes behind the change in the log.
        """
        self._watchers.append(watcher)

    # Life.

    def load(self, partition: int) -> None:
        """Bring back the groups of a state partition."""
        for key in self._state.keys(KEY_PREFIX, partition):
            hosted = self._host(GroupId(key.removeprefix(KEY_PREFIX)))
            if hosted.load():
                self._groups[hosted.name] = hosted

    def follow(self, partition: int) -> None:
        """Follow what happened to topics while groups were not loaded, when all who watch are."""
        for name in list(homes_in(self._state, partition, self._groups)):
            self._recount(self._groups[name])

    def unload(self, partition: int) -> None:
        """Let go of the groups of a state partition; their members are to ask again."""
        for name in list(homes_in(self._state, partition, self._groups)):
            hosted = self._groups.pop(name)
            self._absences.forget(hosted)
            hosted.close()

    def start(self) -> None:
        """Begin to look for members that fell silent."""
        self._task = asyncio.get_running_loop().create_task(self._sweep_on())

    async def stop(self) -> None:
        """End."""
        self._is_stopped = True
        self.ignore_disconnects()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _host(self, name: GroupId) -> HostedGroup:
        return HostedGroup(
            Group(name),
            state=self._state,
            clock=self._clock,
            meter=GroupMeter(self._metrics, name),
            tallies=[self.tally],
            tell=self.tell,
            connections=self._connections,
            life=self._life(),
        )

    def _life(self) -> str:
        """Return what differs between hosts of a group, where other nodes watch it."""
        if not self._state.is_beside:
            return ""
        self._lives += 1
        self._process = self._process or self._token()
        return f"{self._process}-{self._lives}"

    def tell(self, news: GroupNews) -> None:
        """Tell those who watch of a change."""
        for watcher in self._watchers:
            watcher(news)

    # What members and people ask for.

    async def join(
        self, name: str, request: JoinRequest, *, connection: int = 0
    ) -> tuple[HostedGroup, MemberId]:
        """Let a client into a group, which may be new; answer when it is durable."""
        if self._is_stopped:
            raise ShuttingDownError("the broker is stopping")
        checked = group_name(name)
        hosted = self._groups.get(checked)
        if hosted is None and len(self._groups) >= GROUPS_MAX:
            raise OverloadedError(f"there are {GROUPS_MAX} groups; delete one first")
        if not self._state.is_open:
            # What is wrong with the request is said before anything is made for it.
            self._decide_join(checked, request)
            await self._state.prepare()
            return await self.join(name, request, connection=connection)
        decision = self._decide_join(checked, request)
        if hosted is None:
            hosted = self._host(checked)
        try:
            durable = hosted.commit(decision.events)
        except GoQueueError:
            if checked not in self._groups:
                self._metrics.forget(checked)
            raise
        self._groups[checked] = hosted
        hosted.touch(decision.reply, connection)
        if decision.events:
            log.info(LogEvent.MEMBER_JOINED, group=checked, member=decision.reply)
        await durable
        await hosted.settled()
        return hosted, decision.reply

    def _decide_join(self, name: GroupId, request: JoinRequest) -> Decision[Event, MemberId]:
        hosted = self._groups.get(name)
        group = Group(name) if hosted is None else hosted.group
        return group.join(
            request,
            new_id=MemberId(f"{request.client_id}-{self._token()}"),
            partitions=self._counts,
            now_ms=self._now_ms(),
        )

    def _now_ms(self) -> int:
        """Return the time; where groups are told apart by it, never the same one twice."""
        now_ms = self._clock.now_ms()
        if self._state.is_beside:
            self._latest_ms = now_ms = max(now_ms, self._latest_ms + 1)
        return now_ms

    async def leave(self, name: str, member_id: str) -> None:
        """Let a member go; answer when it is durable."""
        hosted = self.get(name)
        decision = hosted.group.leave(member_id, partitions=self._counts)
        durable = hosted.commit(decision.events)
        log.info(LogEvent.MEMBER_LEFT, group=hosted.name, member=member_id)
        await durable

    async def revoke(
        self,
        name: str,
        member_id: str,
        *,
        generation: int,
        revoked: Sequence[TopicPartition],
        connection: int = 0,
    ) -> HostedGroup:
        """Take note of what a member has given up; answer when it is durable."""
        hosted = self.get(name)
        decision = hosted.group.revoke(member_id, generation=generation, revoked=revoked)
        durable = hosted.commit(decision.events)
        hosted.touch(member_id, connection)
        await durable
        await hosted.settled()
        return hosted

    async def delete(self, name: str, *, is_forced: bool = False) -> None:
        """End a group with everything known of it; answer when it is durable."""
        hosted = self.get(name)
        durable = hosted.commit(hosted.group.delete(is_forced=is_forced).events)
        del self._groups[hosted.name]
        self._absences.forget(hosted)
        self._metrics.forget(hosted.name)
        log.info(LogEvent.GROUP_DELETED, group=hosted.name)
        await durable

    # Connections.

    def connect(self) -> int:
        """Return the number of a new connection, whose end will be told."""
        return self._connections.open()

    def disconnect(self, connection: int, *, is_lost: bool = True) -> None:
        """Take note that a connection ended; whoever has no other has a grace to come back.

        One that was not lost ended in order, as far as its members are concerned.
        """
        alone = self._connections.close(connection)
        if not is_lost or self._is_ending:
            return
        known = [(self._groups.get(group), member) for group, member in alone]
        self._absences.begin([(hosted, member) for hosted, member in known if hosted is not None])

    def ignore_disconnects(self) -> None:
        """Remove no member any more when its connection ends: it is the broker that stops."""
        self._is_ending = True
        self._absences.stop()

    def _remove_lost(self, hosted: HostedGroup) -> None:
        lost = hosted.sessions.lost(now_ms=self._clock.monotonic_ms())
        self._change(hosted, hosted.group.disconnect(lost, partitions=self._counts).events)

    # What time and topics bring.

    def recount(self, topic: str) -> None:
        """Follow a topic that grew, came or went."""
        for hosted in list(self._groups.values()):
            if topic in hosted.topics:
                self._recount(hosted)

    def _recount(self, hosted: HostedGroup) -> None:
        self._change(hosted, hosted.group.recount(partitions=self._counts).events)

    def sweep(self, *, late_ms: int = 0) -> None:
        """Let those go that were silent for too long, and take what was not given up in time.

        A process that stood still heard nothing: time by which a sweep is late does not count.
        """
        now_ms = self._clock.monotonic_ms()
        for hosted in list(self._groups.values()):
            if not hosted.members:
                continue
            if late_ms > STALL_MS:
                hosted.sessions.excuse(late_ms, now_ms=now_ms)
            hosted.note_late()
            group, sessions = hosted.group, hosted.sessions
            if not self._is_ending:
                self._remove_lost(hosted)
            silent = sessions.silent(now_ms=now_ms)
            self._change(hosted, group.expire(silent, partitions=self._counts).events)
            late = sessions.late(now_ms=now_ms)
            self._change(hosted, group.force(late).events if late else ())

    def _change(self, hosted: HostedGroup, events: tuple[Event, ...]) -> None:
        """Make a change in the background; the next sweep tries again what cannot be written."""
        if not events:
            return
        try:
            hosted.commit(events).add_done_callback(self._note_durable)
        except GoQueueError as error:
            self._note_failure(error)
        else:
            log.info(
                LogEvent.GROUP_CHANGED, group=hosted.name, events=[type(e).__name__ for e in events]
            )

    def _note_durable(self, durable: asyncio.Future[None]) -> None:
        if durable.cancelled():
            return
        error = durable.exception()
        if error is None:
            self._is_failing = False
        else:
            self._note_failure(error)

    def _note_failure(self, error: BaseException) -> None:
        if not self._is_failing:
            log.error(LogEvent.GROUP_STATE_NOT_PERSISTED, error=str(error))
        self._is_failing = True

    async def _sweep_on(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(SWEEP_INTERVAL_MS / 1_000)
            late_ms = int((loop.time() - began) * 1_000) - SWEEP_INTERVAL_MS
            try:
                self.sweep(late_ms=late_ms)
            except Exception:
                log.exception(LogEvent.GROUP_SWEEP_CRASHED)
