"""A link to a broker: requests out, replies back, reconnecting as needed."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, cast

from goqueue.base.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineExceededError,
    GoQueueError,
    ProtocolError,
)
from goqueue.base.units import KiB
from goqueue.client.dial import Dial
from goqueue.client.protocol.cluster_view import ClusterView
from goqueue.client.protocol.exchange import (
    BACKOFF_SECONDS,
    BACKOFF_SECONDS_MAX,
    Answer,
    Exchange,
    Reply,
    ReplyHeader,
    UnreachableError,
    decode,
    hello,
    parse_address,
)
from goqueue.client.tls import explain
from goqueue.wire import calls
from goqueue.wire.packet import Buffer, Operation

Done = Callable[[Answer | GoQueueError], None]
"""Takes the reply to a request, or what the broker raised; it must not raise."""

CLOSE_SECONDS_MAX: Final = 1.0
"""How long the other side may take to say that it has closed, too."""
JOINED_BYTES_MAX: Final = 16 * KiB
"""Up to this much, one copy costs less than to hand over several buffers."""


class Link(Protocol):
    """Something that answers requests."""

    @property
    def cluster(self) -> ClusterView | None:
        """Return where things are in a cluster; None if there is one broker."""
        ...

    def at(self, node: str) -> "Link":
        """Return the link to the node at an address; itself if there is one broker."""
        ...

    def refresh_soon(self) -> None:
        """Ask where things are, as soon as that may be asked again."""
        ...

    async def request(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer] = ()
    ) -> Answer:
        """Send a request and return its reply, or raise what the broker raised."""
        ...

    @property
    def is_ready(self) -> bool:
        """Return True if ``begin`` would send."""
        ...

    def begin(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer], done: Done
    ) -> None:
        """Send a request at once; ``done`` is called with its reply, or why there is none."""
        ...

    def drop(self) -> None:
        """Give up the connection, which does not answer; the next request makes a new one."""
        ...

    def watch(self, lost: Callable[[], None]) -> None:
        """Call back each time the connection is lost."""
        ...

    def unwatch(self, lost: Callable[[], None]) -> None:
        """Do not call back any more."""
        ...

    async def close(self) -> None:
        """End the link."""
        ...


class _Connection(asyncio.Protocol):
    """One TCP connection: correlates replies with requests."""

    def __init__(
        self, address: str = "", on_lost: Callable[["_Connection"], None] = lambda _: None
    ) -> None:
        self._exchange = Exchange(address)
        self._on_lost = on_lost
        self._waiting: dict[int, Done] = {}
        self._transport: asyncio.Transport | None = None
        self._error: GoQueueError = ConnectionLostError("connection lost: it was closed")
        self.is_open = False
        self.features: Sequence[str] = ()
        """What the broker can do beyond the protocol's version."""
        self.replies = 0
        """How often something was received."""
        self._end: asyncio.Event | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is one by shape, not by inheritance.
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    @property
    def owes_answers(self) -> bool:
        return bool(self._waiting)

    def data_received(self, data: bytes) -> None:
        self.replies += 1
        try:
            for reply in self._exchange.feed(data):
                self._settle(reply)
        except ProtocolError as error:
            # Not worth another try: whoever answers is not a broker.
            self._error = error
            self.abort()

    def _settle(self, reply: Reply) -> None:
        correlation, outcome = reply
        done = self._waiting.pop(correlation, None)
        if done is not None:
            done(outcome)
        elif not correlation and not isinstance(outcome, Answer):
            self._error = outcome

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._transport = None
        if exc is not None:
            self._error = ConnectionLostError(f"connection lost: {exc}")
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            done(self._error)
        if self._end is not None:
            self._end.set()
        self._on_lost(self)

    def send(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer]
    ) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.begin(operation, header, payload, partial(resolve, future))
        return future

    def begin(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer], done: Done
    ) -> None:
        if self._transport is None:
            raise self._error
        correlation, buffers = self._exchange.request(operation, header, payload)
        self._waiting[correlation] = done
        if sum(map(len, buffers)) <= JOINED_BYTES_MAX:
            self._transport.write(b"".join(buffers))
        else:
            self._transport.writelines(buffers)

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.close()

    async def ended(self, seconds: float) -> None:
        """Return when the connection is closed, which by TLS takes an answer of the other side."""
        if self._transport is None:
            return
        self._end = asyncio.Event()
        try:
            async with asyncio.timeout(seconds):
                await self._end.wait()
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()


