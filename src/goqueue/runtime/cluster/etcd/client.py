"""A client of etcd's v3 API through its JSON gateway, for what a cluster needs of it.

A request goes to one member, and to the next one after an error. Whether a write without an answer
happened is not known here; whoever sent it finds out. Before anything else a connection is asked
which etcd it leads to: endpoints of two of them would be two clusters.
"""

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any, Final, TypeVar
from weakref import WeakSet

from goqueue.base.cluster_limits import ETCD_REPLY_BYTES_MAX
from goqueue.config.etcd import EtcdConfig, EtcdTls
from goqueue.runtime.cluster.etcd.api import (
    EtcdCompactedError,
    EtcdLeaseLostError,
    EtcdRefusedError,
    EtcdTooLargeError,
    EtcdUnavailableError,
    GrantedLease,
    KeyEvent,
    KeyOperation,
    ModifiedAt,
    RangeReply,
    ReadKeys,
    TxnReply,
)
from goqueue.runtime.cluster.etcd.gateway import (
    EtcdTokenError,
    GatewayGrant,
    GatewayKept,
    GatewayLine,
    GatewayRange,
    GatewayReply,
    GatewayToken,
    GatewayTxn,
    GatewayWatched,
    decode_reply,
    encode_request,
    error_in,
    error_of,
    range_request,
    txn_request,
)
from goqueue.runtime.cluster.etcd.http_line import HttpLine, HttpLineError, HttpTooLargeError
from goqueue.runtime.cluster.etcd.records import EtcdKeys

CONNECT_SECONDS: Final = 1.0
REQUEST_SECONDS: Final = 2.0
"""An etcd that elects a leader takes longer, and the request is sent again."""
LINES_IDLE_MAX: Final = 4
LINES_MAX: Final = 16
"""Requests under way at once; more wait for their turn."""
_OK: Final = 200
_REQUIRE_LEADER: Final = b"Grpc-Metadata-hasleader: true\r\n"
"""A member that is cut off from the others says so, instead of answering late or never."""

R = TypeVar("R", bound=GatewayReply | GatewayKept)


