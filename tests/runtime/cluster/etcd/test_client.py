"""The client of etcd against members that answer badly, or not at all."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from goqueue.config.address import Address
from goqueue.config.etcd import EtcdConfig
from goqueue.runtime.cluster.etcd import client as client_module
from goqueue.runtime.cluster.etcd.api import (
    EtcdCompactedError,
    EtcdError,
    EtcdLeaseLostError,
    EtcdRefusedError,
    EtcdTooLargeError,
    EtcdUnavailableError,
    PutKey,
    ReadKeys,
)
from goqueue.runtime.cluster.etcd.client import EtcdClient
from goqueue.runtime.cluster.etcd.gateway import GatewayFault, error_of

Answer = Callable[[str, dict[str, object], bytes], bytes | None]


def reply(body: object, status: int = 200) -> bytes:
    """Return a reply as etcd sends it."""
    raw = json.dumps(body).encode()
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(raw), raw)


def header(cluster_id: int = 7, revision: int = 5) -> dict[str, object]:
    return {"header": {"cluster_id": str(cluster_id), "revision": str(revision)}}


class Member:
    """A server that answers with what a function returns; None: it ends the connection."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[str] = []
        self.heads: list[bytes] = []
        self.address = Address("127.0.0.1", 0)

    async def start(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = Address(*server.sockets[0].getsockname()[:2])
        self._server = server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                body = await reader.readexactly(size)
                path = head.split()[1].decode()
                self.asked.append(path)
                self.heads.append(head)
                request = json.loads(body)
                answer = self._answer(path, request, head)
                if answer is None:
                    break
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def stop(self) -> None:
        self._server.close()


def run(*answers: Answer, scenario: Callable[[EtcdClient, list[Member]], Awaitable[None]]) -> None:
    """Run a scenario on a client of some members."""

    async def main() -> None:
        members = [Member(answer) for answer in answers]
        for member in members:
            await member.start()
        config = EtcdConfig(endpoints=tuple(member.address for member in members))
        client = EtcdClient(config)
        try:
            async with asyncio.timeout(30):
                await scenario(client, members)
        finally:
            await client.close()
            for member in members:
                await member.stop()

    asyncio.run(main())


def greeted(answer: Answer) -> Answer:
    """Answer the first question of a connection well."""

    def whole(path: str, request: dict[str, object], head: bytes) -> bytes | None:
        return reply(header()) if request.get("count_only") else answer(path, request, head)

    return whole


def silent(*_: object) -> bytes | None:
    """End the connection."""
    return None


def test_members_are_tried_in_turn() -> None:
    """Those that break are left; the next request begins with the one that answered."""

    async def scenario(client: EtcdClient, members: list[Member]) -> None:
        await members[0].stop()
        for _ in range(3):
            assert (await client.range(ReadKeys(b"a"))).revision == 5

        assert [len(member.asked) for member in members] == [0, 1, 4]
        assert b"Grpc-Metadata-hasleader: true\r\n" in members[2].heads[0]

    run(silent, silent, greeted(lambda *_: reply(header())), scenario=scenario)


def test_a_write_without_an_answer_is_not_sent_again() -> None:
    """Its sender has to find out; the next request goes to another member."""

    async def scenario(client: EtcdClient, members: list[Member]) -> None:
        with pytest.raises(EtcdUnavailableError):
            await client.txn((), [PutKey(b"a", b"1")])
        assert members[1].asked == []
        await client.grant(2)

        assert members[0].asked == ["/v3/kv/range", "/v3/kv/txn"]
        assert members[1].asked == ["/v3/kv/range", "/v3/lease/grant"]

    good = greeted(lambda *_: reply(header() | {"ID": "9", "TTL": "2"}))
    run(greeted(silent), good, scenario=scenario)


def test_a_member_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a bounded time."""
    monkeypatch.setattr(client_module, "REQUEST_SECONDS", 0.05)

    async def scenario(client: EtcdClient, _: list[Member]) -> None:
        with pytest.raises(EtcdUnavailableError, match="does not answer"):
            await client.range(ReadKeys(b"a"))
        with pytest.raises(EtcdUnavailableError):
            await client.watch(b"a", b"b", start_revision=1)

    run(greeted(lambda *_: b""), scenario=scenario)


def test_members_of_two_etcds_are_not_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one is left before anything is written to it."""
    monkeypatch.setattr(client_module, "LINES_IDLE_MAX", 0)

    async def scenario(client: EtcdClient, members: list[Member]) -> None:
        await client.revoke(1)
        await members[0].stop()
        with pytest.raises(EtcdUnavailableError, match="another etcd"):
            await client.revoke(2)

        assert members[1].asked == ["/v3/kv/range"]

    run(
        lambda *_: reply(header(7)),
        lambda *_: reply(header(8)),
        scenario=scenario,
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 100_000,
        b"SSH-2.0\r\n",
        reply([1]),
        reply({"header": {"revision": "x"}}),
        reply({"kvs": [{"key": "%"}]}),
        reply("nothing", 500),
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n\xff\xff\xff\xff\xff",
    ],
)
def test_what_makes_no_sense_counts_as_no_answer(raw: bytes) -> None:
    """However long it is, and whatever is in it."""

    async def scenario(client: EtcdClient, _: list[Member]) -> None:
        with pytest.raises(EtcdUnavailableError):
            await client.range(ReadKeys(b"a"))

    run(greeted(lambda *_: raw), scenario=scenario)


