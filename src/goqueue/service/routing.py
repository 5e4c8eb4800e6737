"""A service in front of the nouns that asks the node a request belongs to.

Only a node of a cluster has one, for HTTP: native clients go to the right node by themselves. A
request goes to the leader of its partition, to the coordinator of its name, or to every node, whose
answers are put together; which one, a table says (``service/routes.py``).
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, TypeVar

from goqueue.base.cluster_limits import TX_COORDINATORS
from goqueue.base.errors import GoQueueError, LeaderNotAvailableError
from goqueue.base.grant import Grant
from goqueue.base.ids import NodeId, PartitionId, TopicName, TopicPartition
from goqueue.core.producers.id_blocks import owner_of
from goqueue.runtime.broker import Broker
from goqueue.runtime.forwarding import ASTRAY, LOST, Answer, Forwarding
from goqueue.runtime.schemas.schemas import SCHEMAS_TOPIC
from goqueue.runtime.state_log import STATE_TOPIC
from goqueue.runtime.tx.tx_link import TX_TOPIC
from goqueue.service.verb_codec import VerbCodec
from goqueue.wire.calls import Call

GATHER_SECONDS: Final = 3.0
"""How long the answers of all nodes are waited for; then the others are missing."""

MISSING: ContextVar[tuple[str, ...]] = ContextVar("missing", default=())
"""The nodes whose part is missing in the answer to the request of this task."""

R = TypeVar("R")
Arguments = Mapping[str, Any]


class RoutedVerb(NamedTuple):
    """A verb of this node, under the name other nodes know it by."""

    name: str
    serve: Callable[..., Any]
    codec: VerbCodec

    @classmethod
    def of(cls, name: str, serve: Callable[..., Any]) -> "RoutedVerb":
        """Return a verb with what its calls look like."""
        return cls(name, serve, VerbCodec(serve))


class Router:
    """Finds the node of a request and asks it, or this node's own verb."""

    def __init__(self, broker: Broker, forwarding: Forwarding) -> None:
        self._broker = broker
        self._forwarding = forwarding

    def __repr__(self) -> str:
        return f"<Router of {self._forwarding.topology.node}>"

    @property
    def node(self) -> NodeId:
        """The name of this node."""
        return self._forwarding.topology.node

    @property
    def nodes(self) -> Sequence[NodeId]:
        """The nodes that may be asked."""
        return self._forwarding.topology.nodes

    # Where things belong.

    def leader(self, topic: str, partition: int) -> NodeId:
        """Return who leads a partition, or raise that there is no such one or no leader."""
        self._broker.topic(topic).partition(partition)
        return self._forwarding.leader(TopicPartition(TopicName(topic), PartitionId(partition)))

    def leaders(self, topic: str) -> dict[NodeId, list[int]]:
        """Return the partitions of a topic by who leads them; those without a leader are left."""
        found: dict[NodeId, list[int]] = {}
        for partition in self._broker.topic(topic).partitions:
            try:
                node = self._forwarding.leader(partition.name)
            except LeaderNotAvailableError:
                continue
            found.setdefault(node, []).append(partition.name.partition)
        return found

    def named(self, name: str) -> NodeId:
        """Return the coordinator of a group, a schedule or a topic of dead letters."""
        partitions = len(self._broker.state.partitions)
        return self._forwarding.coordinator(STATE_TOPIC, name, partitions)

    def schemas(self) -> NodeId:
        """Return the node that decides about schemas."""
        return self._forwarding.leader(TopicPartition(TopicName(SCHEMAS_TOPIC), PartitionId(0)))

    def transactional(self, name: str) -> NodeId:
        """Return the coordinator of a transactional id; those of a family share one."""
        home = name.partition("#")[0]
        return self._forwarding.coordinator(TX_TOPIC, home, TX_COORDINATORS)

    def producer(self, producer_id: int) -> NodeId:
        """Return the coordinator of a producer by its id, whose block names it."""
        number = PartitionId(owner_of(max(producer_id, 1)) % TX_COORDINATORS)
        return self._forwarding.leader(TopicPartition(TopicName(TX_TOPIC), number))

    # Asking.

    async def at(
        self,
        grant: Grant,
        verb: RoutedVerb,
        find: Callable[[], NodeId],
        *args: object,
        is_repeatable: bool = False,
        **kwargs: object,
    ) -> Any:  # noqa: ANN401 - as the verb says
        """Return what a verb returns on the node that is right for it."""
        return await self._forwarding.find(
            find,
            lambda node: self.ask(node, grant, verb, *args, **kwargs),
            is_repeatable=is_repeatable,
        )

    async def ask(
        self, node: NodeId, grant: Grant, verb: RoutedVerb, *args: object, **kwargs: object
    ) -> Any:  # noqa: ANN401 - as the verb says
        """Return what a verb returns on a node."""
        if node == self.node:
            result = verb.serve(grant, *args, **kwargs)
            return await result if inspect.isawaitable(result) else result
        arguments = verb.codec.write_arguments(*args, **kwargs)
        raw = await self._forwarding.call(node, grant, verb.name, arguments)
        return verb.codec.read_result(raw)

    async def forward(
        self, node: NodeId, grant: Grant, operation: int, header: Call, *, timeout_s: float
    ) -> Answer:
        """Return what another node answers to a native request."""
        return await self._forwarding.forward(
            node, grant.caller, operation, header, timeout_s=timeout_s
        )

    async def gather(
        self,
        asked: Iterable[NodeId],
        ask: Callable[[NodeId], Awaitable[R]],
        *,
        expected: tuple[type[GoQueueError], ...] = (),
    ) -> dict[NodeId, R]:
        """Return the answers of nodes by name; those that do not answer in time are missing.

        An error that is expected means that a node has nothing to say; any other one is raised.
        """
        names = list(dict.fromkeys(asked))
        outcomes = await asyncio.gather(
            *(self._within(ask(node)) for node in names), return_exceptions=True
        )
        found: dict[NodeId, R] = {}
        for node, outcome in zip(names, outcomes, strict=True):
            if isinstance(outcome, expected):
                continue
            if isinstance(outcome, (*ASTRAY, *LOST, TimeoutError)):
                MISSING.set((*MISSING.get(), str(node)))
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                found[node] = outcome
        return found

    async def _within(self, answer: Awaitable[R]) -> R:
        async with asyncio.timeout(GATHER_SECONDS):
            return await answer
