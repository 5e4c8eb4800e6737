"""A link to a cluster: every request goes to the node that can answer it.

There is one connection for each node that was needed so far. Requests about named state and about
whole topics are repeated here until the right node has answered or the time is over; messages are
the business of outboxes, readers and consumers, which ask for the link to a node by ``at``.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from goqueue.base.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineExceededError,
    GoQueueError,
    InvalidRequestError,
    LeaderNotAvailableError,
)
from goqueue.client.aio.link import Done, Link, NativeLink
from goqueue.client.dial import Dial
from goqueue.client.protocol.cluster_view import ASK_SECONDS_MAX, LOST, MOVED, ClusterView
from goqueue.client.protocol.exchange import (
    BACKOFF_SECONDS,
    BACKOFF_SECONDS_MAX,
    Answer,
    UnreachableError,
    decode,
)
from goqueue.client.protocol.gather import Share
from goqueue.client.protocol.routing import (
    ANY,
    NOT_SENT,
    ONCE,
    Route,
    ToCoordinator,
    ToLeader,
    route_of,
)
from goqueue.client.protocol.scatter import Scattered, plan_of, topic_of
from goqueue.wire import calls, metadata_calls
from goqueue.wire.packet import Buffer, Operation

CONNECT_SECONDS_MAX: Final = 3.0
"""How long one node of several may take to be connected to."""
PATIENCE: Final = 0.9
"""The part of a call's time that is spent on finding who answers: the caller hears why in vain."""
SILENCE_SECONDS: Final = 1.0
"""How often connections are looked at that owe an answer; after two looks the view is refreshed."""