class EtcdClient:
    """An etcd as its clients see it: an implementation of ``Etcd``."""

    def __init__(self, config: EtcdConfig, *, first: int = 0) -> None:
        self._config = config
        self._tls = _context(config.tls) if config.tls is not None else None
        self._current = first % len(config.endpoints)
        self._check_key = EtcdKeys(config.prefix).head
        self._idle: list[HttpLine] = []
        self._lines: WeakSet[HttpLine] = WeakSet()
        self._slots = asyncio.Semaphore(LINES_MAX)
        self._token = ""
        self._cluster_id = 0
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<EtcdClient {self._config.endpoints[self._current]}>"

    # The API

    async def range(self, keys: ReadKeys, *, revision: int = 0) -> RangeReply:
        """Read keys, as they are or as they were at a revision."""
        request = range_request(keys, revision=revision)
        reply = await self._call("/v3/kv/range", request, GatewayRange)
        items = [one.as_item() for one in reply.kvs]
        return RangeReply(reply.header.revision, items, reply.more)

    async def txn(
        self,
        conditions: Sequence[ModifiedAt],
        then: Sequence[KeyOperation],
        otherwise: Sequence[KeyOperation] = (),
    ) -> TxnReply:
        """Do one of two lists of operations."""
        request = txn_request(conditions, then, otherwise)
        reply = await self._call("/v3/kv/txn", request, GatewayTxn)
        operations = then if reply.succeeded else otherwise
        if len(reply.responses) != len(operations):
            raise EtcdUnavailableError("a reply of etcd does not fit its request")
        found = [
            [one.as_item() for one in answer.response_range.kvs] if answer.response_range else []
            for operation, answer in zip(operations, reply.responses, strict=True)
            if isinstance(operation, ReadKeys)
        ]
        return TxnReply(reply.header.revision, reply.succeeded, found)

    async def grant(self, seconds: int) -> GrantedLease:
        """Begin a lease."""
        reply = await self._call("/v3/lease/grant", {"TTL": seconds}, GatewayGrant)
        if reply.ID <= 0 or reply.TTL <= 0:
            raise EtcdUnavailableError("etcd granted no lease")
        return GrantedLease(reply.ID, reply.TTL)

    async def keep_alive(self, lease: int) -> float:
        """Begin the time of a lease anew."""
        reply = await self._call("/v3/lease/keepalive", {"ID": lease}, GatewayKept)
        if reply.result.TTL <= 0:
            raise EtcdLeaseLostError("requested lease not found")
        return reply.result.TTL

    async def revoke(self, lease: int) -> None:
        """End a lease."""
        await self._call("/v3/lease/revoke", {"ID": lease}, GatewayReply)

    async def watch(self, key: bytes, end: bytes, *, start_revision: int) -> "ClientWatch":
        """Follow the changes of keys over a connection of its own."""
        create = {
            "key": key,
            "range_end": end,
            "start_revision": start_revision,
            # Else etcd sends changes of many megabytes as one line.
            "fragment": True,
        }
        body = encode_request({"create_request": create})
        line = await self._connect()
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                status = await line.begin("/v3/watch", body, self._headers())
                watch = ClientWatch(line)
                await watch.created(status)
        except EtcdTokenError:
            self._token = ""
            self._drop(line)
            raise EtcdUnavailableError("the token for etcd is renewed") from None
        except (HttpLineError, TimeoutError) as error:
            self._drop(line)
            raise EtcdUnavailableError(str(error) or f"{line.address} shows no changes") from None
        except BaseException:
            self._drop(line)
            raise
        return watch

    async def close(self) -> None:
        """End all connections, those of watches among them."""
        self._is_closed = True
        self._idle.clear()
        for line in list(self._lines):
            line.close()
        # The loop lets go of them in its next round.
        await asyncio.sleep(0)

    # Connections

    async def _call(self, path: str, request: dict[str, Any], kind: type[R]) -> R:
        body = encode_request(request)
        async with self._slots:
            try:
                return await self._ask(path, body, kind)
            except EtcdTokenError:
                self._token = ""
            try:
                return await self._ask(path, body, kind)
            except EtcdTokenError as error:
                raise EtcdRefusedError(str(error)) from None

    async def _ask(self, path: str, body: bytes, kind: type[R]) -> R:
        line = self._take_idle() or await self._connect()
        try:
            if self._config.user and not self._token:
                await self._log_in(line)
            raw = await self._post(line, path, body)
            reply = decode_reply(raw, kind)
        except EtcdRefusedError:
            self._keep(line)
            raise
        except BaseException:
            # Its answer may come yet, and would be taken for that of the next request.
            self._drop(line)
            raise
        self._keep(line)
        return reply

    async def _post(self, line: HttpLine, path: str, body: bytes) -> bytes:
        try:
            reply = await line.post(
                path,
                body,
                self._headers(),
                seconds=REQUEST_SECONDS,
                bytes_max=ETCD_REPLY_BYTES_MAX,
            )
        except HttpTooLargeError as error:
            raise EtcdTooLargeError(str(error)) from None
        except HttpLineError as error:
            raise EtcdUnavailableError(str(error)) from None
        if reply.status != _OK:
            raise error_in(reply.body)
        return reply.body

    def _take_idle(self) -> HttpLine | None:
        while self._idle:
            line = self._idle.pop()
            if line.is_usable:
                return line
            line.close()
        return None

    def _keep(self, line: HttpLine) -> None:
        is_current = line.address == self._config.endpoints[self._current]
        if (
            line.is_usable
            and is_current
            and len(self._idle) < LINES_IDLE_MAX
            and not self._is_closed
        ):
            self._idle.append(line)
        else:
            line.close()

    def _drop(self, line: HttpLine) -> None:
        """End a connection that failed, and turn to the next member."""
        line.close()
        if line.address == self._config.endpoints[self._current]:
            self._turn()

    def _turn(self) -> None:
        self._current = (self._current + 1) % len(self._config.endpoints)
        for line in self._idle:
            line.close()
        self._idle.clear()

    async def _connect(self) -> HttpLine:
        """Connect to the first member that answers, beginning with the current one."""
        failures: list[str] = []
        for _ in self._config.endpoints:
            if self._is_closed:
                raise EtcdUnavailableError("the client was closed")
            address = self._config.endpoints[self._current]
            try:
                line = await HttpLine.open(address, self._tls, seconds=CONNECT_SECONDS)
            except HttpLineError as error:
                failures.append(str(error))
                self._turn()
                continue
            self._lines.add(line)
            try:
                await self._greet(line)
            except (EtcdUnavailableError, EtcdRefusedError) as error:
                failures.append(f"{address}: {error}")
                self._drop(line)
            except BaseException:
                self._drop(line)
                raise
            else:
                return line
        raise EtcdUnavailableError("; ".join(failures))

    async def _greet(self, line: HttpLine) -> None:
        """Log in if that is wanted, and check that this is the etcd of all the others."""
        if self._config.user and not self._token:
            await self._log_in(line)
        request = {"key": self._check_key, "serializable": True, "count_only": True}
        try:
            raw = await self._post(line, "/v3/kv/range", encode_request(request))
        except EtcdTokenError:
            self._token = ""
            raise
        found = decode_reply(raw, GatewayRange).header.cluster_id
        if found != (self._cluster_id or found) or not found:
            raise EtcdRefusedError("it is a member of another etcd")
        self._cluster_id = found

    async def _log_in(self, line: HttpLine) -> None:
        request = {"name": self._config.user, "password": self._config.password}
        raw = await self._post(line, "/v3/auth/authenticate", encode_request(request))
        token = decode_reply(raw, GatewayToken).token
        if not token.isascii() or not token.isprintable():
            raise EtcdUnavailableError("etcd gave a token that cannot be used")
        self._token = token

    def _headers(self) -> bytes:
        token = b"Authorization: %b\r\n" % self._token.encode() if self._token else b""
        return _REQUIRE_LEADER + token


