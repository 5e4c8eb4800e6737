"""A blocking link to a cluster, for a thread that waits for replies itself (ADR 0004)."""

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from goqueue.base.errors import (
    ConnectionLostError,
    GoQueueError,
    InvalidRequestError,
    LeaderNotAvailableError,
)
from goqueue.client.blocking.brief import brief
from goqueue.client.blocking.link import BlockingLink
from goqueue.client.blocking.node_links import CONNECT_SECONDS_MAX, NodeLinks
from goqueue.client.dial import Dial
from goqueue.client.protocol.cluster_view import ASK_SECONDS_MAX, LOST, MOVED, ClusterView
from goqueue.client.protocol.exchange import (
    BACKOFF_SECONDS,
    BACKOFF_SECONDS_MAX,
    Answer,
    Reply,
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

WAIT_SECONDS: Final = 3_600.0
"""How long any reply is waited for: every request has a time of its own, which ends first."""


class RoutedBlockingLink:
    """Sends requests to the nodes of a cluster. One thread at a time."""

    is_local = False
    """Whether files may be read in place is known by the link of each node."""

    def __init__(
        self,
        view: ClusterView,
        dial: Dial,
        *,
        refresh: Callable[[], None] | None = None,
    ) -> None:
        self.cluster = view
        """Where things are, as this client knows it."""
        self._dial = dial
        self._timeout_s = self._timeout_s_max = dial.timeout_s
        self._refresh_elsewhere = refresh
        self._nodes = NodeLinks(view, dial, refresh=self.refresh_soon)
        self._oracle: BlockingLink | None = None
        """The connection by which the metadata was asked for last."""

    def __repr__(self) -> str:
        return f"<RoutedBlockingLink by {self.cluster!r}>"

    def at(self, node: str) -> BlockingLink:
        """Return the connection to a node."""
        return self._nodes.at(node)

    def limit(self, seconds: float) -> None:
        """Wait no longer than this for what is asked from now on, nor than is usual."""
        self._timeout_s = min(max(seconds, 0.001), self._timeout_s_max)
        self._nodes.limit(self._timeout_s)

    def send_to(
        self,
        node: str,
        operation: Operation,
        header: calls.Call,
        payload: Sequence[Buffer] = (),
    ) -> int:
        """Send a request to a node and return its correlation."""
        return self._nodes.send(node, operation, header, payload)

    def receive_any(self) -> Reply:
        """Wait for the next reply, whichever request it is for."""
        reply = self._nodes.receive(WAIT_SECONDS)
        if reply is None:
            raise ConnectionLostError("connection lost: it was closed")
        return reply

    def receive_within(self, seconds: float) -> Reply | None:
        """Wait so long for the next reply, whichever request it is for."""
        return self._nodes.receive(seconds)

    def close(self) -> None:
        """End all connections."""
        self._nodes.close()
        if self._oracle is not None:
            self._oracle.close()

    # Requests that find their way.

    def request(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer] = ()
    ) -> Answer:
        """Send a request to who can answer it, again while that is somebody else by now.

        A lost connection is not retried here: whether the request was carried out is unknown.
        """
        plan, route = plan_of(operation, header), route_of(operation, header)
        deadline_s = time.monotonic() + self._timeout_s
        backoff_s = BACKOFF_SECONDS
        while True:
            try:
                if plan is not None:
                    return self._scatter(plan, operation, header)
                return self._ask(self._node_of(route), operation, header, payload)
            except (NOT_SENT, *MOVED) as error:
                if operation in ONCE and not isinstance(error, NOT_SENT):
                    raise
                failure: GoQueueError = error
            if isinstance(route, ToCoordinator):
                self.cluster.forget_coordinator(*route)
            self.cluster.mark_stale()
            if time.monotonic() + backoff_s > deadline_s:
                raise brief(self._in_vain(failure, route))
            time.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_SECONDS_MAX)
            self.refresh_soon()

    def _in_vain(self, failure: GoQueueError, route: Route) -> GoQueueError:
        whom = "" if route is ANY else f" for {route}"
        reason = f"waited {self._timeout_s:g} s{whom}: {failure.message}{self.cluster.trouble()}"
        return type(failure)(reason)

    def _ask(
        self, node: str, operation: Operation, header: calls.Call, payload: Sequence[Buffer] = ()
    ) -> Answer:
        number = self._nodes.send(node, operation, header, payload)
        wait_ms = getattr(header, "wait_ms", 0)
        outcome = self._nodes.outcome_of(number, self._timeout_s + wait_ms / 1_000)
        if isinstance(outcome, GoQueueError):
            if isinstance(outcome, LOST):
                kind = type(outcome)
                outcome = kind(f"{self.cluster.name_of(node)}: {outcome.message}")
            raise brief(outcome)
        return outcome

    def _node_of(self, route: Route) -> str:
        now_s = time.monotonic()
        if self.cluster.is_due(now_s):
            self.refresh()
        if isinstance(route, ToLeader):
            return self.cluster.need_leader(*route)
        if isinstance(route, ToCoordinator):
            return self.cluster.coordinator_of(*route) or self._find(route)
        return self.cluster.candidates(now_s)[0]

    def _find(self, route: ToCoordinator) -> str:
        header = metadata_calls.FindCoordinator(route.kind, route.key)  # type: ignore[arg-type]
        node = self.cluster.candidates(time.monotonic())[0]
        number = self._nodes.send(node, Operation.FIND_COORDINATOR, header)
        outcome = self._nodes.outcome_of(number, CONNECT_SECONDS_MAX)
        if isinstance(outcome, LOST):
            self.cluster.suspect(node, time.monotonic())
            raise LeaderNotAvailableError(f"{route} was not found: no answer from {node}")
        if isinstance(outcome, GoQueueError):
            raise outcome
        found = decode(outcome.header, metadata_calls.Coordinator)
        self.cluster.found(route.kind, route.key, found.native)
        return found.native

    def _scatter(self, plan: Scattered, operation: Operation, header: calls.Call) -> Answer:
        topic = topic_of(operation, header)
        if self.cluster.is_due(time.monotonic()):
            self.refresh()
        if topic is not None and not self.cluster.leaders_of(topic):
            self.cluster.mark_stale()
            self.refresh()
            if not self.cluster.leaders_of(topic):
                # It is not there, which any node says; or is new, and known to that one only.
                self._ask(self._node_of(ANY), operation, header)
                raise LeaderNotAvailableError(f"{topic} is not known everywhere yet")
        given: list[tuple[Share, Answer]] = []
        nothing: GoQueueError | None = None
        for share in plan.split(self.cluster, header):
            try:
                given.append((share, self._ask(share.node, operation, share.header)))
            except plan.nothing as error:
                nothing = error
        if not given and nothing is not None:
            raise nothing
        return plan.merge(header, given)

    def wait(self, header: calls.Fetch) -> None:
        """Return when a leader has something of what a request names, or its time is over."""
        if self.cluster.is_due(time.monotonic()):
            self.refresh()
        leaders: dict[str, list[calls.FetchPart]] = {}
        for part in header.parts:
            leader = self.cluster.need_leader(header.topic, part.partition)
            leaders.setdefault(leader, []).append(part)
        until_s = time.monotonic() + header.wait_ms / 1_000
        for node, parts in leaders.items():
            self.send_to(node, Operation.FETCH, msgspec.structs.replace(header, parts=parts))
        try:
            for _ in leaders:
                reply = self.receive_within(until_s - time.monotonic())
                if reply is None:
                    return
                if isinstance(reply.outcome, GoQueueError):
                    self.cluster.mark_stale()
                elif any(part.size for part in decode(reply.outcome.header, calls.Fetched).parts):
                    return
            time.sleep(max(until_s - time.monotonic(), 0))
        finally:
            # Other replies may still come, and are nobody's.
            self._nodes.close()

    # The view.

    def refresh_soon(self) -> None:
        """Have the metadata asked for, here or by the client's event loop, if that is due."""
        now_s = time.monotonic()
        if not self.cluster.is_due(now_s):
            return
        if self._refresh_elsewhere is not None:
            if self.cluster.begins_s(now_s) <= now_s:
                self._refresh_elsewhere()
            return
        try:
            self.refresh()
        except LOST:
            # Who waits for something tries again, and is told in the end.
            return

    def refresh(self) -> None:
        """Ask for the metadata, not too often; raise if no node answers."""
        view = self.cluster
        time.sleep(max(view.begins_s(time.monotonic()) - time.monotonic(), 0))
        failures: list[str] = []
        for node in view.candidates(time.monotonic()):
            try:
                self._ask_metadata(node)
            except (*MOVED, *LOST, InvalidRequestError) as error:
                view.suspect(node, time.monotonic())
                failures.append(f"{node}: {error.message}")
            else:
                return
        raise ConnectionLostError(f"no node of the cluster answers: {'; '.join(failures)}")

    def _ask_metadata(self, node: str) -> None:
        link = self._oracle
        if link is None or link.address != node:
            if link is not None:
                link.close()
            seconds = min(ASK_SECONDS_MAX, self._timeout_s_max)
            link = self._oracle = BlockingLink(node, self._dial.within(seconds))
        now_s = time.monotonic()
        answer = link.request(Operation.METADATA, self.cluster.request(now_s))
        reply = decode(answer.header, metadata_calls.ClusterMetadata)
        self.cluster.take(reply, time.monotonic(), of=node)