class RoutedLink:
    """Sends requests to the nodes of a cluster."""

    def __init__(self, view: ClusterView, dial: Dial) -> None:
        self.cluster = view
        """Where things are, as this client knows it."""
        self._dial = dial
        self._timeout_s = dial.timeout_s
        self._links: dict[str, NativeLink] = {}
        self._watchers: list[Callable[[], None]] = []
        self._refreshing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._quiet: dict[str, int] = {}
        """How many replies had come at the last look, of connections that owe one."""
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<RoutedLink by {self.cluster!r}>"

    # Links of nodes.

    def at(self, node: str) -> NativeLink:
        """Return the link to the node at an address."""
        link = self._links.get(node)
        if link is None:
            seconds = min(self._timeout_s, CONNECT_SECONDS_MAX)
            link = NativeLink(node, self._dial.within(seconds))
            for lost in self._watchers:
                link.watch(lost)
            self._links[node] = link
        return link

    def adopt(self, node: str, link: NativeLink) -> None:
        """Use a connection that was made already."""
        self._links[node] = link

    @property
    def is_ready(self) -> bool:
        """Return False: whether there is a connection is known by the link of each node."""
        return False

    def begin(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer], done: Done
    ) -> None:
        """Send a request at once to the leader of its first partition, which is connected to."""
        route = route_of(operation, header)
        assert isinstance(route, ToLeader), "messages of a partition"
        self.at(self.cluster.need_leader(*route)).begin(operation, header, payload, done)

    def drop(self) -> None:
        """Give up connections that owe an answer; the next requests make new ones."""
        for link in self._links.values():
            if link.owes_answers:
                link.drop()

    def watch(self, lost: Callable[[], None]) -> None:
        """Call back each time the connection to a node is lost."""
        self._watchers.append(lost)
        for link in self._links.values():
            link.watch(lost)

    def unwatch(self, lost: Callable[[], None]) -> None:
        """Do not call back any more."""
        if lost in self._watchers:
            self._watchers.remove(lost)
        for link in self._links.values():
            link.unwatch(lost)

    async def close(self) -> None:
        """End all connections."""
        self._is_closed = True
        for task in (self._refreshing, self._watching):
            if task is not None:
                task.cancel()
        for link in self._links.values():
            await link.close()

    # Requests.

    async def request(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer] = ()
    ) -> Answer:
        """Send a request to who can answer it, again while that is somebody else by now.

        A lost connection is not retried here: whether the request was carried out is unknown.
        """
        plan = plan_of(operation, header)
        if plan is not None:
            return await self._insist(operation, lambda: self._scatter(plan, operation, header))
        route = route_of(operation, header)
        return await self._insist(
            operation, lambda: self._request(route, operation, header, payload), route
        )

    async def _insist(
        self,
        operation: Operation,
        attempt: Callable[[], Awaitable[Answer]],
        route: Route = ANY,
    ) -> Answer:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._timeout_s * PATIENCE
        backoff_s = BACKOFF_SECONDS
        while True:
            try:
                return await attempt()
            except NOT_SENT as error:
                failure: GoQueueError = error
            except MOVED as error:
                if operation in ONCE:
                    raise
                failure = error
            if isinstance(route, ToCoordinator):
                self.cluster.forget_coordinator(*route)
            self.cluster.mark_stale()
            if loop.time() + backoff_s > deadline_s:
                raise self._in_vain(failure, route)
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_SECONDS_MAX)
            with contextlib.suppress(*LOST):
                await self.refresh()

    def _in_vain(self, failure: GoQueueError, route: Route) -> GoQueueError:
        seconds = f"{self._timeout_s * PATIENCE:.3g}"
        whom = "" if route is ANY else f" for {route}"
        trouble = self.cluster.trouble()
        return type(failure)(f"waited {seconds} s{whom}: {failure.message}{trouble}")

    async def _request(
        self, route: Route, operation: Operation, header: calls.Call, payload: Sequence[Buffer]
    ) -> Answer:
        node = await self._node_of(route)
        return await self._ask(node, operation, header, payload)

    async def _ask(
        self,
        node: str,
        operation: Operation,
        header: calls.Call,
        payload: Sequence[Buffer] = (),
    ) -> Answer:
        """Ask one node; take note if it cannot be reached."""
        self._begin_watching()
        link = self.at(node)
        try:
            if not link.is_ready:
                await self._reach(link)
            return await link.request(operation, header, payload)
        except LOST as error:
            self.cluster.suspect(node, asyncio.get_running_loop().time())
            kind = type(error)
            raise kind(f"{self.cluster.name_of(node)}: {error.message}") from error

    @staticmethod
    async def _reach(link: NativeLink) -> None:
        try:
            await link.connect()
        except LOST as error:
            raise UnreachableError(error.message) from error

    async def _node_of(self, route: Route) -> str:
        view = self.cluster
        now_s = asyncio.get_running_loop().time()
        if view.is_due(now_s):
            await self.refresh()
        if isinstance(route, ToLeader):
            return view.need_leader(*route)
        if isinstance(route, ToCoordinator):
            return view.coordinator_of(*route) or await self._find(route)
        return view.candidates(now_s)[0]

    async def _find(self, route: ToCoordinator) -> str:
        header = metadata_calls.FindCoordinator(route.kind, route.key)  # type: ignore[arg-type]
        node = self.cluster.candidates(asyncio.get_running_loop().time())[0]
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                answer = await self._ask(node, Operation.FIND_COORDINATOR, header)
        except (TimeoutError, *LOST) as error:
            self.cluster.suspect(node, asyncio.get_running_loop().time())
            raise LeaderNotAvailableError(
                f"{route} was not found: no answer from {node}"
            ) from error
        found = decode(answer.header, metadata_calls.Coordinator)
        self.cluster.found(route.kind, route.key, found.native)
        return found.native

    async def _scatter(self, plan: Scattered, operation: Operation, header: calls.Call) -> Answer:
        topic = topic_of(operation, header)
        if self.cluster.is_due(asyncio.get_running_loop().time()):
            await self.refresh()
        if topic is not None and not self.cluster.leaders_of(topic):
            self.cluster.mark_stale()
            await self.refresh()
            if not self.cluster.leaders_of(topic):
                # It is not there, which any node says; or is new, and known to that one only.
                await self._request(ANY, operation, header, ())
                raise LeaderNotAvailableError(f"{topic} is not known everywhere yet")
        shares = plan.split(self.cluster, header)
        outcomes = await asyncio.gather(
            *(self._ask(share.node, operation, share.header) for share in shares),
            return_exceptions=True,
        )
        return _merged(plan, header, shares, outcomes)

    # The view.

    async def refresh(self) -> None:
        """Ask for the metadata, together with all who want to know; not too often."""
        if self._is_closed:
            raise ClosedError("the client was closed")
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
        await asyncio.shield(self._refreshing)

    def refresh_soon(self) -> None:
        """Ask for the metadata without waiting for it, unless that is under way."""
        self._begin_watching()
        if not self._is_closed and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
            # Who does wait for it hears why it failed; for all others it is tried again.
            self._refreshing.add_done_callback(_take_failure)

    async def _refresh(self) -> None:
        view, loop = self.cluster, asyncio.get_running_loop()
        await asyncio.sleep(view.begins_s(loop.time()) - loop.time())
        failures: list[str] = []
        for node in view.candidates(loop.time()):
            try:
                async with asyncio.timeout(min(ASK_SECONDS_MAX, self._timeout_s)):
                    answer = await self.at(node).request(
                        Operation.METADATA, view.request(loop.time())
                    )
                reply = decode(answer.header, metadata_calls.ClusterMetadata)
                view.take(reply, loop.time(), of=node)
            except (TimeoutError, *MOVED, *LOST, InvalidRequestError) as error:
                view.suspect(node, loop.time())
                failures.append(f"{node}: {_reason(error)}")
            else:
                self._leave_the_gone()
                return
        raise ConnectionLostError(f"no node of the cluster answers: {'; '.join(failures)}")

    def _leave_the_gone(self) -> None:
        """Give up connections to nodes that are not alive: what they owe, others answer."""
        alive = set(self.cluster.nodes)
        for node in [one for one in self._links if one not in alive]:
            if self._links[node].owes_answers:
                self._links[node].drop()
            if node not in self.cluster.seeds:
                del self._links[node]

    def _begin_watching(self) -> None:
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._watch_silence())

    async def _watch_silence(self) -> None:
        """Refresh the view while a node owes an answer for long: it may be gone."""
        while True:
            await asyncio.sleep(SILENCE_SECONDS)
            owing = {one: link.replies for one, link in self._links.items() if link.owes_answers}
            is_silent = any(self._quiet.get(node) == count for node, count in owing.items())
            self._quiet = owing
            if is_silent:
                self.cluster.mark_stale()
                with contextlib.suppress(*LOST):
                    await self.refresh()


