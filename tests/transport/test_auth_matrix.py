"""Every deed for every role on every road, compared with a table written by hand."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from goqueue.base.caller import EMBEDDED, Caller, Transport
from goqueue.base.deeds import Deed
from goqueue.base.errors import ForbiddenError, GoQueueError, UnauthenticatedError
from goqueue.base.secret import Secret
from goqueue.config.model import BrokerConfig
from goqueue.core.security import commands
from goqueue.core.security.keys import KeyTerms, digest_of
from goqueue.runtime import broker as broker_module
from goqueue.runtime.broker import Broker
from goqueue.service.forwarding import ForwardedRequests
from goqueue.service.gate import Session
from goqueue.service.service import Service
from goqueue.service.verb import RequestContext
from goqueue.testing.disk import MemoryDisk
from goqueue.transport.native.dispatch import Dispatch
from goqueue.wire.forward_calls import Forward, ForwardedCaller
from goqueue.wire.peer_calls import PeerIdentity
from tests.transport.http.running import Running
from tests.transport.samples import sample
from tests.transport.test_gate_names import request_for, routes

ROOT = "r" * 40
P, C, R, M = "producer", "consumer", "readonly", "metrics"
EVERYBODY, NOBODY = frozenset({P, C, R, M}), frozenset[str]()
FAR = Caller(transport=Transport.NATIVE, peer="10.0.0.9")
R_M, P_C, P_C_R = frozenset({R, M}), frozenset({P, C}), frozenset({P, C, R})
EXPECTED: dict[Deed, frozenset[str]] = {
    **dict.fromkeys(
        [Deed.GREET, Deed.AUTHENTICATE, Deed.PING, Deed.WHOAMI, Deed.PROBE_HEALTH,
         Deed.READ_DOCUMENTATION, Deed.FIND_LEADERS, Deed.FIND_COORDINATOR,
         Deed.LIST_TOPICS, Deed.SUM_UP_TOPICS, Deed.LIST_GROUPS, Deed.LIST_SCHEDULES,
         Deed.TX_LIST, Deed.LIST_DLQ, Deed.LIST_SUBJECTS, Deed.FIND_TRACE, Deed.SEARCH_TRACES,
         Deed.TAIL_TRACES], EVERYBODY),
    **dict.fromkeys(
        [Deed.MAKE_KEY, Deed.LIST_KEYS, Deed.ROTATE_KEY, Deed.REVOKE_KEY, Deed.ADD_ACL,
         Deed.LIST_ACLS, Deed.REMOVE_ACL, Deed.TEST_ACL, Deed.CREATE_TOPIC, Deed.DELETE_TOPIC,
         Deed.CONFIGURE_TOPIC, Deed.COMPACT_TOPIC, Deed.PAUSE_SCHEDULE, Deed.RESUME_SCHEDULE,
         Deed.TRIGGER_SCHEDULE, Deed.DELETE_SCHEDULE, Deed.RESET_OFFSETS, Deed.DELETE_GROUP,
         Deed.TX_ABORT, Deed.START_REDRIVE, Deed.CANCEL_REDRIVE, Deed.DESCRIBE_REDRIVE,
         Deed.LIST_REDRIVES, Deed.PURGE_DLQ, Deed.REGISTER_SCHEMA, Deed.DELETE_SCHEMA,
         Deed.CONFIGURE_SUBJECT, Deed.CONFIGURE_REGISTRY, Deed.START_MOVES,
         Deed.ADD_PARTITIONS], NOBODY),
    **dict.fromkeys(
        [Deed.READ_METRICS, Deed.DESCRIBE_REGISTRY, Deed.DESCRIBE_TRACING, Deed.DESCRIBE_MOVES],
        R_M,
    ),
    **dict.fromkeys([Deed.DESCRIBE_TOPIC, Deed.FIND_OFFSETS, Deed.FIND_DELAYED], P_C_R),
    **dict.fromkeys(
        [Deed.INIT_PRODUCER, Deed.PUBLISH, Deed.CANCEL_DELAYED, Deed.RESCHEDULE_DELAYED,
         Deed.CREATE_SCHEDULE, Deed.TX_INIT, Deed.TX_BEGIN, Deed.TX_ADD_PARTITION, Deed.TX_HOLD,
         Deed.TX_OFFSETS, Deed.TX_DETACH, Deed.TX_ADOPT, Deed.TX_END, Deed.TX_HEARTBEAT],
        frozenset({P})),
    **dict.fromkeys(
        [Deed.FETCH, Deed.LIST_DELAYED, Deed.JOIN_GROUP, Deed.HEARTBEAT, Deed.LEAVE_GROUP,
         Deed.REVOKE_PARTITIONS, Deed.POLL, Deed.SETTLE, Deed.NEXT, Deed.COMMIT_OFFSETS,
         Deed.PEEK_DLQ], frozenset({C})),
    **dict.fromkeys([Deed.DESCRIBE_GROUP, Deed.DESCRIBE_PROGRESS], frozenset({C, R})),
    **dict.fromkeys([Deed.DESCRIBE_SCHEMA, Deed.CHECK_SCHEMA, Deed.VALIDATE_VALUES], P_C),
    Deed.TX_DESCRIBE: frozenset({P, R}),
    Deed.DESCRIBE_SCHEDULE: frozenset({R}),
}  # fmt: skip
LOCAL = {Deed.READ_METRICS}
"""Allowed to everybody on the broker's machine."""


