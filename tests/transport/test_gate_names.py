"""The gate is told the name of what a request is about, wherever that name stands."""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.inspect import IntType, type_info

from goqueue.base.caller import EMBEDDED, Caller
from goqueue.base.deeds import Deed, ResourceKind
from goqueue.base.errors import ForbiddenError
from goqueue.config.model import BrokerConfig
from goqueue.runtime import broker as broker_module
from goqueue.runtime.broker import Broker
from goqueue.service.gate import Gate
from goqueue.service.service import Service
from goqueue.service.verb import RequestContext
from goqueue.testing.disk import MemoryDisk
from goqueue.transport.http import operation as http_operation
from goqueue.transport.http.api import operations
from goqueue.transport.native.dispatch import Dispatch
from goqueue.wire import queue_calls, tx_calls
from goqueue.wire.packet import Operation
from tests.transport.http.queueing import Worker
from tests.transport.http.running import Running
from tests.transport.samples import sample

MINE, OTHER = "mine", "other"
ABOUT_NOTHING = {ResourceKind.NOTHING, ResourceKind.CLUSTER}
LISTS = {
    Deed.LIST_TOPICS, Deed.SUM_UP_TOPICS, Deed.LIST_GROUPS, Deed.TX_LIST, Deed.LIST_DLQ,
    Deed.LIST_SCHEDULES, Deed.LIST_SUBJECTS, Deed.SEARCH_TRACES, Deed.TAIL_TRACES,
}  # fmt: skip
"""About all of a kind: a policy by names filters what they return."""
FOUND = {
    Deed.SETTLE: "the group gave out the receipt",
    Deed.TX_BEGIN: "the transactional id has the producer's number, here and below",
    Deed.TX_ADD_PARTITION: "", Deed.TX_HOLD: "", Deed.TX_OFFSETS: "", Deed.TX_DETACH: "",
    Deed.TX_ADOPT: "", Deed.TX_END: "", Deed.TX_HEARTBEAT: "",
}  # fmt: skip
"""Named by a number that leads to it: the service asks the gate when it has found the name."""
OPEN = {
    Deed.INIT_PRODUCER: "a number for a producer, which may write nothing yet",
    Deed.FIND_TRACE: "spans of several topics, to be filtered as a list",
    Deed.DESCRIBE_SCHEMA: "by its number, which subjects share",
}
"""Without one name; a policy by names has to decide what they show."""


