"""Reading over HTTP: by offset, and by time."""

from http import HTTPStatus
from itertools import chain, islice
from typing import Final

from goqueue.base.deeds import Deed
from goqueue.base.errors import InvalidRequestError
from goqueue.base.limits import HTTP_READ_MESSAGES_MAX
from goqueue.service.reading import PAGE_BYTES_MAX, PIECE_BYTES, Page
from goqueue.service.service import Service
from goqueue.transport.http.call import Call, parse_int64
from goqueue.transport.http.operation import Operation, Parameter
from goqueue.transport.http.reply import NO_TOPIC, Response, json_reply
from goqueue.wire.calls import Fetch, FetchPart, Offsets
from goqueue.wire.http.messages import BASE64, TEXT, HiddenOffsets, MessagePage, MissingRange
from goqueue.wire.http.stored import write_base64, write_texts
from goqueue.wire.http.topics import OffsetList
from goqueue.wire.times import format_time_us, parse_moment_us

TAG: Final = "messages"
LIMIT_DEFAULT: Final = 100

COMMITTED: Final = "read_committed"
UNCOMMITTED: Final = "read_uncommitted"
HIDE: Final = "hide"
SHOW: Final = "show"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_TIMESTAMP: Final = "a time (RFC 3339, or milliseconds since 1970)"
_WHEN: Final = Parameter(
    name="timestamp", is_required=True, text=f"{_TIMESTAMP.capitalize()}, `earliest` or `latest`."
)
_PARAMETERS: Final = (
    Parameter(name="offset", kind="integer", default=0, least=0, text="Offset to begin at."),
    Parameter(
        name="timestamp",
        text=f"Begin at the first message at or after {_TIMESTAMP}, instead of at an offset.",
    ),
    Parameter(
        name="limit", kind="integer", default=LIMIT_DEFAULT, least=1, most=HTTP_READ_MESSAGES_MAX,
        text=f"Most messages to return; at most {HTTP_READ_MESSAGES_MAX}.",
    ),
    Parameter(
        name="encoding", choices=(TEXT, BASE64), text="`base64` returns every value as base64."
    ),
    Parameter(
        name="delayed", default=HIDE, choices=(HIDE, SHOW),
        text="`show` also returns messages that are not due yet or were cancelled.",
    ),
    Parameter(
        name="isolation", default=COMMITTED, choices=(COMMITTED, UNCOMMITTED),
        text="Whether messages of transactions are left out that are open or were aborted.",
    ),
)  # fmt: skip


class ReadingRoutes:
    """Gives messages."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done to read."""
        errors = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND)
        return (
            Operation(
                method="GET", path="/topics/{topic}/partitions/{partition}/messages",
                answer=self.read_messages, deed=Deed.FETCH, tag=TAG, reply=MessagePage,
                errors=errors, parameters=_PARAMETERS,
            ),
            Operation(
                method="GET", path="/topics/{topic}/offsets", answer=self.find_offsets, tag=TAG,
                deed=Deed.FIND_OFFSETS, reply=OffsetList, errors=errors, absent=NO_TOPIC,
                parameters=(_WHEN,),
            ),
        )  # fmt: skip

    async def read_messages(self, call: Call) -> Response:
        """Read a partition from an offset or a time on, in the order of the offsets.

        ``next_offset`` is where to go on; behind the end it is the offset asked for. Reading from
        an offset that retention has deleted begins at the earliest that is left: ``gaps`` then
        names what is missing, with the reason ``expired``. Messages whose checksum fails on disk
        are left out and named there as ``unreadable``. Messages that are not due yet, or were
        cancelled, are left out and named in ``hidden``: reading on does not bring them back.
        """
        number = parse_int64(call.path["partition"])
        if number is None:
            raise InvalidRequestError("invalid partition ID")
        offset = call.number("offset", default=0)
        limit = min(call.number("limit", default=LIMIT_DEFAULT, least=1), HTTP_READ_MESSAGES_MAX)
        is_base64 = _is_base64(call.text("encoding"))
        moment = call.text("timestamp")
        if moment is not None and call.text("offset") is not None:
            raise InvalidRequestError("give offset or timestamp, not both")
        page = await self._service.reading.page(
            call.grant,
            Fetch(
                call.path["topic"],
                bytes_max=PAGE_BYTES_MAX,
                wait_ms=0,
                parts=[FetchPart(number, offset)],
                show_delayed=_shows_delayed(call.text("delayed")),
                is_committed=_is_committed(call.text("isolation")),
            ),
            count_max=limit,
            from_us=None if moment is None else _moment_us(moment),
            turns=call.turns,
        )
        await call.turns.take_for(size=page.size, messages=len(page.messages))
        reply = _page_of(page, is_base64=is_base64)
        if page.size > PIECE_BYTES:
            await call.turns.take()
        return json_reply(reply)

    async def find_offsets(self, call: Call) -> Response:
        """Return for each partition the first offset at or after a time.

        Where there is none, and for ``latest``, it is the offset the next message will get.
        """
        moment = call.text("timestamp")
        if moment is None:
            raise InvalidRequestError("timestamp is required")
        is_time = moment not in {EARLIEST, LATEST}
        moment_us = _moment_us(moment) if is_time else 0
        name = call.path["topic"]
        wanted = Offsets(name, moment_us if is_time else None, is_committed=False)
        found = await self._service.topics.offsets(call.grant, wanted)
        offsets: dict[str, int] = {}
        for one in found.parts:
            offset = one.start_offset if moment == EARLIEST else one.end_offset
            offsets[str(one.partition)] = one.offset if one.offset >= 0 else offset
        timestamp = format_time_us(moment_us) if is_time else moment
        return json_reply(OffsetList(topic=name, timestamp=timestamp, offsets=offsets))


def _moment_us(text: str) -> int:
    try:
        return parse_moment_us(text)
    except ValueError as error:
        raise InvalidRequestError(f"invalid timestamp: {error}") from error


def _is_committed(text: str | None) -> bool:
    if text in (None, "", COMMITTED):
        return True
    if text == UNCOMMITTED:
        return False
    raise InvalidRequestError("isolation: must be read_committed or read_uncommitted")


def _shows_delayed(choice: str | None) -> bool:
    if choice not in {None, HIDE, SHOW}:
        raise InvalidRequestError('delayed: must be "hide" or "show"')
    return choice == SHOW


def _hidden(page: Page) -> HiddenOffsets | None:
    if not page.hidden:
        return None
    offsets = chain.from_iterable(range(*gap) for gap in page.hidden)
    return HiddenOffsets(
        count=sum(end - start for start, end in page.hidden),
        offsets=list(islice(offsets, HTTP_READ_MESSAGES_MAX)),
    )


def _is_base64(encoding: str | None) -> bool:
    if encoding not in {None, BASE64, TEXT}:
        raise InvalidRequestError('encoding: must be "base64" or "text"')
    return encoding == BASE64


def _page_of(page: Page, *, is_base64: bool) -> MessagePage:
    gaps = [
        MissingRange(start_offset=gap.start_offset, end_offset=gap.end_offset, reason="unreadable")
        for gap in page.unreadable
    ]
    if page.expired is not None:
        start, end = page.expired
        gaps.insert(0, MissingRange(start_offset=start, end_offset=end, reason="expired"))
    messages = page.messages
    return MessagePage(
        messages=[write_base64(one) for one in messages] if is_base64 else write_texts(messages),
        next_offset=page.next_offset,
        earliest=page.start_offset,
        latest=page.end_offset - 1,
        gaps=gaps or None,
        hidden=_hidden(page),
    )
