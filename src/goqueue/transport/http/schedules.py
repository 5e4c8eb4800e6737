"""Recurring schedules over HTTP."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.errors import InvalidRequestError
from goqueue.base.grant import Grant
from goqueue.base.limits import SCHEDULES_PAGE_MAX
from goqueue.service.service import Service
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Operation, Parameter
from goqueue.transport.http.reply import Response, json_reply
from goqueue.wire.http.schedules import (
    ScheduleCreate,
    ScheduleDeleted,
    SchedulePage,
    ScheduleShown,
    read_schedule,
    show_detail,
    show_schedule,
)
from goqueue.wire.schedule_calls import ListSchedules, ScheduleCall, ScheduleDetail

TAG: Final = "schedules"
LIMIT_DEFAULT: Final = 100
_CREATE: Final = msgspec.json.Decoder(ScheduleCreate)

Verb = Callable[[Grant, ScheduleCall], Awaitable[ScheduleDetail]]


class ScheduleRoutes:
    """Answers about messages that are published again and again."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._schedules = service.schedules

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with schedules."""
        bad, absent, large = (
            HTTPStatus.BAD_REQUEST,
            HTTPStatus.NOT_FOUND,
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )
        every, one = "/schedules", "/schedules/{schedule}"
        limit = Parameter(
            name="limit", kind="integer", default=LIMIT_DEFAULT, least=1, most=SCHEDULES_PAGE_MAX,
            text=f"Most schedules to return; at most {SCHEDULES_PAGE_MAX}.",
        )  # fmt: skip
        skip = Parameter(
            name="skip", kind="integer", default=0, least=0, text="Schedules to leave out."
        )
        refusals = (
            bad, absent, HTTPStatus.CONFLICT, large, HTTPStatus.TOO_MANY_REQUESTS,
        )  # fmt: skip
        return (
            Operation(
                method="GET", path=every, answer=self.list_schedules, tag=TAG, reply=SchedulePage,
                deed=Deed.LIST_SCHEDULES, parameters=(limit, skip), errors=(bad,),
            ),
            Operation(
                method="POST", path=every, answer=self.create_schedule, tag=TAG,
                deed=Deed.CREATE_SCHEDULE, body=ScheduleCreate, reply=ScheduleShown,
                status=HTTPStatus.CREATED, errors=refusals,
            ),
            Operation(
                method="GET", path=one, answer=self.show_one_schedule, tag=TAG,
                deed=Deed.DESCRIBE_SCHEDULE, reply=ScheduleShown, errors=(absent,),
            ),
            Operation(
                method="DELETE", path=one, answer=self.delete_schedule, tag=TAG,
                deed=Deed.DELETE_SCHEDULE, reply=ScheduleDeleted, errors=(absent,),
            ),
            Operation(
                method="POST", path=one + "/pause", answer=self.pause_schedule, tag=TAG,
                deed=Deed.PAUSE_SCHEDULE, reply=ScheduleShown, errors=(absent,),
            ),
            Operation(
                method="POST", path=one + "/resume", answer=self.resume_schedule, tag=TAG,
                deed=Deed.RESUME_SCHEDULE, reply=ScheduleShown, errors=(absent,),
            ),
            Operation(
                method="POST", path=one + "/trigger", answer=self.trigger_schedule, tag=TAG,
                deed=Deed.TRIGGER_SCHEDULE, reply=ScheduleShown,
                errors=(absent, HTTPStatus.UNPROCESSABLE_ENTITY),
            ),
        )  # fmt: skip

    async def list_schedules(self, call: Call) -> Response:
        """Return recurring schedules by name, each with its next tick."""
        limit = min(call.number("limit", default=LIMIT_DEFAULT, least=1), SCHEDULES_PAGE_MAX)
        skip = call.number("skip", default=0)
        found = await self._schedules.list_all(call.grant, ListSchedules(skip, limit))
        shown = [show_schedule(entry) for entry in found.schedules]
        page = SchedulePage(
            schedules=shown, count=len(shown), limit=limit, skip=skip, total=found.total
        )
        return json_reply(page)

    async def create_schedule(self, call: Call) -> Response:
        """Publish a message again and again: by a cron line in a time zone, or at an interval.

        Each tick publishes one message, over restarts as well; it has the headers
        ``goqueue-schedule`` and ``goqueue-tick``. ``missed`` says what becomes of ticks that came
        while the broker was down: ``skip``, ``one`` (the latest) or ``all`` (the latest 1,000).
        """
        try:
            wanted = await call.body(_CREATE, bytes_max=self._service.config.http_body_bytes_max)
        except InvalidRequestError as error:
            if error.message.startswith("every: "):
                raise InvalidRequestError(
                    'every: must be text with a unit; write for example "30s"'
                ) from error
            raise
        made = await self._schedules.create(call.grant, read_schedule(wanted))
        return json_reply(show_detail(made), HTTPStatus.CREATED)

    async def show_one_schedule(self, call: Call) -> Response:
        """Return a schedule with its next five ticks and its message."""
        return await self._answer(call, self._schedules.describe)

    async def delete_schedule(self, call: Call) -> Response:
        """End a schedule; what it has published stays."""
        name = call.path["schedule"]
        await self._schedules.delete(call.grant, ScheduleCall(name))
        return json_reply(ScheduleDeleted(name=name))

    async def pause_schedule(self, call: Call) -> Response:
        """Publish no ticks until the schedule is resumed."""
        return await self._answer(call, self._schedules.pause)

    async def resume_schedule(self, call: Call) -> Response:
        """Publish the ticks after now; those while it was paused are not made up for."""
        return await self._answer(call, self._schedules.resume)

    async def trigger_schedule(self, call: Call) -> Response:
        """Publish the message of a schedule now, beside its ticks."""
        return await self._answer(call, self._schedules.trigger)

    @staticmethod
    async def _answer(call: Call, verb: Verb) -> Response:
        return json_reply(show_detail(await verb(call.grant, ScheduleCall(call.path["schedule"]))))