def test_a_reply_is_read_up_to_a_limit() -> None:
    """It may be because of too many keys, so that is said."""
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + b" " * (9 << 20)

    async def scenario(client: EtcdClient, _: list[Member]) -> None:
        with pytest.raises(EtcdTooLargeError):
            await client.range(ReadKeys(b"a"))

    run(greeted(lambda *_: raw), scenario=scenario)


def test_a_transaction_whose_answers_are_missing_counts_as_unanswered() -> None:
    """One answer for each operation."""

    async def scenario(client: EtcdClient, _: list[Member]) -> None:
        with pytest.raises(EtcdUnavailableError, match="does not fit"):
            await client.txn((), [PutKey(b"a", b"1")])

    run(greeted(lambda *_: reply(header() | {"succeeded": True})), scenario=scenario)


def stream(*lines: object) -> bytes:
    """Return the beginning of a watch."""
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%b\r\n" % (len(body), body)


CREATED = {"result": {"created": True}}


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (stream({"error": {"grpc_code": 14, "message": "no leader"}}), EtcdUnavailableError),
        (stream({"error": {"grpc_code": 7, "message": "permission denied"}}), EtcdRefusedError),
        (stream(CREATED, {"result": {"canceled": True}}), EtcdUnavailableError),
        (stream(CREATED, {"result": {"compact_revision": "9"}}), EtcdCompactedError),
        (stream(CREATED, {}), EtcdUnavailableError),
        (stream(CREATED, "x"), EtcdUnavailableError),
        (stream({"result": {}}), EtcdUnavailableError),
        (stream(CREATED) + b"0\r\n\r\n", EtcdUnavailableError),
        (stream(CREATED) + b"900000\r\n" + b"x" * 0x900000, EtcdTooLargeError),
        (reply({"code": 14, "message": "stopped"}, 503), EtcdUnavailableError),
    ],
)
def test_a_watch_ends_with_the_reason(raw: bytes, error: type[EtcdError]) -> None:
    """And never goes on as if nothing had been left out."""

    async def scenario(client: EtcdClient, _: list[Member]) -> None:
        with pytest.raises(error):
            await (await client.watch(b"a", b"b", start_revision=1)).next()

    run(greeted(lambda *_: raw), scenario=scenario)


@pytest.mark.parametrize(
    ("code", "message", "error"),
    [
        (5, "etcdserver: requested lease not found", EtcdLeaseLostError),
        (11, "etcdserver: mvcc: required revision has been compacted", EtcdCompactedError),
        (8, "etcdserver: mvcc: database space exceeded", EtcdRefusedError),
        (8, "grpc: received message larger than max (5 vs. 4)", EtcdTooLargeError),
        (8, "etcdserver: too many requests", EtcdUnavailableError),
        (7, "etcdserver: permission denied", EtcdRefusedError),
        (14, "etcdserver: request timed out", EtcdUnavailableError),
        (4, "context deadline exceeded", EtcdUnavailableError),
        (2, "anything", EtcdUnavailableError),
        (0, "nothing", EtcdUnavailableError),
    ],
)
def test_only_what_is_certain_counts_as_refused(
    code: int, message: str, error: type[EtcdError]
) -> None:
    """After anything else a write may have happened."""
    assert type(error_of(GatewayFault(message=message, code=code))) is error


def test_a_token_is_renewed() -> None:
    """Once for a request; a password that is wrong is not tried for ever."""
    given: list[str] = []
    good = {"token 2"}

    def answer(path: str, request: dict[str, object], head: bytes) -> bytes:
        if path == "/v3/auth/authenticate":
            assert request == {"name": "u", "password": "p"}
            given.append(f"token {len(given) + 1}")
            return reply(header() | {"token": given[-1]})
        is_good = any(b"Authorization: %b\r\n" % token.encode() in head for token in good)
        is_check = path == "/v3/kv/range" and b"Authorization: " in head
        if is_good or is_check:
            return reply(header())
        return reply({"code": 16, "message": "invalid auth token"}, 401)

    async def scenario(_: EtcdClient, members: list[Member]) -> None:
        member = members[0]
        config = EtcdConfig(endpoints=(member.address,), user="u", password="p")  # noqa: S106
        client = EtcdClient(config)
        await client.revoke(1)
        assert given == ["token 1", "token 2"]
        good.clear()
        with pytest.raises(EtcdRefusedError):
            await client.revoke(2)
        await client.close()

        assert given == ["token 1", "token 2", "token 3"]

    run(answer, scenario=scenario)
