"""Dead letters of a cluster looked at over HTTP: partition by partition, each at its leader."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from goqueue.base.grant import Grant
from goqueue.base.ids import NodeId
from goqueue.core.dlq.names import dlq_name
from goqueue.runtime.broker import Broker
from goqueue.runtime.dlq.letters import DeadLetterRow
from goqueue.runtime.dlq.reports import DeadLetterPage
from goqueue.service.dlq import Letters
from goqueue.service.routing import RoutedVerb, Router
from goqueue.wire.dlq_calls import PeekLetters


class RoutedLetters:
    """Reads dead letters in the order of partitions and offsets, wherever they are led."""

    def __init__(self, broker: Broker, read: Callable[..., Any], router: Router) -> None:
        self._broker = broker
        self._verb = RoutedVerb.of("dlq.read", read)
        self._router = router

    def __repr__(self) -> str:
        return f"<RoutedLetters of {self._router!r}>"

    async def read(self, grant: Grant, call: PeekLetters) -> Letters:
        """Return a page of dead letters; nodes that do not answer are named as missing."""
        topic = self._broker.topics.get(dlq_name(call.topic))
        if topic is None:
            letters: Letters = await self._router.ask(self._router.node, grant, self._verb, call)
            return letters
        count = len(topic.partitions)
        numbers = range(count) if call.partition is None else [call.partition]
        if call.partition is None and call.offset:
            # The same refusal as on one node.
            return await self._at(grant, call, 0)
        first, found, is_cut = await self._walk(grant, call, numbers)
        depth = await self._depth(grant, call, topic.record.name)
        page = DeadLetterPage(found, depth, is_cut)
        return first._replace(page=page)

    async def _walk(
        self, grant: Grant, call: PeekLetters, numbers: Sequence[int]
    ) -> tuple[Letters, list[DeadLetterRow], bool]:
        """Return letters of partitions in order, as many as are wanted and fit."""
        first: Letters | None = None
        found: list[DeadLetterRow] = []
        skip, room = call.skip, call.bytes_max
        is_cut = False
        for number in numbers:
            if len(found) == call.limit or room <= 0:
                is_cut = True
                break
            asked = msgspec.structs.replace(
                call, partition=number, skip=skip, limit=call.limit - len(found), bytes_max=room
            )
            answers = await self._one(grant, asked, number)
            for answer in answers:
                first = first or answer
                found += answer.page.letters
                room -= sum(len(one.message.value or b"") for one in answer.page.letters)
                skip -= answer.page.skipped
                is_cut = answer.page.is_cut
            if is_cut:
                break
        if first is None:
            name = dlq_name(call.topic)
            first = Letters(name, "", DeadLetterPage([], 0, is_cut=False))
        return first, found, is_cut

    async def _one(self, grant: Grant, call: PeekLetters, number: int) -> Sequence[Letters]:
        """Return the letters of a partition, or nothing if its leader does not answer."""
        node = self._router.leader(dlq_name(call.topic), number)

        async def ask(_: NodeId) -> Letters:
            return await self._at(grant, call, number)

        return list((await self._router.gather([node], ask)).values())

    async def _at(self, grant: Grant, call: PeekLetters, number: int) -> Letters:
        letters: Letters = await self._router.at(
            grant,
            self._verb,
            lambda: self._router.leader(dlq_name(call.topic), number),
            call,
            is_repeatable=True,
        )
        return letters

    async def _depth(self, grant: Grant, call: PeekLetters, topic: str) -> int:
        """Return how many dead letters all leaders have."""
        leaders = self._router.leaders(topic)

        async def ask(node: NodeId) -> Letters:
            asked = msgspec.structs.replace(
                call, partition=leaders[node][0], offset=0, skip=0, limit=1, bytes_max=1
            )
            letters: Letters = await self._router.ask(node, grant, self._verb, asked)
            return letters

        answers = await self._router.gather(leaders, ask)
        return sum(answer.page.depth for answer in answers.values())
