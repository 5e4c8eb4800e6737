"""Every road into the broker goes through the gate: native, quick paths, HTTP and embedded."""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from goqueue.base.caller import EMBEDDED, Caller
from goqueue.base.deeds import Deed
from goqueue.base.errors import ForbiddenError
from goqueue.config.model import BrokerConfig
from goqueue.embedded import EmbeddedLink
from goqueue.runtime import broker as broker_module
from goqueue.runtime.broker import Broker
from goqueue.service.gate import Gate
from goqueue.service.policy import LoopbackPolicy
from goqueue.service.service import Service
from goqueue.service.verb import RequestContext
from goqueue.testing.disk import MemoryDisk
from goqueue.transport.http import operation as http_operation
from goqueue.transport.http.api import operations
from goqueue.transport.http.app import App
from goqueue.transport.native.dispatch import Dispatch
from goqueue.wire import calls, queue_calls
from goqueue.wire.packet import Operation
from tests.transport.http import running as over_http
from tests.transport.native import running as over_native
from tests.transport.native.raw import frames_of
from tests.transport.samples import sample

NO_CONTEXT = RequestContext(memoryview(b""))
encode = msgspec.msgpack.encode


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    # Fifty logs take longer to make than most tests.
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


def ignore(_: object) -> None:
    """Take an answer that is not looked at."""


class Only:
    """Allows these deeds, whatever they are about, and keeps what it was asked."""

    def __init__(self, *allowed: Deed) -> None:
        self._allowed = allowed
        self.asked: list[tuple[Deed, tuple[str, ...]]] = []

    def allows(self, caller: Caller, deed: Deed, names: tuple[str, ...]) -> bool:
        del caller
        self.asked.append((deed, names))
        return deed in self._allowed


def produce_to(topic: str, frames: bytes) -> calls.Produce:
    return calls.Produce(topic, "all", [calls.ProducePart(0, len(frames))])


def test_every_deed_is_asked_for_somewhere() -> None:
    """No deed is in the list that nothing needs, and everything that is served has one."""
    service = Service(Broker(BrokerConfig(), MemoryDisk()))
    native = set(Dispatch(service).operations.values())
    http = {operation.deed for operation in operations(service)}

    assert native | http == set(Deed)


def test_nothing_is_registered_without_a_deed() -> None:
    """There is no default that would let a route be forgotten."""
    route: Any = http_operation.Operation

    with pytest.raises(TypeError, match="deed"):
        route(method="GET", path="/x", answer=None, tag="x", reply=str)


def test_a_closed_gate_refuses_every_native_operation() -> None:
    """Also on the quick path of publishes; the disk is not touched."""

    async def scenario() -> None:
        disk, policy, frames = MemoryDisk(), Only(), frames_of(b"1")
        broker = Broker(BrokerConfig(sync_threads=0), disk)
        await broker.start()
        try:
            await broker.changes.make("orders", partitions=1, settings={})
            dispatch, session = Dispatch(Service(broker)), Gate(policy).open(EMBEDDED)
            before = disk.operations
            for number in Operation:
                kind = dispatch._operations[number].kind  # noqa: SLF001 - to make a request of it
                with pytest.raises(ForbiddenError):
                    await dispatch.serve(session, number, encode(sample(kind)), NO_CONTEXT)
            for topic in ("orders", "absent"):
                with pytest.raises(ForbiddenError, match="publish is not permitted"):
                    dispatch.begin_produce(
                        session, encode(produce_to(topic, frames)), memoryview(frames), ignore
                    )

            assert [deed for deed, _ in policy.asked[: len(Operation)]] == [
                dispatch.operations[number] for number in Operation
            ]
            assert disk.operations == before
            assert set(broker.topics) & {"orders", "absent"} == {"orders"}
            assert broker.topic("orders").partitions[0].log.end_offset == 0
        finally:
            await broker.stop()

    asyncio.run(scenario())


