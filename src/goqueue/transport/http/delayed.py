"""Delayed messages over HTTP: listed, looked at, cancelled, given another time."""

from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.errors import DelayedNotFoundError, InvalidRequestError, TopicNotFoundError
from goqueue.base.limits import DELAYED_PAGE_MAX
from goqueue.base.units import US_PER_MS, format_duration_ms
from goqueue.runtime import schedule
from goqueue.runtime.broker import Broker
from goqueue.transport.http.call import Call, parse_int64
from goqueue.transport.http.drafts import read_due_us
from goqueue.transport.http.operation import Operation, Parameter
from goqueue.transport.http.reply import Response, json_reply
from goqueue.transport.http.topics import find_topic
from goqueue.wire.http.delayed import (
    DelayedCanceled,
    DelayedMessage,
    DelayedNamed,
    DelayedPage,
    NamedCanceled,
    Reschedule,
)
from goqueue.wire.times import format_time_us

TAG: Final = "delayed"
LIMIT_DEFAULT: Final = 100
NOT_FOUND: Final = "delayed message not found or already delivered"
_RESCHEDULE: Final = msgspec.json.Decoder(Reschedule)


class DelayedRoutes:
    """Answers about messages that wait for their time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with delayed messages."""
        bad, absent = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND
        errors = (bad, absent)
        every, named = "/topics/{topic}/delayed", "/topics/{topic}/delayed/id/{delay_id}"
        one, placed = every + "/{offset}", every + "/{partition}/{offset}"
        limit = Parameter(
            name="limit", kind="integer", default=LIMIT_DEFAULT,
            text=f"Most messages to return; at most {DELAYED_PAGE_MAX}.",
        )  # fmt: skip
        skip = Parameter(name="skip", kind="integer", default=0, text="Messages to leave out.")
        partition = Parameter(name="partition", kind="integer", text="Where the offset is.")
        return (
            Operation(
                method="GET", path=every, answer=self.list_delayed, tag=TAG, reply=DelayedPage,
                parameters=(limit, skip), errors=(bad,),
            ),
            Operation(
                method="GET", path=named, answer=self.find_delayed_id, tag=TAG,
                reply=DelayedNamed, errors=errors,
            ),
            Operation(
                method="DELETE", path=named, answer=self.cancel_delayed_id, tag=TAG,
                reply=NamedCanceled, errors=errors,
            ),
            Operation(
                method="PATCH", path=named, answer=self.reschedule_delayed_id, tag=TAG,
                body=Reschedule, reply=DelayedNamed, errors=errors,
            ),
            Operation(
                method="PUT", path=named, answer=self.put_delayed_id, tag=TAG,
                body=Reschedule, reply=DelayedNamed, errors=errors,
            ),
            Operation(
                method="GET", path=one, answer=self.find_delayed, tag=TAG, reply=DelayedMessage,
                parameters=(partition,), errors=errors,
            ),
            Operation(
                method="GET", path=placed, answer=self.find_delayed_at, tag=TAG,
                reply=DelayedMessage, errors=errors,
            ),
            Operation(
                method="DELETE", path=placed, answer=self.cancel_delayed, tag=TAG,
                reply=DelayedCanceled, errors=errors,
            ),
            Operation(
                method="PATCH", path=placed, answer=self.reschedule_delayed, tag=TAG,
                body=Reschedule, reply=DelayedMessage, errors=errors,
            ),
            Operation(
                method="PUT", path=placed, answer=self.put_delayed, tag=TAG,
                body=Reschedule, reply=DelayedMessage, errors=errors,
            ),
        )  # fmt: skip

    # Looking.

    async def list_delayed(self, call: Call) -> Response:
        """Return messages that wait, in the order of partitions and offsets.

        An unknown topic has none.
        """
        limit = min(call.number("limit", default=LIMIT_DEFAULT, least=1), DELAYED_PAGE_MAX)
        skip = call.number("skip", default=0)
        name = call.path["topic"]
        messages: list[DelayedMessage] = []
        pending = 0
        try:
            pending = self._broker.topic(name).delayed
            found = self._broker.delays.page(name, skip=skip, limit=limit)
            messages = [self._shown(one) for one in found]
        except TopicNotFoundError:
            pass
        page = DelayedPage(
            topic=name, messages=messages, count=len(messages), limit=limit, skip=skip,
            pending=pending,
        )  # fmt: skip
        return json_reply(page)

    async def find_delayed(self, call: Call) -> Response:
        """Return the delayed message at an offset, whatever became of it.

        Where the offset waits in several partitions, ``partition`` says which one is meant.
        """
        offset = _number(call, "offset", "invalid offset")
        topic = find_topic(self._broker, call.path["topic"])
        if call.text("partition") is not None:
            number = call.number("partition", default=0)
            return json_reply(self._shown(await self._find(topic.record.name, number, offset)))
        waiting = [part for part in topic.partitions if offset in part.queue.hidden]
        if len(waiting) > 1:
            raise InvalidRequestError(f"offset {offset} waits in several partitions: say which")
        for part in waiting or topic.partitions:
            try:
                found = await self._find(topic.record.name, part.name.partition, offset)
            except DelayedNotFoundError:
                continue
            return json_reply(self._shown(found))
        raise DelayedNotFoundError("delayed message not found")

    async def find_delayed_at(self, call: Call) -> Response:
        """Return the delayed message at a place, whatever became of it."""
        return json_reply(self._shown(await self._find(*self._place(call))))

    async def find_delayed_id(self, call: Call) -> Response:
        """Return the messages that wait under a name."""
        return json_reply(self._named(call, await self._found(call)))

    # Changing.

    async def cancel_delayed(self, call: Call) -> Response:
        """Have a waiting message never delivered; the answer comes when that is certain."""
        done = await self._broker.delays.cancel(*self._place(call))
        reply = DelayedCanceled(topic=done.topic, partition=done.partition, offset=done.offset)
        return json_reply(reply)

    async def cancel_delayed_id(self, call: Call) -> Response:
        """Have the messages that wait under a name never delivered."""
        find_topic(self._broker, call.path["topic"])
        done = await self._broker.delays.cancel_id(call.path["topic"], call.path["delay_id"])
        return json_reply(
            NamedCanceled(
                topic=call.path["topic"],
                delay_id=call.path["delay_id"],
                messages=[self._shown(one) for one in done],
                count=len(done),
            )
        )

    async def reschedule_delayed(self, call: Call) -> Response:
        """Give a waiting message another time; one that has passed makes it due at once."""
        place = self._place(call)
        due_ms = await self._due_ms(call)
        return json_reply(self._shown(await self._broker.delays.reschedule(*place, due_ms=due_ms)))

    async def put_delayed(self, call: Call) -> Response:
        """Give a waiting message another time, the same as PATCH."""
        return await self.reschedule_delayed(call)

    async def reschedule_delayed_id(self, call: Call) -> Response:
        """Give the messages that wait under a name another time."""
        due_ms = await self._due_ms(call)
        find_topic(self._broker, call.path["topic"])
        name = call.path["delay_id"]
        done = await self._broker.delays.reschedule_id(call.path["topic"], name, due_ms=due_ms)
        return json_reply(self._named(call, done))

    async def put_delayed_id(self, call: Call) -> Response:
        """Give the messages that wait under a name another time, the same as PATCH."""
        return await self.reschedule_delayed_id(call)

    # Parts of all of them.

    def _place(self, call: Call) -> tuple[str, int, int]:
        partition = _number(call, "partition", "invalid partition ID")
        offset = _number(call, "offset", "invalid offset")
        find_topic(self._broker, call.path["topic"])
        return call.path["topic"], partition, offset

    async def _find(self, topic: str, partition: int, offset: int) -> schedule.DelayedMessage:
        return await self._broker.delays.find(topic, partition, offset)

    async def _found(self, call: Call) -> list[schedule.DelayedMessage]:
        find_topic(self._broker, call.path["topic"])
        return await self._broker.delays.find_id(call.path["topic"], call.path["delay_id"])

    async def _due_ms(self, call: Call) -> int:
        wanted = await call.body(_RESCHEDULE, bytes_max=self._broker.config.http_body_bytes_max)
        if wanted.delay is None and wanted.deliver_at is None:
            raise InvalidRequestError("delay or deliverAt is required")
        now_ms = self._broker.clock.due_ms()
        due_us = read_due_us(wanted.delay, wanted.deliver_at, now_ms=now_ms)
        return now_ms if due_us is None else -(-due_us // US_PER_MS)

    def _named(self, call: Call, found: list[schedule.DelayedMessage]) -> DelayedNamed:
        return DelayedNamed(
            topic=call.path["topic"],
            delay_id=call.path["delay_id"],
            messages=[self._shown(one) for one in found],
            count=len(found),
        )

    def _shown(self, one: schedule.DelayedMessage) -> DelayedMessage:
        left_ms = max(one.due_ms - self._broker.clock.due_ms(), 0)
        return DelayedMessage(
            topic=one.topic,
            partition=one.partition,
            offset=one.offset,
            deliver_at=format_time_us(one.due_ms * US_PER_MS),
            time_remaining=format_duration_ms(left_ms if one.state == schedule.PENDING else 0),
            state=one.state,
        )


def _number(call: Call, name: str, text: str) -> int:
    number = parse_int64(call.path[name])
    if number is None or number < 0:
        raise InvalidRequestError(text)
    return number
