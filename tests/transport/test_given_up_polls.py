"""A poll whose connection drops leaves nothing behind: no memory, no line, no lease."""

import asyncio
from typing import Any

import msgspec
import pytest

from goqueue.base.caller import EMBEDDED
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.runtime.queue.delivery_read import PickReader
from goqueue.service.service import Service
from goqueue.service.verb import Later, Reply, RequestContext
from goqueue.transport.native.at_once import Outcome, begin_at_once
from goqueue.transport.native.budget import ByteBudget, ReplyRoom
from goqueue.transport.native.dispatch import Dispatch
from goqueue.wire import calls, group_calls, queue_calls
from goqueue.wire.packet import Operation
from tests.runtime.rig import Rig, run

BUDGET = 100_000


class Door:
    """A broker with a member that polls, and the memory of its replies."""

    def __init__(self, rig: Rig, service: Service) -> None:
        self.rig = rig
        self.dispatch = Dispatch(service)
        self.session = service.open(EMBEDDED)
        self.budget = ByteBudget(BUDGET)
        self.member = ""

    async def ask(self, operation: Operation, call: calls.Call, payload: bytes = b"") -> Reply:
        header = msgspec.msgpack.encode(call)
        context = RequestContext(memoryview(payload), ReplyRoom(self.budget))
        return await self.dispatch.serve(self.session, operation, header, context)

    async def publish(self, count: int) -> None:
        now_us = self.rig.clock.now_us()
        rows = [Draft(value=b"x" * 1_000, key=b"k", timestamp_us=now_us) for _ in range(count)]
        frames = frame_drafts(rows)
        part = calls.ProducePart(0, len(frames))
        await self.ask(Operation.PRODUCE, calls.Produce("t", "all", [part]), frames)

    def wait(self) -> asyncio.Future[None]:
        """Begin a poll that finds nothing, as a connection does."""
        room = ReplyRoom(self.budget)

        def answer(_: Outcome) -> None:
            room.release()

        header = msgspec.msgpack.encode(self.poll(20_000))
        context = RequestContext(memoryview(b""), room)
        request = self.dispatch.begin(self.session, Operation.POLL, header, context)
        begun = begin_at_once(request, answer)
        assert isinstance(begun, asyncio.Future)
        return begun

    def poll(self, wait_ms: int) -> queue_calls.Poll:
        return queue_calls.Poll("g", self.member, 0, 10, 1 << 20, wait_ms)


async def begin() -> Door:
    rig = Rig()
    door = Door(rig, Service(await rig.start()))
    rig.broker.create_topic("t", partitions=1)
    joined: Any = (await door.ask(Operation.JOIN_GROUP, group_calls.JoinGroup("g", "c", ["t"])))[0]
    door.member = joined.member_id
    return door


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_poll_that_waited_for_memory_does_not_keep_its_member_waiting() -> None:
    """The next poll under the same member id is answered, with the messages."""

    async def main() -> None:
        door = await begin()
        waiting = door.wait()
        door.budget.charge(BUDGET)
        door.budget.wait(lambda: None)
        await door.publish(3)
        await turns()
        waiting.cancel()
        await turns()
        door.budget.give_back(BUDGET)
        async with asyncio.timeout(60):
            reply: Any = (await door.ask(Operation.POLL, door.poll(0))).header

        assert [len(part.order) for part in reply.parts] != []
        await door.rig.stop()

    run(main())


def test_a_poll_given_up_while_it_reads_keeps_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it held of the common memory is free again, and so are its messages."""

    async def main() -> None:
        door = await begin()
        waiting = door.wait()
        read, opened = PickReader.read, asyncio.Event()

        async def slow(reader: PickReader, *, oldest_us: int) -> Any:
            await opened.wait()
            return await read(reader, oldest_us=oldest_us)

        with monkeypatch.context() as patch:
            patch.setattr(PickReader, "read", slow)
            await door.publish(10)
            await turns()
            waiting.cancel()
            await turns()
            opened.set()
            await turns()
        assert door.budget.free == BUDGET
        reply: Any = (await door.ask(Operation.POLL, door.poll(0))).header
        assert reply.parts
        await door.rig.stop()

    run(main())


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_reply_that_cannot_be_made_or_sent_is_an_error(*, is_sent: bool) -> None:
    """The client is told, and what was leased for it is given back."""

    async def main() -> tuple[list[Outcome], list[str]]:
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        undone: list[str] = []
        answers: list[Outcome] = []

        def undo() -> None:
            undone.append("undone")

        def finish() -> Reply:
            if not is_sent:
                raise ValueError("no reply")
            return Reply(calls.Nothing(), undo=undo)

        def answer(outcome: Outcome) -> None:
            if isinstance(outcome, Reply):
                raise OSError("not sent")
            answers.append(outcome)

        async def request() -> Reply | Later:
            return Later(ready, finish, undo)

        begin_at_once(request(), answer)
        ready.set_result(None)
        await turns()
        return answers, undone

    answers, undone = asyncio.run(main())

    assert [type(one) for one in answers] == [OSError if is_sent else ValueError]
    assert undone == ["undone"]
