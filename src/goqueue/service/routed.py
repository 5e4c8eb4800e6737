"""The service of a node of a cluster, as HTTP has it: the whole cluster behind the same nouns."""

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Final

import msgspec

from goqueue.base.errors import GoQueueError, LeaderNotAvailableError, TopicNotFoundError
from goqueue.base.grant import Grant
from goqueue.base.ids import NodeId
from goqueue.runtime.broker import Broker
from goqueue.runtime.forwarding import Forwarding
from goqueue.service.routed_letters import RoutedLetters
from goqueue.service.routed_queue import RoutedQueue, RoutedReceipts
from goqueue.service.routes import GATHERINGS, ROUTES, STAND_INS, Gathering, Route
from goqueue.service.routing import MISSING, RoutedVerb, Router
from goqueue.service.service import Service

PAGE: Final = 100
"""How much of a list a node is asked for at a time."""
ASKED_ALONE: Final = (
    "receipts.settle",
    "receipts.settle_parts",
    "receipts.settle_next",
    "queue.commit_offsets",
    "queue.move_offsets",
    "dlq.read",
)
"""Verbs beside those of the table that nodes ask of each other."""


def asked_verbs(service: Service) -> Mapping[str, Callable[..., Any]]:
    """Return the verbs that other nodes may ask for by name."""
    return {name: _verb_of(service, name) for name in (*ROUTES, *GATHERINGS, *ASKED_ALONE)}


def _verb_of(service: Service, name: str) -> Callable[..., Any]:
    noun, _, verb = name.partition(".")
    found: Callable[..., Any] = getattr(getattr(service, noun), verb)
    return found


class RoutedService(Service):
    """Answers for the cluster: each verb by the node, or the nodes, that it belongs to."""

    missing = MISSING

    def __init__(self, broker: Broker, own: Service, forwarding: Forwarding) -> None:
        super().__init__(broker, own.gate)
        self.turns = own.turns
        self.router = Router(broker, forwarding)
        self._own = own
        self.reassignment = own.reassignment
        self.queue = queue = RoutedQueue(broker, own.queue, self.router)
        self.receipts = RoutedReceipts(broker, own, queue, self.router)
        for noun in dict.fromkeys(name.partition(".")[0] for name in (*ROUTES, *GATHERINGS)):
            setattr(self, noun, copy(getattr(self, noun)))
        for name, route in ROUTES.items():
            self._replace(name, self._route(RoutedVerb.of(name, _verb_of(own, name)), route))
        for name, gathering in GATHERINGS.items():
            verb = RoutedVerb.of(name, _verb_of(own, name))
            self._replace(name, self._gather(verb, gathering))
        self._replace("dlq.read", RoutedLetters(broker, own.dlq.read, self.router).read)
        for name, other in STAND_INS.items():
            self._replace(name, _verb_of(self, other))

    def _replace(self, name: str, verb: Callable[..., Any]) -> None:
        noun, _, attribute = name.partition(".")
        setattr(getattr(self, noun), attribute, verb)

    def _route(self, verb: RoutedVerb, route: Route) -> Callable[..., Any]:
        async def routed(grant: Grant, *args: object, **kwargs: object) -> Any:  # noqa: ANN401
            given = verb.codec.bind(args, kwargs)

            def find() -> NodeId:
                return route.find(self.router, given)

            async def ask() -> Any:  # noqa: ANN401 - as the verb says
                return await self.router.at(
                    grant, verb, find, *args, is_repeatable=route.is_repeatable, **kwargs
                )

            try:
                return await ask()
            except TopicNotFoundError:
                # This node may hear of a new topic later than the client that made it.
                await self.catch_up()
                return await ask()

        return routed

    def _gather(self, verb: RoutedVerb, gathering: Gathering) -> Callable[..., Any]:
        async def gathered(grant: Grant, *args: object, **kwargs: object) -> Any:  # noqa: ANN401
            router, given = self.router, verb.codec.bind(args, kwargs)
            errors: list[GoQueueError] = []

            async def ask(node: NodeId) -> Any:  # noqa: ANN401
                try:
                    if gathering.paged:
                        return await _pages(router, node, grant, verb, given, gathering.paged)
                    return await router.ask(node, grant, verb, **given)
                except gathering.expected as error:
                    errors.append(error)
                    raise

            nodes = gathering.nodes(router, given)
            answers = await router.gather(nodes, ask, expected=gathering.expected)
            if not answers:
                raise next(iter(errors), LeaderNotAvailableError("no node has an answer now"))
            return gathering.merge(router, given, answers)

        return gathered


async def _pages(
    router: Router,
    node: NodeId,
    grant: Grant,
    verb: RoutedVerb,
    given: Mapping[str, Any],
    field: str,
) -> Any:  # noqa: ANN401 - as the verb says
    """Return all that a node has up to the end of the page that is asked for."""
    call = given["call"]
    wanted, found = call.skip + call.limit, list[Any]()
    while True:
        limit = min(PAGE, wanted - len(found))
        asked = msgspec.structs.replace(call, skip=len(found), limit=limit)
        answer = await router.ask(node, grant, verb, **{**given, "call": asked})
        page = getattr(answer, field)
        found += page
        if len(page) < limit or len(found) >= wanted:
            return msgspec.structs.replace(answer, **{field: found})


def routed(broker: Broker, service: Service) -> Service:
    """Return what HTTP asks: the service itself, or in a cluster the one in front of it."""
    forwarding = broker.forwarding
    return service if forwarding is None else RoutedService(broker, service, forwarding)
