"""Reading over HTTP: by offset, and by time."""

import asyncio
from http import HTTPStatus
from itertools import chain, islice
from typing import Final

from goqueue.base.errors import InvalidRequestError
from goqueue.base.ids import Offset
from goqueue.base.limits import HTTP_READ_MESSAGES_MAX
from goqueue.base.units import MiB
from goqueue.runtime.broker import Broker
from goqueue.runtime.page import Page, read_page
from goqueue.runtime.partition import Partition
from goqueue.runtime.sight import Lens
from goqueue.transport.http.call import Call, parse_int64
from goqueue.transport.http.drafts import BASE64, TEXT
from goqueue.transport.http.operation import Operation, Parameter
from goqueue.transport.http.reply import Response, json_reply
from goqueue.transport.http.stored import write_base64, write_text
from goqueue.transport.http.topics import find_topic
from goqueue.wire.http.messages import HiddenOffsets, MessagePage, MissingRange
from goqueue.wire.http.topics import OffsetList
from goqueue.wire.times import format_time_us, parse_moment_us

TAG: Final = "messages"
LIMIT_DEFAULT: Final = 100
READ_BYTES_MAX: Final = 4 * MiB
"""A page ends when its messages are this large; a single larger message comes alone."""

HIDE: Final = "hide"
SHOW: Final = "show"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_TIMESTAMP: Final = "a time (RFC 3339, or milliseconds since 1970)"


class ReadingRoutes:
    """Gives messages."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done to read."""
        errors = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND)
        return (
            Operation(
                method="GET",
                path="/topics/{topic}/partitions/{partition}/messages",
                answer=self.read_messages,
                tag=TAG,
                reply=MessagePage,
                errors=errors,
                parameters=(
                    Parameter(name="offset", kind="integer", default=0, text="Offset to begin at."),
                    Parameter(
                        name="timestamp",
                        text=f"Begin at the first message at or after {_TIMESTAMP},"
                        " instead of at an offset.",
                    ),
                    Parameter(
                        name="limit",
                        kind="integer",
                        default=LIMIT_DEFAULT,
                        text=f"Most messages to return; at most {HTTP_READ_MESSAGES_MAX}.",
                    ),
                    Parameter(name="encoding", text='"base64" returns every value as base64.'),
                    Parameter(
                        name="delayed",
                        default=HIDE,
                        text='"show" also returns messages that are not due yet or were cancelled.',
                    ),
                ),
            ),
            Operation(
                method="GET",
                path="/topics/{topic}/offsets",
                answer=self.find_offsets,
                tag=TAG,
                reply=OffsetList,
                errors=errors,
                parameters=(
                    Parameter(
                        name="timestamp",
                        is_required=True,
                        text=f'{_TIMESTAMP.capitalize()}, "earliest" or "latest".',
                    ),
                ),
            ),
        )

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
        lens = Lens(
            show_delayed=_shows_delayed(call.text("delayed")),
            is_committed=_is_committed(call.text("isolation")),
        )
        name = call.path["topic"]
        topic = find_topic(self._broker, name, text=f"topic not found: {ascii(name)[1:-1][:249]}")
        moment = call.text("timestamp")
        if moment is not None:
            if call.text("offset") is not None:
                raise InvalidRequestError("give offset or timestamp, not both")
            offset = _offset_at(topic.partition(number), _moment_us(moment))
        page = await read_page(
            topic,
            number,
            offset=Offset(offset),
            count_max=limit,
            bytes_max=READ_BYTES_MAX,
            lens=lens,
        )
        return json_reply(_page_of(page, is_base64=is_base64))

    async def find_offsets(self, call: Call) -> Response:
        """Return for each partition the first offset at or after a time.

        Where there is none, and for ``latest``, it is the offset the next message will get.
        """
        moment = call.text("timestamp")
        if moment is None:
            raise InvalidRequestError("timestamp is required")
        is_time = moment not in {EARLIEST, LATEST}
        moment_us = _moment_us(moment) if is_time else 0
        topic = find_topic(self._broker, call.path["topic"])
        offsets: dict[str, int] = {}
        for partition in topic.partitions:
            offset = partition.visible_offset
            if moment == EARLIEST:
                offset = partition.log.start_offset
            elif is_time:
                # Looking up a time reads the log: others get their turn in between.
                await asyncio.sleep(0)
                offset = _offset_at(partition, moment_us)
            offsets[str(partition.name.partition)] = offset
        timestamp = format_time_us(moment_us) if is_time else moment
        reply = OffsetList(topic=topic.record.name, timestamp=timestamp, offsets=offsets)
        return json_reply(reply)


def _offset_at(partition: Partition, moment_us: int) -> Offset:
    found = partition.find_time(moment_us)
    return partition.visible_offset if found is None else found


def _moment_us(text: str) -> int:
    try:
        return parse_moment_us(text)
    except ValueError as error:
        raise InvalidRequestError(f"invalid timestamp: {error}") from error


def _is_committed(text: str | None) -> bool:
    if text in (None, "", "read_committed"):
        return True
    if text == "read_uncommitted":
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
    write = write_base64 if is_base64 else write_text
    return MessagePage(
        messages=[write(message) for message in page.messages],
        next_offset=page.next_offset,
        earliest=page.start_offset,
        latest=page.end_offset - 1,
        gaps=gaps or None,
        hidden=_hidden(page),
    )