def _take_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()


def _reason(error: BaseException) -> str:
    return error.message if isinstance(error, GoQueueError) else "no answer in time"


def _merged(
    plan: Scattered,
    header: calls.Call,
    shares: Sequence[Share],
    outcomes: Sequence[Answer | BaseException],
) -> Answer:
    """Return the answers as one, or raise what went wrong with the first that is none."""
    given: list[tuple[Share, Answer]] = []
    nothing: BaseException | None = None
    for share, outcome in zip(shares, outcomes, strict=True):
        if isinstance(outcome, plan.nothing):
            nothing = outcome
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            given.append((share, outcome))
    if not given and nothing is not None:
        raise nothing
    return plan.merge(header, given)


async def open_link(addresses: Sequence[str], dial: Dial) -> Link:
    """Connect to the first of the addresses that answers, and through it to its cluster."""
    timeout_s = dial.timeout_s
    seconds = timeout_s if len(addresses) == 1 else min(timeout_s, CONNECT_SECONDS_MAX)
    failures: list[GoQueueError] = []
    for address in addresses:
        link = NativeLink(address, dial.within(seconds))
        try:
            await link.connect()
        except LOST as error:
            await link.close()
            failures.append(error)
            continue
        return await _joined(link, addresses, dial)
    if len(failures) == 1:
        raise failures[0]
    reasons = "; ".join(error.message for error in failures)
    raise ConnectionLostError(f"none of {', '.join(addresses)} answers: {reasons}")


async def _joined(link: NativeLink, addresses: Sequence[str], dial: Dial) -> Link:
    if metadata_calls.CLUSTER not in link.features:
        if len(addresses) == 1:
            return link
        await link.close()
        raise InvalidRequestError(
            f"{link.address} is a broker by itself, not a node of a cluster; connect to it alone"
        )
    routed = RoutedLink(ClusterView(addresses), dial)
    routed.adopt(link.address, link)
    try:
        async with asyncio.timeout(dial.timeout_s):
            await routed.refresh()
    except TimeoutError as error:
        await routed.close()
        raise DeadlineExceededError(
            f"no metadata from {link.address} in {dial.timeout_s:g} s"
        ) from error
    except BaseException:
        await routed.close()
        raise
    return routed
