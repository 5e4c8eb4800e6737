"""How a synchronous consumer talks to a broker: several requests under way at once.

Polls and settlements go out in one write, replies come as they come. The consuming thread receives
by itself (ADR 0004); ``wake`` makes a thread that waits for a reply look up.
"""

import contextlib
import select
import socket
from collections import deque
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from threading import Condition
from typing import Protocol

from goqueue.base.errors import ClosedError, ConnectionLostError, GoQueueError
from goqueue.client.aio.link import Link
from goqueue.client.blocking.link import BlockingLink, ChannelRequest
from goqueue.client.blocking.loop_thread import LoopThread
from goqueue.client.blocking.node_links import NodeLinks
from goqueue.client.protocol.exchange import Answer, Reply


class Channel(Protocol):
    """Sends requests now, returns replies later, in any order. One thread at a time."""

    def send(self, requests: Sequence[ChannelRequest]) -> list[int]:
        """Send requests in one go; return their correlations."""
        ...

    def receive(self, timeout_s: float) -> Reply | None:
        """Return the next reply, or None after the timeout or a call of ``wake``."""
        ...

    def wake(self) -> None:
        """Let a thread that waits in ``receive`` return; from any thread."""
        ...

    def close(self) -> None:
        """Give up the connection; the next request makes a new one."""
        ...

    def end(self) -> None:
        """Release everything; there is no next request."""
        ...


class SocketChannel:
    """A TCP connection, made on first use and again after it was lost."""

    def __init__(self, link: BlockingLink) -> None:
        self._link = link
        self._bell, self._ear = socket.socketpair()
        self._bell.settimeout(0)
        self._ear.settimeout(0)
        self._poll = select.poll()
        self._watched: socket.socket | None = None
        """The connection that ``_poll`` waits for: another one has another number."""

    def __repr__(self) -> str:
        return f"<SocketChannel by {self._link!r}>"

    def send(self, requests: Sequence[ChannelRequest]) -> list[int]:
        """Send requests in one go; return their correlations."""
        return self._link.send_many(requests)

    def receive(self, timeout_s: float) -> Reply | None:
        """Return the next reply, or None after the timeout or a call of ``wake``."""
        while (reply := self._link.take()) is None:
            connection = self._link.connection
            if connection is None:
                raise ConnectionLostError("connection lost: it was closed")
            if not self._wait(connection, timeout_s):
                return None
            self._link.advance()
        return reply

    def _wait(self, connection: socket.socket, timeout_s: float) -> bool:
        """Wait for bytes; return True if there are some to read."""
        if self._link.holds_bytes:
            return True
        if connection is not self._watched:
            self._poll = select.poll()
            self._poll.register(connection, select.POLLIN)
            self._poll.register(self._ear, select.POLLIN)
            self._watched = connection
        ready = self._poll.poll(timeout_s * 1_000)
        if len(ready) == 1 and ready[0][0] == self._ear.fileno():
            with contextlib.suppress(BlockingIOError):
                self._ear.recv(1_024)
            return False
        return bool(ready)

    def wake(self) -> None:
        """Let a thread that waits in ``receive`` return; from any thread."""
        with contextlib.suppress(OSError):
            self._bell.send(b"!")

    def close(self) -> None:
        """Give up the connection; the next request makes a new one."""
        self._watched = None
        self._link.close()

    def end(self) -> None:
        """Release everything; there is no next request."""
        self.close()
        self._bell.close()
        self._ear.close()


class RoutedChannel:
    """Connections to the nodes of a cluster."""

    def __init__(self, nodes: NodeLinks) -> None:
        self._nodes = nodes
        self._bell, self._ear = socket.socketpair()
        self._bell.settimeout(0)
        self._ear.settimeout(0)

    def __repr__(self) -> str:
        return f"<RoutedChannel by {self._nodes!r}>"

    def send(self, requests: Sequence[ChannelRequest]) -> list[int]:
        """Send each request to its node; return their correlations."""
        return [self._nodes.send(one.node, one.operation, one.header) for one in requests]

    def receive(self, timeout_s: float) -> Reply | None:
        """Return the next reply, or None after the timeout or a call of ``wake``."""
        reply = self._nodes.receive(timeout_s, self._ear)
        if reply is None:
            with contextlib.suppress(BlockingIOError):
                self._ear.recv(1_024)
        return reply

    def wake(self) -> None:
        """Let a thread that waits in ``receive`` return; from any thread."""
        with contextlib.suppress(OSError):
            self._bell.send(b"!")

    def close(self) -> None:
        """Give up the connections; the next requests make new ones."""
        self._nodes.close()

    def end(self) -> None:
        """Release everything; there is no next request."""
        self.close()
        self._bell.close()
        self._ear.close()


class EmbeddedChannel:
    """Requests to a broker in this process, which works in the client's loop."""

    def __init__(self, link: Link, thread: LoopThread) -> None:
        self._link = link
        self._thread = thread
        self._correlation = 0
        self._replies: deque[Reply] = deque()
        self._pending: set[Future[Answer]] = set()
        self._news = Condition()
        self._is_woken = False

    def __repr__(self) -> str:
        return f"<EmbeddedChannel to {self._link!r}>"

    def send(self, requests: Sequence[ChannelRequest]) -> list[int]:
        """Send requests; return their correlations."""
        correlations: list[int] = []
        for operation, header, _ in requests:
            self._correlation += 1
            correlation = self._correlation
            correlations.append(correlation)
            future = self._thread.submit(self._link.request(operation, header))
            self._pending.add(future)
            future.add_done_callback(partial(self._settle, correlation))
        return correlations

    def _settle(self, correlation: int, future: "Future[Answer]") -> None:
        self._pending.discard(future)
        try:
            reply = Reply(correlation, future.result())
        except GoQueueError as error:
            reply = Reply(correlation, error)
        except CancelledError:
            reply = Reply(correlation, ClosedError("the client was closed"))
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
            reply = Reply(correlation, GoQueueError(f"the broker failed: {error}"))
        with self._news:
            self._replies.append(reply)
            self._news.notify_all()

    def receive(self, timeout_s: float) -> Reply | None:
        """Return the next reply, or None after the timeout or a call of ``wake``."""
        with self._news:
            if not self._replies and timeout_s > 0:
                self._news.wait_for(lambda: self._replies or self._is_woken, timeout_s)
                self._is_woken = False
            return self._replies.popleft() if self._replies else None

    def wake(self) -> None:
        """Let a thread that waits in ``receive`` return; from any thread."""
        with self._news:
            self._is_woken = True
            self._news.notify_all()

    def close(self) -> None:
        """Give up what is under way."""
        for future in list(self._pending):
            future.cancel()

    def end(self) -> None:
        """Release everything; there is no next request."""
        self.close()
