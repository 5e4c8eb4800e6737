"""Polls of a member whose partitions are led by several nodes, as one poll with one deadline.

Every leader is asked for what is ready; where none has anything, all are asked to wait for a while,
and the first that has something ends the wait. What the others lease after that is released at
once: nobody would get it.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from goqueue.base.errors import GoQueueError, StaleGenerationError
from goqueue.base.grant import Grant
from goqueue.base.ids import NodeId, PartitionId, TopicName, TopicPartition
from goqueue.base.units import SECOND_MS
from goqueue.core.delivery.runs import runs_of, set_of
from goqueue.core.record.batch import batch_fields, decode_batch
from goqueue.core.record.frame import read_header
from goqueue.runtime.queue.delivery_read import GatheredRows
from goqueue.runtime.queue.leasing import Leased
from goqueue.runtime.queue.polling import Polled
from goqueue.service.queue import Queue, Standing
from goqueue.service.routing import RoutedVerb, Router
from goqueue.service.verb import RequestContext
from goqueue.wire import queue_calls
from goqueue.wire.packet import Operation

SLICE_MS: Final = SECOND_MS
"""How long leaders are asked to wait at a time: members and leaders may change meanwhile."""
SPARE_SECONDS: Final = 5.0
"""How much longer than its wait the answer to a poll may take."""
HOLDERS_MAX: Final = 10_000
"""Leases of other nodes whose members are remembered, so that they can be released."""

_decode: Final = msgspec.msgpack.Decoder(queue_calls.Polled).decode


class _Round(NamedTuple):
    """One look at the leaders of a member's partitions."""

    grant: Grant
    call: queue_calls.Poll
    context: RequestContext
    standing: Standing
    nodes: Sequence[NodeId]


