"""Delayed messages over HTTP: listed, looked at, cancelled, given another time."""

from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.errors import InvalidRequestError, TopicNotFoundError
from goqueue.base.limits import DELAYED_PAGE_MAX
from goqueue.base.units import format_duration_ms
from goqueue.service.service import Service
from goqueue.transport.http.call import Call, parse_int64
from goqueue.transport.http.operation import Operation, Parameter
from goqueue.transport.http.reply import Response, json_reply
from goqueue.wire.delayed_calls import DelayedCall, DelayedList, ListDelayed, RescheduleDelayed
from goqueue.wire.http.delayed import (
    DelayedCanceled,
    DelayedMessage,
    DelayedNamed,
    DelayedPage,
    NamedCanceled,
    Reschedule,
    preview_text,
    read_delay_ms,
    read_deliver_at_us,
)
from goqueue.wire.times import format_time_us

TAG: Final = "delayed"
LIMIT_DEFAULT: Final = 100
_RESCHEDULE: Final = msgspec.json.Decoder(Reschedule)


class DelayedRoutes:
    """Answers about messages that wait for their time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._delayed = service.delayed

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with delayed messages."""
        bad, absent = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND
        errors = (bad, absent)
        every, named = "/topics/{topic}/delayed", "/topics/{topic}/delayed/id/{delay_id}"
        one, placed = every + "/{offset}", every + "/{partition}/{offset}"
        limit = Parameter(
            name="limit", kind="integer", default=LIMIT_DEFAULT, least=1, most=DELAYED_PAGE_MAX,
            text=f"Most messages to return; at most {DELAYED_PAGE_MAX}.",
        )  # fmt: skip
        skip = Parameter(
            name="skip", kind="integer", default=0, least=0, text="Messages to leave out."
        )
        partition = Parameter(
            name="partition", kind="integer", default=0, least=0, text="Where the offset is."
        )
        return (
            Operation(
                method="GET", path=every, answer=self.list_delayed, tag=TAG, reply=DelayedPage,
                deed=Deed.LIST_DELAYED, parameters=(limit, skip), errors=(bad,),
            ),
            Operation(
                method="GET", path=named, answer=self.find_delayed_id, tag=TAG,
                deed=Deed.FIND_DELAYED, reply=DelayedNamed, errors=errors,
            ),
            Operation(
                method="DELETE", path=named, answer=self.cancel_delayed_id, tag=TAG,
                deed=Deed.CANCEL_DELAYED, reply=NamedCanceled, errors=errors,
            ),
            Operation(
                method="PATCH", path=named, answer=self.reschedule_delayed_id, tag=TAG,
                deed=Deed.RESCHEDULE_DELAYED, body=Reschedule, reply=DelayedNamed, errors=errors,
            ),
            Operation(
                method="PUT", path=named, answer=self.put_delayed_id, tag=TAG,
                deed=Deed.RESCHEDULE_DELAYED, body=Reschedule, reply=DelayedNamed, errors=errors,
            ),
            Operation(
                method="GET", path=one, answer=self.find_delayed, tag=TAG, reply=DelayedMessage,
                deed=Deed.FIND_DELAYED, parameters=(partition,), errors=errors,
            ),
            Operation(
                method="GET", path=placed, answer=self.find_delayed_at, tag=TAG,
                deed=Deed.FIND_DELAYED, reply=DelayedMessage, errors=errors,
            ),
            Operation(
                method="DELETE", path=placed, answer=self.cancel_delayed, tag=TAG,
                deed=Deed.CANCEL_DELAYED, reply=DelayedCanceled, errors=errors,
            ),
            Operation(
                method="PATCH", path=placed, answer=self.reschedule_delayed, tag=TAG,
                deed=Deed.RESCHEDULE_DELAYED, body=Reschedule, reply=DelayedMessage, errors=errors,
            ),
            Operation(
                method="PUT", path=placed, answer=self.put_delayed, tag=TAG,
                deed=Deed.RESCHEDULE_DELAYED, body=Reschedule, reply=DelayedMessage, errors=errors,
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
        try:
            found = await self._delayed.list_all(call.grant, ListDelayed(name, skip, limit))
        except TopicNotFoundError:
            found = DelayedList([])
        page = DelayedPage(
            topic=name, messages=_shown(found), count=len(found.messages), limit=limit, skip=skip,
            pending=found.pending,
        )  # fmt: skip
        return json_reply(page)

    async def find_delayed(self, call: Call) -> Response:
        """Return the delayed message at an offset, whatever became of it.

        Where the offset waits in several partitions, ``partition`` says which one is meant.
        """
        name, offset = call.path["topic"], _number(call, "offset", "invalid offset")
        if call.text("partition") is None:
            found = await self._delayed.find_offset(call.grant, name, offset)
        else:
            place = DelayedCall(name, call.number("partition", default=0), offset)
            found = await self._delayed.find(call.grant, place)
        return json_reply(_shown(found)[0])

    async def find_delayed_at(self, call: Call) -> Response:
        """Return the delayed message at a place, whatever became of it."""
        found = await self._delayed.find(call.grant, DelayedCall(*_place(call)))
        return json_reply(_shown(found)[0])

    async def find_delayed_id(self, call: Call) -> Response:
        """Return the messages that wait under a name."""
        return json_reply(_named(call, await self._delayed.find(call.grant, _name(call))))

    # Changing.

    async def cancel_delayed(self, call: Call) -> Response:
        """Have a waiting message never delivered; the answer comes when that is certain."""
        done = await self._delayed.cancel(call.grant, DelayedCall(*_place(call)))
        (one,) = done.messages
        reply = DelayedCanceled(topic=one.topic, partition=one.partition, offset=one.offset)
        return json_reply(reply)

    async def cancel_delayed_id(self, call: Call) -> Response:
        """Have the messages that wait under a name never delivered."""
        done = await self._delayed.cancel(call.grant, _name(call))
        return json_reply(
            NamedCanceled(
                topic=call.path["topic"],
                delay_id=call.path["delay_id"],
                messages=_shown(done),
                count=len(done.messages),
            )
        )

    async def reschedule_delayed(self, call: Call) -> Response:
        """Give a waiting message another time; one that has passed makes it due at once."""
        wanted = RescheduleDelayed(*_place(call), None, *await self._due(call))
        done = await self._delayed.reschedule(call.grant, wanted)
        return json_reply(_shown(done)[0])

    async def put_delayed(self, call: Call) -> Response:
        """Give a waiting message another time, the same as PATCH."""
        return await self.reschedule_delayed(call)

    async def reschedule_delayed_id(self, call: Call) -> Response:
        """Give the messages that wait under a name another time."""
        due = await self._due(call)
        wanted = RescheduleDelayed(call.path["topic"], 0, 0, call.path["delay_id"], *due)
        return json_reply(_named(call, await self._delayed.reschedule(call.grant, wanted)))

    async def put_delayed_id(self, call: Call) -> Response:
        """Give the messages that wait under a name another time, the same as PATCH."""
        return await self.reschedule_delayed_id(call)

    async def _due(self, call: Call) -> tuple[int | None, int | None]:
        """Return the time, or else the delay, that a body asks for."""
        wanted = await call.body(_RESCHEDULE, bytes_max=self._service.config.http_body_bytes_max)
        if wanted.delay:
            return None, read_delay_ms(wanted.delay)
        if wanted.deliver_at:
            return read_deliver_at_us(wanted.deliver_at), None
        if wanted.delay is None and wanted.deliver_at is None:
            raise InvalidRequestError("delay or deliverAt is required")
        return None, 0


def _place(call: Call) -> tuple[str, int, int]:
    partition = _number(call, "partition", "invalid partition ID")
    return call.path["topic"], partition, _number(call, "offset", "invalid offset")


def _name(call: Call) -> DelayedCall:
    return DelayedCall(call.path["topic"], delay_id=call.path["delay_id"])


def _named(call: Call, found: DelayedList) -> DelayedNamed:
    return DelayedNamed(
        topic=call.path["topic"],
        delay_id=call.path["delay_id"],
        messages=_shown(found),
        count=len(found.messages),
    )


def _shown(found: DelayedList) -> list[DelayedMessage]:
    return [
        DelayedMessage(
            topic=one.topic,
            partition=one.partition,
            offset=one.offset,
            deliver_at=format_time_us(one.deliver_at_us),
            time_remaining=format_duration_ms(one.remaining_ms),
            state=one.state,
            delay_id=one.delay_id,
            key=None if one.key is None else preview_text(one.key),
            preview=None if one.value is None else preview_text(one.value),
            value_bytes=one.value_bytes if one.value_bytes >= 0 else None,
        )
        for one in found.messages
    ]


def _number(call: Call, name: str, text: str) -> int:
    number = parse_int64(call.path[name])
    if number is None or number < 0:
        raise InvalidRequestError(text)
    return number