def secret_of(role: str) -> str:
    return "gq_" + digest_of(role).hex()


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


async def make_keys(broker: Broker) -> None:
    for number, role in enumerate(("admin", P, C, R, M)):
        await broker.security.change(
            commands.MakeKey(
                id=f"key_{number:016x}",
                digest=digest_of(secret_of(role)),
                prefix="gq_",
                terms=KeyTerms(name=role, roles=(role,)),
            )
        )


@asynccontextmanager
async def serving() -> AsyncIterator[Service]:
    config = BrokerConfig(sync_threads=0, auth_enabled=True, api_root_key=Secret(ROOT))
    broker = Broker(config, MemoryDisk())
    service = Service(broker)
    await broker.start()
    try:
        await make_keys(broker)
        yield service
    finally:
        await broker.stop()


def session_of(service: Service, role: str) -> Session:
    session = service.open(FAR)
    session.authenticate(secret_of(role))
    return session


async def outcome(request: Awaitable[Any]) -> str:
    """Return the code of the refusal; nothing where the gate let the request pass."""
    try:
        async with asyncio.timeout(20):
            await request
    except (ForbiddenError, UnauthenticatedError) as error:
        return error.code
    except (GoQueueError, AssertionError, TimeoutError):
        return ""
    return ""


Ask = Callable[[int, bytes], Awaitable[Any]]


async def compare(dispatch: Dispatch, role: str, ask: Ask) -> int:
    asked = 0
    for number, deed in dispatch.operations.items():
        kind = dispatch._operations[number].kind  # noqa: SLF001 - to make a request of it
        if deed in (Deed.GREET, Deed.AUTHENTICATE):
            continue
        refused = await outcome(ask(number, msgspec.msgpack.encode(sample(kind))))
        expected = role == "admin" or role in EXPECTED[deed]
        # Another need of the same request may be missing; without the first one all are refused.
        if not expected or not refused:
            assert (refused == "") == expected, (role, deed, refused)
        asked += 1
    return asked


def test_the_table_has_every_deed() -> None:
    """What is new must be decided about here, too."""
    assert EXPECTED.keys() == set(Deed)


@pytest.mark.parametrize("role", ["admin", P, C, R, M])
def test_native_requests_by_role(role: str) -> None:
    """Each operation of the native protocol, for a caller from far away."""

    async def scenario() -> None:
        async with serving() as service:
            dispatch, session = Dispatch(service), session_of(service, role)
            context = RequestContext(memoryview(b""))
            asked = await compare(
                dispatch, role, lambda number, raw: dispatch.serve(session, number, raw, context)
            )
            assert asked > 65

    asyncio.run(scenario())