def test_requests_name_what_they_are_about() -> None:
    """The policy sees the topic, group, subject or transactional id of a native request."""
    named = {
        Operation.CREATE_TOPIC: "orders", Operation.PRODUCE: "orders", Operation.FETCH: "orders",
        Operation.POLL: "orders", Operation.SETTLE: "orders", Operation.NEXT: "orders",
        Operation.RESET_OFFSETS: "orders", Operation.TX_ABORT: "orders",
        Operation.REGISTER_SCHEMA: "orders",
        Operation.LIST_TOPICS: None, Operation.HELLO: None, Operation.TX_END: None,
    }  # fmt: skip
    policy = Only()
    dispatch = Dispatch(Service(Broker(BrokerConfig(), MemoryDisk())))
    session = Gate(policy).open(EMBEDDED)
    for number in named:
        kind = dispatch._operations[number].kind  # noqa: SLF001 - to make a request of it
        with pytest.raises(ForbiddenError):
            asyncio.run(dispatch.serve(session, number, encode(sample(kind)), NO_CONTEXT))

    assert [names for _, names in policy.asked] == [
        (name,) if name else () for name in named.values()
    ]


def test_a_native_connection_is_refused_with_a_typed_error() -> None:
    """Quick paths and tasks alike; the connection stays, and a policy changed later counts."""
    gate = Gate()
    frames = frames_of(b"1")
    with over_native.Running(MemoryDisk(), gate=gate) as server, server.connect() as raw:
        raw.create()
        assert raw.offer(frames) == (0, "")
        server.inside(lambda: gate.use(Only(Deed.GREET)))
        for operation, header, payload in (
            (Operation.PRODUCE, produce_to("orders", frames), frames),
            (Operation.SETTLE, sample(queue_calls.Settle), b""),
            (Operation.OFFSETS, calls.Offsets("orders"), b""),
            (Operation.DELETE_TOPIC, calls.TopicCall("orders"), b""),
        ):
            raw.send(operation, header, payload)
            assert raw.refusal().code == "forbidden"
        server.inside(lambda: gate.use(LoopbackPolicy()))

        assert raw.end_offset() == 1


def test_who_may_not_greet_is_not_let_in() -> None:
    """A closed gate ends a native connection at its first request."""
    with (
        over_native.Running(MemoryDisk(), gate=Gate(Only())) as server,
        server.connect(greet=False) as raw,
    ):
        raw.send(Operation.HELLO, calls.Hello(1, "raw"))

        assert raw.refusal().code == "forbidden"
        assert raw.is_closed()


def test_a_closed_gate_refuses_every_http_route(tmp_path: Path) -> None:
    """Every method of every path answers 403 in the one shape, and nothing is changed."""
    gate = Gate()
    with over_http.Running(tmp_path / "data", gate=gate) as server:
        server.create("1")
        server.publish({"value": "a"}, topic="1")
        policy = Only()
        server.inside(lambda: gate.use(policy))
        asked = 0
        for path, resource in App(operations(Service(server.broker))).resources.items():
            for method in resource.methods:
                reply = server.client.request(method, re.sub(r"{\w+}", "1", path), json={})
                assert reply.status_code == 403, (method, path)
                if method != "HEAD":
                    assert reply.json()["code"] == "forbidden", (method, path)
                asked += 1

        assert len(policy.asked) == asked > 200
        assert all(names in {(), ("1",)} for _, names in policy.asked)
        assert (Deed.PUBLISH, ("1",)) in policy.asked
        server.inside(lambda: gate.use(LoopbackPolicy()))
        assert server.get("/topics").json() == {"topics": ["1"]}
        assert server.get("/groups").json()["groups"] == []
        assert [one["value"] for one in server.read(topic="1")["messages"]] == ["a"]


def test_the_embedded_client_is_asked_too() -> None:
    """A program in the same process goes through the gate like everybody else."""

    async def scenario() -> None:
        broker = Broker(BrokerConfig(), MemoryDisk())
        link = EmbeddedLink(Service(broker, Gate(Only(Deed.PING))))
        await link.request(Operation.PING, calls.Nothing())
        with pytest.raises(ForbiddenError):
            await link.request(Operation.CREATE_TOPIC, calls.CreateTopic("orders", 1))

    asyncio.run(scenario())