class ClientWatch:
    """Changes as etcd streams them, a JSON object a line: an implementation of ``EtcdWatch``."""

    def __init__(self, line: HttpLine) -> None:
        self._line = line
        self._rest = bytearray()

    async def created(self, status: int) -> None:
        """Wait until etcd has begun the watch."""
        if status != _OK:
            raise error_in(await self._line.part())
        if not (await self._read()).created:
            raise EtcdUnavailableError("etcd began no watch")

    async def next(self) -> Sequence[KeyEvent]:
        """Return the next changes."""
        return [event.as_event() for event in (await self._read()).events]

    def close(self) -> None:
        """End the watch."""
        self._line.close()

    async def _read(self) -> GatewayWatched:
        line = decode_reply(await self._read_line(), GatewayLine)
        if line.error is not None:
            raise error_of(line.error)
        watched = line.result
        if watched is None:
            raise EtcdUnavailableError("etcd ended a watch")
        if watched.compact_revision:
            raise EtcdCompactedError(f"etcd was compacted to {watched.compact_revision}")
        if watched.canceled:
            raise EtcdUnavailableError(watched.cancel_reason or "etcd ended a watch")
        return watched

    async def _read_line(self) -> bytes:
        start = 0
        while (at := self._rest.find(b"\n", start)) < 0:
            start = len(self._rest)
            if start > ETCD_REPLY_BYTES_MAX:
                raise EtcdTooLargeError("a change that etcd shows is too large")
            try:
                part = await self._line.part()
            except HttpLineError as error:
                raise EtcdUnavailableError(str(error)) from None
            if not part:
                raise EtcdUnavailableError("etcd ended a watch")
            self._rest += part
        line = bytes(self._rest[:at])
        del self._rest[: at + 1]
        return line


def _context(tls: EtcdTls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca_file)
    if tls.cert_file is not None:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    context.set_alpn_protocols(["http/1.1"])
    return context
