"""Groups as a node of a cluster finds them: its own, and views of those that others host.

The coordinator of a group is the leader of its state partition. Any other node that leads a
partition the group reads keeps a view of it by a long poll at the coordinator, for as long as it
has ledgers of the group or members poll it here. Who knows of a newer generation than the view, or
is a member that the view does not have, makes the node ask before it answers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from goqueue.base.errors import GoQueueError, GroupNotFoundError, NotCoordinatorError, ProtocolError
from goqueue.base.ids import GroupId, PartitionId, TopicName, TopicPartition
from goqueue.base.units import MINUTE_MS, SECOND_MS
from goqueue.core.groups.group_view import GroupSight
from goqueue.core.groups.options import HEARTBEAT_INTERVAL_MS
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.groups.at_work import GroupAtWork
from goqueue.runtime.groups.group_news import GroupNews, Watcher
from goqueue.runtime.groups.group_watches import Epochs, GroupWatches, WatchReply
from goqueue.runtime.groups.groups import Groups
from goqueue.runtime.groups.viewed_group import ViewedGroup
from goqueue.runtime.machine import UNLOADED
from goqueue.runtime.topology import PartitionLeader, Topology
from goqueue.wire.complaint import HEADER_FAULTS
from goqueue.wire.group_peer_calls import GroupSeen, WatchGroup
from goqueue.wire.packet import Buffer
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation

WATCH_MS: Final = 30 * SECOND_MS
"""How long a coordinator may keep a watch open: a request so often for each group that is idle."""
ASK_SECONDS_MAX: Final = 2.0
"""How long one request may take beyond what it was asked to wait."""
PREPARE_SECONDS_MAX: Final = 5.0
"""How long a poll waits for a view: until another node has taken over from one that died."""
PAUSE_SECONDS: Final = 0.02
PAUSE_SECONDS_MAX: Final = 1.0
IDLE_MS: Final = MINUTE_MS
"""A view that nobody asked for so long is dropped, if there are no ledgers of its group."""

_decode: Final = msgspec.msgpack.Decoder(GroupSeen).decode
log = get_logger("goqueue.groups")


class Homes(Epochs, Protocol):
    """Where groups are kept, and by whom."""

    def partition_of(self, home: str) -> int:
        """Return which state partition holds a group."""
        ...


class GroupViews:
    """Finds groups, wherever they are hosted. Runs in the broker's event loop."""

    is_near = False

    def __init__(
        self, groups: Groups, state: Homes, topology: Topology, clock: Clock, *, topic: str
    ) -> None:
        self._groups = groups
        self._state = state
        self._topology = topology
        self._clock = clock
        self._topic = TopicName(topic)
        self._watches = GroupWatches(groups, state, topology)
        self._views: dict[GroupId, ViewedGroup] = {}
        self._asking: dict[ViewedGroup, asyncio.Task[None]] = {}
        self._following: dict[ViewedGroup, asyncio.Task[None]] = {}
        self._reporting: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._has_ledgers: Callable[[str], bool] = lambda _: False

    def __repr__(self) -> str:
        return f"<GroupViews: {len(self._views)} beside {self._groups!r}>"

    def handlers(
        self,
    ) -> Mapping[
        PeerOperation, Callable[[PeerIdentity, Buffer, memoryview], Awaitable[WatchReply]]
    ]:
        """Return what peers may ask."""
        return {PeerOperation.WATCH_GROUP: self._watches.answer}

    # Finding.

    def __contains__(self, name: str) -> bool:
        viewed = self._views.get(GroupId(name))
        return name in self._groups or (viewed is not None and viewed.view.is_there)

    def watch(self, watcher: Watcher) -> None:
        """Call back for members that are gone, partitions lost and groups deleted."""
        self._groups.watch(watcher)

    def is_loaded(self, name: str) -> bool:
        """Return True if it is known here whether there is such a group, and all about it."""
        if self._groups.is_loaded(name):
            return True
        viewed = self._views.get(GroupId(name))
        return viewed is not None and viewed.view.is_known

    def get(self, name: str) -> GroupAtWork:
        """Return a group, or raise; one that is not known here is looked for then."""
        hosted = self._groups.find(name)
        if hosted is not None:
            return hosted
        if self._groups.is_loaded(name):
            return self._groups.get(name)
        viewed = self._want(name)
        viewed.check()
        return viewed

    def is_ready(self, name: str, member: str, generation: int) -> bool:
        """Return True if a member that knows a generation can be served by what is known here."""
        if self._groups.find(name) is not None or self._groups.is_loaded(name):
            return True
        viewed = self._views.get(GroupId(name))
        return viewed is not None and viewed.serves(member, generation)

    def want(self, name: str) -> None:
        """See to it that a group is known here soon."""
        if not self._groups.is_loaded(name):
            self._want(name)

    async def prepare(self, name: str, member: str = "", generation: int = 0) -> None:
        """Have it known here what the coordinator knows of a group, or raise.

        A coordinator that just moved is asked again for a while.
        """
        loop = asyncio.get_running_loop()
        ends_at, pause_s = loop.time() + PREPARE_SECONDS_MAX, PAUSE_SECONDS
        while not self.is_ready(name, member, generation):
            viewed = self._want(name)
            try:
                await self._refresh(viewed)
                viewed.check()
                if generation <= viewed.generation:
                    # Whoever is no member by now is told so.
                    return
                raise NotCoordinatorError("the coordinator knows of no such generation; ask again")
            except GroupNotFoundError:
                raise
            except GoQueueError:
                if loop.time() + pause_s > ends_at:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_SECONDS_MAX)

    # Life.

    def keep_while(self, has_ledgers: Callable[[str], bool]) -> None:
        """Look at a group for as long as something is kept here on its behalf."""
        self._has_ledgers = has_ledgers

    def start(self) -> None:
        """Begin to look for members that fell silent, and to report who was heard of."""
        self._groups.start()
        self._reporting = asyncio.get_running_loop().create_task(self._report_on())

    async def stop(self) -> None:
        """End."""
        await self._groups.stop()
        self._is_stopped = True
        tasks = [*self._following.values(), *self._asking.values()]
        if self._reporting is not None:
            tasks.append(self._reporting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for viewed in list(self._views.values()):
            self._drop(viewed, UNLOADED)

    def drop_hosted(self) -> None:
        """Drop the views of groups that are hosted here from now on."""
        for viewed in list(self._views.values()):
            if self._groups.is_loaded(viewed.name):
                self._drop(viewed, UNLOADED)

    def want_all(self, names: Iterable[str]) -> None:
        """See to it that groups are known here soon that are about to be hosted elsewhere."""
        for name in names:
            self._want(name)

    def _want(self, name: str) -> ViewedGroup:
        """Return the view of a group, which is begun if there is none."""
        viewed = self._views.get(GroupId(name))
        if viewed is None:
            viewed = self._views[GroupId(name)] = ViewedGroup(GroupId(name))
            if not self._is_stopped:
                task = asyncio.get_running_loop().create_task(self._follow(viewed))
                self._following[viewed] = task
                task.add_done_callback(lambda _: self._following.pop(viewed, None))
        viewed.wanted_ms = self._clock.monotonic_ms()
        return viewed

    def _drop(self, viewed: ViewedGroup, error: GoQueueError) -> None:
        if self._views.get(viewed.name) is viewed:
            del self._views[viewed.name]
        viewed.close(error)
        task = self._following.get(viewed)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    # Asking.

    async def _follow(self, viewed: ViewedGroup) -> None:
        """Keep a view up to date until it is dropped."""
        pause_s = PAUSE_SECONDS
        while not viewed.is_closed:
            if self._is_idle(viewed):
                self._drop(viewed, UNLOADED)
                return
            try:
                await self._ask(viewed, wait_ms=WATCH_MS if viewed.view.is_known else 0)
                pause_s = PAUSE_SECONDS
            except GoQueueError:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_SECONDS_MAX)
            except Exception:
                log.exception(LogEvent.GROUP_VIEW_CRASHED, group=viewed.name)
                await asyncio.sleep(PAUSE_SECONDS_MAX)

    def _is_idle(self, viewed: ViewedGroup) -> bool:
        since_ms = self._clock.monotonic_ms() - viewed.wanted_ms
        return since_ms > IDLE_MS and not self._has_ledgers(viewed.name)

    async def _refresh(self, viewed: ViewedGroup) -> None:
        """Ask now; those who come meanwhile are answered by the next request, which they share."""
        running = self._asking.get(viewed)
        if running is not None:
            # It may have been answered before what its caller knows happened.
            await asyncio.wait([running])
        task = self._asking.get(viewed)
        if task is None or task is running or task.done():
            task = asyncio.get_running_loop().create_task(self._ask(viewed, wait_ms=0))
            self._asking[viewed] = task
            task.add_done_callback(lambda done: self._asked(viewed, done))
        await asyncio.shield(task)

    def _asked(self, viewed: ViewedGroup, task: asyncio.Task[None]) -> None:
        if self._asking.get(viewed) is task:
            del self._asking[viewed]
        if not task.cancelled():
            task.exception()

    async def _ask(self, viewed: ViewedGroup, *, wait_ms: int) -> None:
        """Have the coordinator show a group, and take what it shows."""
        leader = self._coordinator(viewed.name)
        assert leader.node is not None, "checked"
        heard = viewed.take_heard()
        call = WatchGroup(viewed.name, viewed.view.of, wait_ms, [str(one) for one in heard])
        try:
            reply = await self._topology.request(
                leader.node,
                PeerOperation.WATCH_GROUP,
                call,
                timeout_s=wait_ms / SECOND_MS + ASK_SECONDS_MAX,
            )
            seen = _decode(reply.header)
        except HEADER_FAULTS as error:
            raise ProtocolError(f"a view that cannot be read: {error}") from error
        except BaseException:
            viewed.put_back(heard)
            raise
        self._take(viewed, seen.sight)

    def _coordinator(self, name: GroupId) -> PartitionLeader:
        """Return the node that hosts a group, or raise if that is none, or still to be this one."""
        leader = self._topology.leader_of(self._place_of(name))
        if leader.node is None or leader.node == self._topology.node:
            raise NotCoordinatorError("the coordinator of the group is moving; ask again")
        return leader

    def _place_of(self, name: GroupId) -> TopicPartition:
        return TopicPartition(self._topic, PartitionId(self._state.partition_of(name)))

    def _take(self, viewed: ViewedGroup, sight: GroupSight) -> None:
        """Take what a coordinator showed, and tell of it, unless something newer was shown."""
        if viewed.is_closed or not viewed.view.is_newer(sight.of):
            return
        is_late = sight.of.epoch < self._topology.leader_of(self._place_of(viewed.name)).epoch
        if is_late and not sight.events:
            raise NotCoordinatorError("a former coordinator knows of no such group; ask again")
        change = viewed.take(sight)
        viewed.is_deleted = not viewed.view.is_there
        if change.is_deleted:
            self._groups.tell(GroupNews(group=viewed.name, gone=change.gone, is_deleted=True))
        if not viewed.view.is_there:
            self._drop(viewed, GroupNotFoundError("group not found"))
            raise GroupNotFoundError("group not found")
        viewed.waiters.wake()
        gone = {} if change.is_deleted else change.gone
        self._groups.tell(GroupNews(group=viewed.name, gone=gone, lost=change.lost))

    async def _report_on(self) -> None:
        """Tell coordinators who was heard of here, as often as members send heartbeats."""
        while True:
            await asyncio.sleep(HEARTBEAT_INTERVAL_MS / SECOND_MS)
            heard = [one for one in self._views.values() if one.has_heard]
            await asyncio.gather(*map(self._refresh, heard), return_exceptions=True)


def views_of(
    groups: Groups, state: Homes, topology: Topology | None, clock: Clock, *, topic: str
) -> GroupViews | None:
    """Return where a node of a cluster finds groups; None for a broker by itself."""
    return None if topology is None else GroupViews(groups, state, topology, clock, topic=topic)