class ByName:
    """Allows everything that is named to be ours, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Deed, tuple[str, ...]]] = []

    def allows(self, caller: Caller, deed: Deed, names: tuple[str, ...]) -> bool:
        del caller
        self.asked.append((deed, names))
        return all(name.startswith(MINE) for name in names)


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


def a_service(gate: Gate | None = None) -> Service:
    return Service(Broker(BrokerConfig(sync_threads=0), MemoryDisk()), gate)


def routes() -> list[http_operation.Operation]:
    return list(operations(a_service()))


def is_named(operation: http_operation.Operation) -> bool:
    return bool(operation.name_parameter or operation.name_query or operation.name_in_body)


def test_every_request_names_what_it_is_about_or_says_why_not() -> None:
    """A new operation or route is named, or is entered in one of the tables above."""
    unnamed = LISTS | set(FOUND) | set(OPEN)
    served = Dispatch(a_service())._operations  # noqa: SLF001 - to look at the headers
    native = {one.deed for one in served.values() if one.field is None}
    http = {one.deed for one in routes() if not is_named(one)}
    about = {deed for deed in native | http if deed.kind not in ABOUT_NOTHING}

    # Over HTTP alone, with a name that may be left out.
    assert about | {Deed.TX_ADD_PARTITION} == unnamed


def test_native_requests_are_refused_by_the_name_in_their_header() -> None:
    """What is asked of the gate is the field that the verb acts on."""
    policy = ByName()
    dispatch, session = Dispatch(a_service()), Gate(policy).open(EMBEDDED)
    for number, served in dispatch._operations.items():  # noqa: SLF001 - to make requests
        if served.field is None:
            continue
        header = msgspec.structs.replace(sample(served.kind), **{served.field: OTHER})
        context = RequestContext(memoryview(b""))
        with pytest.raises(ForbiddenError):
            asyncio.run(dispatch.serve(session, number, msgspec.msgpack.encode(header), context))
        assert policy.asked[-1] == (served.deed, (OTHER,))


def request_for(operation: http_operation.Operation, name: str) -> tuple[str, Any, dict[str, str]]:
    """Return the path, the body and the query of a request about a name."""
    path = operation.path.replace(f"{{{operation.name_parameter}}}", name)
    body: Any = {}
    if operation.name_in_body:
        body = {
            field.encode_name: 1 if isinstance(type_info(field.type), IntType) else name
            for field in msgspec.structs.fields(operation.body)
            if field.required or field.name == operation.name_in_body
        }
    query = {operation.name_query: name} if operation.name_query else {}
    return re.sub(r"{\w+}", "1", path), body, query


def test_http_requests_are_refused_by_the_name_in_path_query_or_body(tmp_path: Path) -> None:
    """Whatever a route is about is not touched without a grant on it."""
    gate, policy = Gate(), ByName()
    with Running(tmp_path / "data", gate=gate) as server:
        server.create(OTHER)
        before = server.get(f"/topics/{OTHER}").json()
        server.inside(lambda: gate.use(policy))
        asked = 0
        for operation in routes():
            if not is_named(operation):
                continue
            path, body, query = request_for(operation, OTHER)
            reply = server.client.request(operation.method, path, json=body, params=query)
            assert reply.status_code == 403, (operation.method, path, reply.text)
            assert policy.asked[-1] == (operation.deed, (OTHER,)), path
            asked += 1
        assert asked > 70
        assert server.post("/topics", {"name": MINE}).status_code == 201
        server.inside(lambda: gate.use(Gate()._policy))  # noqa: SLF001 - everything, again
        assert server.get("/topics").json() == {"topics": [MINE, OTHER]}
        assert server.get(f"/topics/{OTHER}").json() == before


def test_receipts_are_settled_for_groups_one_may_read(tmp_path: Path) -> None:
    """Alone and in batches: the group is the one that gave out the receipt."""
    gate, policy = Gate(), ByName()
    with Running(tmp_path / "data", gate=gate) as server:
        server.create(num_partitions=1)
        server.publish(*[{"value": f"{number}"} for number in range(3)])
        workers = {name: Worker(server, group=name) for name in (MINE, OTHER)}
        leased = {name: worker.poll(3) for name, worker in workers.items()}
        receipts = {name: [one["receipt_handle"] for one in leased[name]] for name in workers}
        server.inside(lambda: gate.use(policy))
        for verb in ("ack", "nack", "reject", "visibility"):
            refused = workers[OTHER].settle(verb, leased[OTHER][0], extension_seconds=5)
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
            assert policy.asked[-1] == (Deed.SETTLE, (OTHER,))
        assert workers[MINE].settle("ack", leased[MINE][0]).status_code == 200
        both = {"receipts": [receipts[MINE][1], receipts[OTHER][1]]}
        settled = server.post("/messages/ack/batch", both).json()
        assert settled["settled"] == 1
        assert [(one["index"], one["code"]) for one in settled["errors"]] == [(1, "forbidden")]


def test_producers_are_known_by_their_transactional_ids() -> None:
    """A number is no way around the name: of who speaks, and of all that it adopts."""

    async def scenario() -> None:
        gate, policy = Gate(), ByName()
        service = a_service(gate)
        broker = service._broker  # noqa: SLF001 - to start it
        await broker.start()
        try:
            await broker.changes.make(OTHER, partitions=1, settings={})
            dispatch, session = Dispatch(service), gate.open(EMBEDDED)

            async def ask(operation: Operation, header: Any) -> Any:
                raw, context = msgspec.msgpack.encode(header), RequestContext(memoryview(b""))
                return (await dispatch.serve(session, operation, raw, context)).header

            lives = {}
            for name in (MINE, MINE + "-2", OTHER):
                life = await ask(Operation.TX_INIT, tx_calls.TxInit(name))
                begun = await ask(Operation.TX_BEGIN, tx_calls.TxWho(life.producer_id, life.epoch))
                lives[name] = tx_calls.TxWho(life.producer_id, life.epoch, begun.number)
            gate.use(policy)
            mine, other = lives[MINE], lives[OTHER]
            part = queue_calls.SettlePart(OTHER, 0, 1, "ack", [0, 1])
            refused = [
                (Operation.TX_BEGIN, other), (Operation.TX_DETACH, other),
                (Operation.TX_HEARTBEAT, other),
                (Operation.TX_END, tx_calls.TxEnd(other, is_commit=True)),
                (Operation.TX_HOLD, tx_calls.TxHold(other, MINE, [part])),
                (Operation.TX_HOLD, tx_calls.TxHold(mine, OTHER, [part])),
                (Operation.TX_OFFSETS, tx_calls.TxOffsets(other, MINE, [])),
                (Operation.TX_OFFSETS, tx_calls.TxOffsets(mine, OTHER, [])),
                (Operation.TX_ADOPT, tx_calls.TxAdopt(mine, [other])),
                (Operation.TX_ADOPT, tx_calls.TxAdopt(other, [mine])),
            ]  # fmt: skip
            for operation, header in refused:
                with pytest.raises(ForbiddenError):
                    await ask(operation, header)
                assert OTHER in policy.asked[-1][1], operation
            assert {one.number for one in broker.transactions} == {
                one.number for one in lives.values()
            }
            await ask(Operation.TX_HEARTBEAT, mine)
            await ask(Operation.TX_END, tx_calls.TxEnd(mine, is_commit=True))
            assert policy.asked[-1] == (Deed.TX_END, (MINE,))
        finally:
            await broker.stop()

    asyncio.run(scenario())