@pytest.mark.parametrize("role", [P, R])
def test_forwarded_requests_by_role(role: str) -> None:
    """The node that is asked judges by who asked first, and does not believe the other node."""

    async def scenario() -> None:
        async with serving() as service:
            dispatch = Dispatch(service)
            forwarded = ForwardedRequests(
                service.gate, service.turns, serve=dispatch.serve, verbs={}
            )
            caller = ForwardedCaller.of(session_of(service, role).caller)
            peer = PeerIdentity("c", "b", "d", 1)

            def ask(number: int, raw: bytes) -> Awaitable[Any]:
                told = msgspec.msgpack.encode(Forward(caller, number, raw))
                return forwarded.answer(peer, told, memoryview(b""))

            assert await compare(dispatch, role, ask) > 65
            nobody = ForwardedCaller("native", "127.0.0.1", "anonymous")
            told = msgspec.msgpack.encode(Forward(nobody, 2, msgspec.msgpack.encode([])))
            with pytest.raises(UnauthenticatedError):
                await forwarded.answer(peer, told, memoryview(b""))

    asyncio.run(scenario())


def test_without_a_credential_nothing_is_answered() -> None:
    """Each operation, for somebody on the same machine and for somebody far away."""

    async def scenario() -> None:
        async with serving() as service:
            dispatch = Dispatch(service)
            context = RequestContext(memoryview(b""))
            near = Caller(transport=Transport.NATIVE, peer="127.0.0.1")
            for session in (service.open(FAR), service.open(near)):
                for number in dispatch.operations:
                    kind = dispatch._operations[number].kind  # noqa: SLF001 - as above
                    raw = msgspec.msgpack.encode(sample(kind))
                    with pytest.raises(UnauthenticatedError):
                        await dispatch.serve(session, number, raw, context)
                raw = msgspec.msgpack.encode(["orders", "all", [[0, 1]]])
                with pytest.raises(UnauthenticatedError):
                    dispatch.begin_produce(session, raw, memoryview(b"x"), lambda _: None)

    asyncio.run(scenario())


def test_a_program_that_opened_the_directory_needs_no_key() -> None:
    """It has the files; a broker that asks others for keys serves it all the same."""

    async def scenario() -> None:
        async with serving() as service:
            for deed in Deed:
                assert service.gate.admit(EMBEDDED, deed, ("orders",)).caller is EMBEDDED

    asyncio.run(scenario())


def ask(server: Running, method: str, path: str, **options: Any) -> tuple[int, str]:
    reply = server.client.request(method, path, **options)
    said = reply.json() if reply.is_error else {}
    return reply.status_code, str(said.get("code", ""))


def test_http_requests_by_role(tmp_path: Path) -> None:
    """Each route: refused as the table says, and without a key by 401; probes are free."""
    config: dict[str, Any] = {"auth_enabled": True, "api_root_key": Secret(ROOT)}
    with Running(tmp_path / "data", **config) as server:
        server.await_inside(make_keys(server.broker))
        asked = 0
        for operation in routes():
            path, body, query = request_for(operation, "orders")
            if operation.deed in (Deed.PROBE_HEALTH, Deed.READ_DOCUMENTATION, *LOCAL):
                assert server.client.get(path).status_code not in (401, 403), path
                continue
            if EXPECTED[operation.deed] == EVERYBODY:
                # A list of all; one that names a topic needs to read that topic.
                query = {}
            send = partial(ask, server, operation.method, path, json=body, params=query)
            assert send() == (401, "unauthenticated"), path
            for role in (P, C, R, M):
                headers = {"X-API-Key": secret_of(role)}
                if role not in EXPECTED[operation.deed]:
                    found = send(headers=headers)
                    assert found == (403, "forbidden"), (role, operation.method, path)
                elif operation.method == "GET" and not re.search(r"poll|tail", path):
                    assert send(headers=headers)[0] not in (401, 403), (role, path)
                asked += 1
        assert asked > 400
