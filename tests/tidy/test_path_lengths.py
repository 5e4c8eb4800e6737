"""How far it is from a request to the disk: a ratchet, so that no layer comes back unseen.

Counted are the calls from the native dispatch down to a file of the disk, in the longest chain of
one request, and the source files of that chain. What a change makes shorter is set lower here.
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Self

import msgspec
import pytest

import goqueue
from goqueue.base.caller import EMBEDDED
from goqueue.config.model import BrokerConfig
from goqueue.runtime import broker as broker_module
from goqueue.runtime import commit
from goqueue.runtime.broker import Broker
from goqueue.service.service import Service
from goqueue.service.verb import Later, Reply, RequestContext
from goqueue.testing.disk import MemoryDisk
from goqueue.transport.native.dispatch import Dispatch
from goqueue.wire import calls, group_calls, queue_calls
from goqueue.wire.packet import Operation
from tests.transport.native.raw import frames_of

ROOT = str(Path(goqueue.__file__).parent)
TESTING = f"{ROOT}/testing/"
FILE = f"{TESTING}file.py"


class Longest(NamedTuple):
    """The longest chain of calls to the disk, and the source files on it."""

    calls: int
    files: int


LIMITS = {
    "publish": Longest(9, 7),
    "publish at once": Longest(8, 7),
    "lease": Longest(12, 9),
    "settle": Longest(10, 9),
    "next": Longest(13, 10),
    "fetch": Longest(7, 5),
}


class Tracer(AbstractContextManager["Tracer"]):
    """Notes every call of our code while it is entered."""

    def __init__(self) -> None:
        self._longest: list[str] = []

    def __enter__(self) -> Self:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename == FILE:
            self._longest = max(self._longest, _chain(frame), key=len)

    @property
    def longest(self) -> Longest:
        return Longest(len(self._longest), len(set(self._longest)))


def _chain(frame: FrameType) -> list[str]:
    """Return the files of a chain of calls that ends in a file of the disk."""
    chain: list[str] = [FILE]
    caller = frame.f_back
    while caller is not None:
        path = caller.f_code.co_filename
        if path.startswith(ROOT) and not path.startswith(TESTING):
            chain.append(path)
        caller = caller.f_back
    return chain


async def measure() -> dict[str, Longest]:
    """Return the longest way of each kind of request, the second time it is made."""
    broker = Broker(BrokerConfig(sync_threads=0), MemoryDisk())
    await broker.start()
    service = Service(broker)
    dispatch, session = Dispatch(service), service.open(EMBEDDED)
    found: dict[str, Longest] = {}

    async def ask(operation: Operation, call: calls.Call, payload: bytes = b"") -> Reply:
        context = RequestContext(memoryview(payload))
        header = msgspec.msgpack.encode(call)
        with Tracer() as tracer:
            begun = await dispatch.begin(session, operation, header, context)
        found[operation.name] = tracer.longest
        return await begun.reply() if isinstance(begun, Later) else begun

    def at_once(name: str, serve: Callable[..., object], call: calls.Call, *more: object) -> None:
        header = msgspec.msgpack.encode(call)
        with Tracer() as tracer:
            assert serve(session, header, *more) is not None
        found[name] = tracer.longest

    await ask(Operation.CREATE_TOPIC, calls.CreateTopic("orders", 1))
    joined: Any = (await ask(Operation.JOIN_GROUP, group_calls.JoinGroup("g", "c", ["orders"])))[0]
    frames = frames_of(b"1")
    produce = calls.Produce("orders", "all", [calls.ProducePart(0, len(frames))])
    for _ in range(2):
        for _ in range(10):
            # The committer sees that nobody else is about.
            await asyncio.sleep(0)
        at_once("publish at once", dispatch.begin_produce, produce, memoryview(frames), print)
        await ask(Operation.PRODUCE, produce, frames)
        poll = queue_calls.Poll("g", joined.member_id, 0, 100, 1 << 20, 0)
        polled: Any = (await ask(Operation.POLL, poll)).header
        (part,) = polled.parts
        ack = queue_calls.SettlePart(part.topic, part.partition, part.nonce, "ack", part.order)
        settle = queue_calls.Settle("g", joined.member_id, [ack])
        await ask(Operation.SETTLE, settle)
        await ask(Operation.PRODUCE, produce, frames)
        found["publish"] = found.pop("PRODUCE")
        next_one = queue_calls.Next("g", joined.member_id, 0, 1, 1 << 20, 0, [ack])
        await ask(Operation.NEXT, next_one)
        await ask(Operation.FETCH, calls.Fetch("orders", 1 << 20, 0, [calls.FetchPart(0, 0)]))
    await broker.stop()
    names = {"SETTLE": "settle", "NEXT": "next", "POLL": "lease", "FETCH": "fetch"}
    named = {names.get(name, name): longest for name, longest in found.items()}
    return {name: longest for name, longest in named.items() if name in LIMITS}


def test_the_way_of_a_request_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that only hands on shows here; so does one that was taken out."""
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)
    # However slow this machine is just now, the quick path is taken.
    monkeypatch.setattr(commit, "INLINE_SYNC_SECONDS_MAX", 1e9)

    assert asyncio.run(measure()) == LIMITS
