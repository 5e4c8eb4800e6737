"""Shows the groups that are hosted here to the nodes that lead partitions they read."""

import asyncio
from typing import NamedTuple, Protocol

import msgspec

from goqueue.base.errors import GroupNotFoundError, InvalidRequestError
from goqueue.core.groups.group_view import GroupSight, SightOf
from goqueue.runtime.groups.groups import Groups
from goqueue.runtime.groups.hosted_group import HostedGroup
from goqueue.runtime.topology import Topology
from goqueue.wire.calls import Call
from goqueue.wire.complaint import HEADER_FAULTS, complaint
from goqueue.wire.group_peer_calls import GroupSeen, WatchGroup
from goqueue.wire.packet import Buffer
from goqueue.wire.peer_calls import PeerIdentity

_decode = msgspec.msgpack.Decoder(WatchGroup).decode


class WatchReply(NamedTuple):
    """What a peer is answered."""

    header: Call
    payload: tuple[Buffer, ...] = ()


class Epochs(Protocol):
    """Where groups are kept."""

    def epoch_of(self, home: str) -> int:
        """Return the leader epoch of what a home is kept in, or raise if it is not loaded."""
        ...


class GroupWatches:
    """Answers those who watch groups."""

    def __init__(self, groups: Groups, state: Epochs, topology: Topology) -> None:
        self._groups = groups
        self._state = state
        self._topology = topology

    def __repr__(self) -> str:
        return f"<GroupWatches of {self._groups!r}>"

    async def answer(self, _: PeerIdentity, header: Buffer, __: memoryview) -> WatchReply:
        """Show a group to a peer, waiting a while for it to change."""
        try:
            call = _decode(header)
        except HEADER_FAULTS as error:
            raise InvalidRequestError(f"watch: {complaint(WatchGroup, error)}") from error
        return WatchReply(GroupSeen(await self.show(call)))

    async def show(self, call: WatchGroup) -> GroupSight:
        """Return a group as it is, once that is another sight than the one named."""
        self._topology.check_live()
        try:
            hosted = self._groups.get(call.group)
            self._hear(hosted, call)
            if self._of(hosted) == call.of and call.wait_ms:
                await self._wait(hosted, call.wait_ms)
            # A generation is durable before anybody hears of it.
            await hosted.settled()
        except GroupNotFoundError:
            return self._absent(call.group)
        self._topology.check_live()
        hosted.host.check()
        if hosted.is_deleted:
            return self._absent(call.group)
        return GroupSight(self._of(hosted), hosted.group.snapshot(), dict(hosted.departed))

    def _absent(self, group: str) -> GroupSight:
        """Say that there is no such group; each time that is news."""
        return GroupSight(SightOf(self._state.epoch_of(group)), [])

    def _of(self, hosted: HostedGroup) -> SightOf:
        return SightOf(self._state.epoch_of(hosted.name), hosted.life, hosted.version)

    def _hear(self, hosted: HostedGroup, call: WatchGroup) -> None:
        """Count what a leader has heard as signs of life."""
        for member in call.heard:
            if member in hosted.members:
                hosted.touch(member)

    async def _wait(self, hosted: HostedGroup, wait_ms: int) -> None:
        """Return when a group has changed, or so much time has passed."""
        version = hosted.version
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + wait_ms / 1_000
        while hosted.version == version and hosted.host.closed is None and not hosted.is_deleted:
            news = hosted.waiters.watch()
            try:
                async with asyncio.timeout_at(ends_at):
                    await news
            except TimeoutError:
                return
            finally:
                hosted.waiters.unwatch(news)
        hosted.host.check()