class RoutedPolls:
    """Polls leaders for members, and gives back what nobody gets."""

    def __init__(self, router: Router, own: Queue) -> None:
        self._router = router
        self._own = own
        self._standing = RoutedVerb.of("queue.standing", own.standing)
        self._holders: dict[int, tuple[NodeId, str]] = {}
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.one_topic: dict[str, bool] = {}
        """Whether groups read a single topic, as was last heard."""

    def __repr__(self) -> str:
        return f"<RoutedPolls of {self._router!r}: {len(self._holders)} leases elsewhere>"

    async def standing(self, grant: Grant, group: str, member: str) -> Standing:
        """Note at the coordinator that a member is there; return what it may read."""
        found: Standing = await self._router.at(
            grant,
            self._standing,
            lambda: self._router.named(group),
            group,
            member,
            is_repeatable=True,
        )
        if len(self.one_topic) >= HOLDERS_MAX:
            self.one_topic.clear()
        self.one_topic[group] = found.has_one_topic
        return found

    async def lease(self, grant: Grant, call: queue_calls.Poll, context: RequestContext) -> Polled:
        """Lease messages of all leaders, waiting a while for some."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + call.wait_ms / SECOND_MS
        while True:
            standing = await self.standing(grant, call.group, call.member)
            if call.generation and call.generation != standing.generation:
                raise StaleGenerationError(
                    f"generation {call.generation} is over; {standing.generation} is current"
                )
            nodes = self._leaders(standing)
            look = _Round(grant, call, context, standing, nodes)
            polled = await self._take_ready(look)
            left_ms = int((deadline - loop.time()) * SECOND_MS)
            if polled.parts or left_ms <= 0:
                return polled
            polled = await self._wait(look, min(left_ms, SLICE_MS))
            if polled.parts:
                return polled

    def _leaders(self, standing: Standing) -> list[NodeId]:
        nodes = [self._router.leader(*place) for place in standing.places]
        return list(dict.fromkeys(nodes))

    async def _take_ready(self, look: _Round) -> Polled:
        """Lease what is ready, of one leader after the other, each time another one first."""
        parts: list[Leased] = []
        lease_ms, limit, size = 0, look.call.limit, look.call.bytes_max
        self._turn += 1
        count = len(look.nodes)
        for place in range(count):
            node = look.nodes[(place + self._turn) % count]
            polled = await self._poll(look, node, wait_ms=0, limit=limit, bytes_max=size)
            parts += polled.parts
            lease_ms = max(lease_ms, polled.lease_ms)
            limit -= sum(part.rows for part in polled.parts)
            size -= sum(part.size for part in polled.parts)
            if limit <= 0 or size <= 0:
                break
        return Polled(look.standing.generation, lease_ms, parts)

    async def _wait(self, look: _Round, wait_ms: int) -> Polled:
        """Wait for the first leader that has something."""
        call = look.call
        waiting = {
            asyncio.ensure_future(
                self._poll(look, node, wait_ms=wait_ms, limit=call.limit, bytes_max=call.bytes_max)
            )
            for node in look.nodes
        }
        if not waiting:
            await asyncio.sleep(wait_ms / SECOND_MS)
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                first = next((one for one in done if one.exception() or one.result().parts), None)
                if first is not None:
                    waiting |= done - {first}
                    return first.result()
        finally:
            for one in waiting:
                self._see_to(self._release_late(look, one))
        return Polled(look.standing.generation, 0, [])

    async def _release_late(self, look: _Round, poll: "asyncio.Future[Polled]") -> None:
        polled = await poll
        if polled.parts:
            self.give_back(look.grant, look.call.group, polled)

    async def _poll(
        self, look: _Round, node: NodeId, *, wait_ms: int, limit: int, bytes_max: int
    ) -> Polled:
        call = msgspec.structs.replace(
            look.call, generation=0, limit=limit, bytes_max=bytes_max, wait_ms=wait_ms
        )
        if node == self._router.node:
            return await self._own.lease(look.grant, call, look.context)
        timeout_s = wait_ms / SECOND_MS + SPARE_SECONDS
        answer = await self._router.forward(
            node, look.grant, Operation.POLL, call, timeout_s=timeout_s
        )
        told = _decode(answer.header)
        parts = list(_leased(told.parts, answer.payload))
        if len(self._holders) > HOLDERS_MAX:
            self._holders.clear()
        self._holders.update((part.nonce, (node, call.member)) for part in parts)
        return Polled(told.generation, told.lease_ms, parts)

    # Giving back.

    def give_back(self, grant: Grant, group: str, polled: Polled) -> None:
        """End leases whose messages were not received, here at once and elsewhere soon."""
        elsewhere: dict[tuple[NodeId, str], list[Leased]] = {}
        here: list[Leased] = []
        for part in polled.parts:
            holder = self._holders.pop(part.nonce, None)
            if holder is None:
                here.append(part)
            else:
                elsewhere.setdefault(holder, []).append(part)
        if here:
            self._own.give_back(grant, group, polled._replace(parts=here))
        for (node, member), parts in elsewhere.items():
            self._see_to(self._release(grant, node, group, member, parts))

    async def _release(
        self, grant: Grant, node: NodeId, group: str, member: str, parts: Iterable[Leased]
    ) -> None:
        told = [
            queue_calls.SettlePart(
                part.partition.topic,
                part.partition.partition,
                part.nonce,
                queue_calls.RELEASE,
                runs_of(set_of(part.order)),
            )
            for part in parts
        ]
        settle = queue_calls.Settle(group, member, told)
        await self._router.forward(node, grant, Operation.SETTLE, settle, timeout_s=SPARE_SECONDS)

    def _see_to(self, work: Any) -> None:  # noqa: ANN401 - a coroutine
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and not isinstance(task.exception(), GoQueueError):
            # A lease that could not be released is over when its time is.
            task.result()


def _leased(parts: Sequence[queue_calls.PolledPart], payload: memoryview) -> Iterable[Leased]:
    """Yield leases of another node, as those of this one are."""
    position = 0
    for part in parts:
        frames = payload[position : position + part.size]
        position += part.size
        apart = None
        if part.gathered:
            last = _last_frame(frames)
            apart = _gathered(frames[last:], part.gathered)
            frames = frames[:last]
        yield Leased(
            TopicPartition(TopicName(part.topic), PartitionId(part.partition)),
            part.nonce,
            [frames] if len(frames) else [],
            part.order,
            dict(part.failures),
            apart,
            part.traced,
            part.tag,
        )


def _last_frame(frames: memoryview) -> int:
    position = last = 0
    while position < len(frames):
        last = position
        position += read_header(frames, position).size
    return last


def _gathered(frame: memoryview, offsets: list[int] | bytes) -> GatheredRows:
    header = read_header(frame, 0)
    column_set = batch_fields(header, frame).column_set
    return GatheredRows(decode_batch(header, frame), column_set, offsets, len(frame))