class NativeLink:
    """A TCP link. One connection, made on first use and again after it was lost."""

    cluster: ClusterView | None = None

    def __init__(self, address: str, dial: Dial | None = None) -> None:
        self._host, self._port = parse_address(address)
        self._dial = dial or Dial()
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[_Connection] | None = None
        self._is_closed = False
        self._watchers: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<NativeLink {self.address}>"

    @property
    def address(self) -> str:
        """Where it leads."""
        return f"{self._host}:{self._port}"

    @property
    def features(self) -> Sequence[str]:
        """What the broker can do beyond the protocol's version, as it said last."""
        return () if self._connection is None else self._connection.features

    @property
    def owes_answers(self) -> bool:
        """Return True if requests are under way."""
        return self._connection is not None and self._connection.owes_answers

    @property
    def replies(self) -> int:
        """How often something was received on this connection."""
        return 0 if self._connection is None else self._connection.replies

    def at(self, node: str) -> "NativeLink":
        """Return itself: there is one broker."""
        del node
        return self

    def refresh_soon(self) -> None:
        """Ask nothing: everything is here."""

    async def request(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer] = ()
    ) -> Answer:
        """Send a request and return its reply. A lost connection is not retried here."""
        connection = self._connection
        if connection is None or not connection.is_open:
            connection = await self._connect()
        return await connection.send(operation, header, payload)

    @property
    def is_ready(self) -> bool:
        """Return True if there is a connection."""
        return self._connection is not None and self._connection.is_open

    def begin(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer], done: Done
    ) -> None:
        """Send a request on the connection there is; ``done`` is called with its reply."""
        assert self._connection is not None, "ready"
        self._connection.begin(operation, header, payload, done)

    async def connect(self) -> None:
        """Make the connection now, or raise why there is none."""
        await self._connect()

    def drop(self) -> None:
        """Give up the connection; requests under way fail, the next one makes a new connection."""
        if self._connection is not None:
            self._connection.abort()

    def watch(self, lost: Callable[[], None]) -> None:
        """Call back each time the connection is lost."""
        self._watchers.append(lost)

    def unwatch(self, lost: Callable[[], None]) -> None:
        """Do not call back any more."""
        if lost in self._watchers:
            self._watchers.remove(lost)

    def _lost(self, connection: _Connection) -> None:
        if connection is self._connection:
            for lost in list(self._watchers):
                lost()

    async def close(self) -> None:
        """End the connection."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()
            if self._dial.tls is not None:
                await self._connection.ended(CLOSE_SECONDS_MAX)

    async def _connect(self) -> _Connection:
        if self._is_closed:
            raise ClosedError("the client was closed")
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._open())
            self._connecting.add_done_callback(self._connected)
        return await asyncio.shield(self._connecting)

    def _connected(self, task: "asyncio.Task[_Connection]") -> None:
        self._connecting = None
        if not task.cancelled() and task.exception() is None:
            self._connection = task.result()

    async def _open(self) -> _Connection:
        where = self.address
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(self._dial.timeout_s):
                connection = await self._reach(where)
                answer = await connection.send(Operation.HELLO, hello(self._dial.api_key), ())
                connection.features = decode(answer.header, calls.HelloReply).features
        except BaseException as error:
            if connection is not None:
                connection.abort()
            if isinstance(error, TimeoutError):
                seconds = f"{self._dial.timeout_s:g}"
                raise DeadlineExceededError(f"no answer from {where} in {seconds} s") from error
            if isinstance(error, ssl.SSLError):
                raise explain(error, where) from error
            if isinstance(error, OSError):
                raise UnreachableError(f"cannot reach a broker at {where}: {error}") from error
            raise
        return connection

    async def _reach(self, where: str) -> _Connection:
        """Return a connection to what may be shown the key."""
        tls = self._dial.tls
        transport, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(where, self._lost),
            self._host,
            self._port,
            ssl=None if tls is None else tls.context(),
            server_hostname=None if tls is None else tls.name_for(self._host),
        )
        try:
            if tls is None and self._dial.api_key is not None:
                peer, own = (transport.get_extra_info(name) for name in ("peername", "sockname"))
                self._dial.check_secrecy(peer[0], own[0])
            elif tls is not None:
                shown = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
                tls.check(shown, where)
        except BaseException:
            connection.abort()
            raise
        return connection


def resolve(future: asyncio.Future[Answer], outcome: Answer | GoQueueError) -> None:
    """Give a future its reply or error, unless it was cancelled."""
    if future.done():
        return
    if isinstance(outcome, GoQueueError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


async def call(
    link: Link,
    operation: Operation,
    header: calls.Call,
    kind: type[ReplyHeader],
    *,
    timeout_s: float,
) -> ReplyHeader:
    """Make a call without payload; a lost connection is tried again until the time is over.

    Only for calls that may safely be made twice.
    """
    answer = await retry(lambda: link.request(operation, header), timeout_s=timeout_s)
    return decode(answer.header, kind)


async def retry(attempt: Callable[[], Any], *, timeout_s: float) -> Any:  # noqa: ANN401
    """Repeat an attempt that lost its connection, with growing pauses, until the time is over."""
    backoff_s = BACKOFF_SECONDS
    lost: ConnectionLostError | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    return await attempt()
                except ConnectionLostError as error:
                    lost = error
                    await asyncio.sleep(backoff_s)
                    backoff_s = min(backoff_s * 2, BACKOFF_SECONDS_MAX)
    except TimeoutError as error:
        raise lost or DeadlineExceededError(f"no answer in {timeout_s:g} s") from error


async def call_once(
    link: Link,
    operation: Operation,
    header: calls.Call,
    kind: type[ReplyHeader],
    *,
    timeout_s: float,
) -> ReplyHeader:
    """Make a call that must not be repeated: whether a lost one was carried out is unknown."""
    try:
        async with asyncio.timeout(timeout_s):
            answer = await link.request(operation, header)
    except TimeoutError as error:
        raise DeadlineExceededError(f"no answer in {timeout_s:g} s") from error
    return decode(answer.header, kind)
