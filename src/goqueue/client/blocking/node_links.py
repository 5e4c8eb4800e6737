"""Blocking connections to several nodes, one thread at a time waiting for replies of any of them.

A connection that is lost is told as the reply to every request that was under way on it, so that
those of other nodes are not disturbed.
"""

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from goqueue.base.errors import ConnectionLostError, DeadlineExceededError, GoQueueError
from goqueue.client.blocking.link import BlockingLink
from goqueue.client.dial import Dial
from goqueue.client.protocol.cluster_view import ClusterView
from goqueue.client.protocol.exchange import Answer, Reply
from goqueue.wire import calls
from goqueue.wire.packet import Buffer, Operation

SILENCE_SECONDS: Final = 1.0
"""How long nodes may be silent before it is asked whether they are still there."""
CONNECT_SECONDS_MAX: Final = 3.0
"""How long one node of several may take to be connected to."""


class NodeLinks:
    """One connection for each node that was needed so far."""

    def __init__(
        self,
        view: ClusterView,
        dial: Dial,
        *,
        refresh: Callable[[], None],
    ) -> None:
        self._view = view
        self._dial = dial
        self._timeout_s = dial.timeout_s
        self._refresh = refresh
        self._links: dict[str, BlockingLink] = {}
        self._correlation = 0
        self._own: dict[tuple[str, int], int] = {}
        """Our number of each request under way, by its node and its number there."""
        self._heard_s: dict[str, float] = {}
        """When each node that owes an answer was last heard of, or asked."""
        self._arrived: deque[Reply] = deque()

    def __repr__(self) -> str:
        return f"<NodeLinks to {len(self._links)} nodes, {len(self._own)} requests under way>"

    def at(self, node: str) -> BlockingLink:
        """Return the connection to a node."""
        link = self._links.get(node)
        if link is None:
            link = BlockingLink(node, self._dial.within(self._timeout_s))
            self._links[node] = link
        return link

    def send(
        self,
        node: str,
        operation: Operation,
        header: calls.Call,
        payload: Sequence[Buffer] = (),
    ) -> int:
        """Send a request and return its number; if that fails, so says its reply."""
        self._correlation += 1
        number = self._correlation
        link = self.at(node)
        try:
            if link.connection is None:
                link.limit(min(self._timeout_s, CONNECT_SECONDS_MAX))
            theirs = link.send(operation, header, payload)
            link.limit(self._timeout_s)
        except GoQueueError as error:
            self._lose(node, error)
            self._arrived.append(Reply(number, error))
            return number
        self._own[node, theirs] = number
        self._heard_s[node] = time.monotonic()
        return number

    @property
    def is_waiting(self) -> bool:
        """Return True if some node owes an answer."""
        return bool(self._own)

    def receive(self, timeout_s: float, ear: socket.socket | None = None) -> Reply | None:
        """Return the next reply; None after the timeout, or when there is something to hear."""
        until_s = time.monotonic() + timeout_s
        while not self._arrived:
            left_s = until_s - time.monotonic()
            if not self._wait(min(left_s, SILENCE_SECONDS), ear):
                return None
            if left_s <= 0 and not self._arrived:
                return None
        return self._arrived.popleft()

    def _wait(self, seconds: float, ear: socket.socket | None) -> bool:
        """Take what comes within a time; return False if it is the ear that has something."""
        poll = select.poll()
        nodes: dict[int, str] = {}
        for node in dict.fromkeys(node for node, _ in self._own):
            connection = self._links[node].connection
            if connection is None:
                self._lose(node, ConnectionLostError("connection lost: it was closed"))
                return True
            if self._links[node].holds_bytes:
                self._take(node)
                return True
            nodes[connection.fileno()] = node
            poll.register(connection, select.POLLIN)
        if ear is not None:
            poll.register(ear, select.POLLIN)
        ready = poll.poll(max(seconds, 0) * 1_000)
        for number, _ in ready:
            if number in nodes:
                self._take(nodes[number])
        self._look_for_silent()
        return not ready or any(number in nodes for number, _ in ready)

    def _take(self, node: str) -> None:
        link = self._links[node]
        self._heard_s[node] = time.monotonic()
        try:
            link.advance()
            while (reply := link.take()) is not None:
                number = self._own.pop((node, reply.correlation), None)
                if number is not None:
                    self._arrived.append(Reply(number, reply.outcome))
        except GoQueueError as error:
            self._lose(node, error)

    def _look_for_silent(self) -> None:
        """Give up nodes that are gone, or have not answered for as long as that may take."""
        now_s = time.monotonic()
        waiting = {node for node, _ in self._own}
        silent = [one for one in waiting if now_s - self._heard_s[one] > SILENCE_SECONDS]
        if not silent:
            return
        self._view.mark_stale()
        self._refresh()
        alive = self._view.nodes
        for node in silent:
            if node not in alive:
                self._lose(node, ConnectionLostError("connection lost: the node is gone"))
            elif now_s - self._heard_s[node] > self._timeout_s + SILENCE_SECONDS:
                self._lose(node, DeadlineExceededError(f"no answer in {self._timeout_s:g} s"))

    def _lose(self, node: str, error: GoQueueError) -> None:
        """Tell everybody who waits for a node that there is no connection any more."""
        self._links[node].close()
        self._view.suspect(node, time.monotonic())
        for place in [one for one in self._own if one[0] == node]:
            self._arrived.append(Reply(self._own.pop(place), error))

    def limit(self, seconds: float) -> None:
        """Wait no longer than this for what is asked from now on."""
        self._timeout_s = seconds
        for link in self._links.values():
            link.limit(seconds)

    def close(self) -> None:
        """End all connections; replies under way are not waited for any more."""
        for link in self._links.values():
            link.close()
        self._own.clear()
        self._arrived.clear()

    def outcome_of(self, number: int, timeout_s: float) -> Answer | GoQueueError:
        """Wait for the reply to one request; those of others stay to be received."""
        others: list[Reply] = []
        until_s = time.monotonic() + timeout_s
        try:
            while True:
                reply = self.receive(until_s - time.monotonic())
                if reply is None:
                    self._own = {at: one for at, one in self._own.items() if one != number}
                    return DeadlineExceededError(f"no answer in {timeout_s:g} s")
                if reply.correlation == number:
                    return reply.outcome
                others.append(reply)
        finally:
            self._arrived.extendleft(reversed(others))
