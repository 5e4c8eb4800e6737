"""Dead letters over HTTP: list, peek, redrive, purge."""

from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.errors import InvalidRequestError
from goqueue.base.limits import HTTP_READ_MESSAGES_MAX, REDRIVES_DEFAULT
from goqueue.base.units import MiB
from goqueue.service.service import Service
from goqueue.transport.http.call import Call, parse_int64
from goqueue.transport.http.operation import Operation, Parameter
from goqueue.transport.http.reply import Response, json_reply
from goqueue.wire.calls import Nothing, TopicCall
from goqueue.wire.dlq_calls import PeekLetters, RedriveCall, StartRedrive
from goqueue.wire.http.dlq import (
    DeadLetterPage,
    DlqList,
    DlqSummary,
    FilterFields,
    RedriveHistory,
    RedriveJob,
    RedriveOrder,
    RedriveReply,
)
from goqueue.wire.http.letters import read_filter, write_job, write_letter
from goqueue.wire.http.messages import BASE64, TEXT
from goqueue.wire.times import format_time_us

TAG: Final = "dlq"
LIMIT_DEFAULT: Final = 100
PEEK_BYTES_MAX: Final = 4 * MiB
"""A page ends when its messages are this large; a single larger message comes alone."""
BY_CHARACTERS_MAX: Final = 200

_ORDER: Final = msgspec.json.Decoder(RedriveOrder)
_FILTERS: Final = (
    Parameter(name="reason", text="Why it died, such as REJECTED or MAX_RETRIES_EXCEEDED."),
    Parameter(name="group", text="Group in whose hands it died."),
    Parameter(name="key", text="Key of the message."),
    Parameter(name="key_prefix", text="Beginning of its key."),
    Parameter(
        name="key_encoding", choices=(TEXT, BASE64), text="`base64` for keys that are not text."
    ),
    Parameter(name="header", text="A header it has: a name, or name=value."),
    Parameter(name="since", text="It died at or after (RFC 3339, or milliseconds since 1970)."),
    Parameter(name="until", text="It died before."),
    Parameter(name="text", text="Text in one of its errors, in capitals or not."),
)


class DlqRoutes:
    """Shows dead letters, sends them back and throws them away."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._dlq = service.dlq

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with dead letters."""
        bad, absent, taken = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
        large, accepted = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.ACCEPTED
        one, jobs = "/dlq/{topic}", "/dlq/{topic}/redrives"
        return (
            Operation(
                method="GET", path="/dlq", answer=self.list_dlqs, tag=TAG,
                deed=Deed.LIST_DLQ, reply=DlqList,
            ),
            Operation(
                method="GET", path=one, answer=self.peek_dlq, tag=TAG, reply=DeadLetterPage,
                deed=Deed.PEEK_DLQ, errors=(bad, absent), parameters=_peek_parameters(),
            ),
            Operation(
                method="POST", path=f"{one}/redrive", answer=self.start_redrive, tag=TAG,
                deed=Deed.START_REDRIVE, body=RedriveOrder, reply=RedriveReply, status=accepted,
                errors=(bad, absent, taken, large),
            ),
            Operation(
                method="GET", path=jobs, answer=self.list_redrives, tag=TAG,
                deed=Deed.LIST_REDRIVES, reply=RedriveHistory, errors=(absent,),
            ),
            Operation(
                method="GET", path=f"{jobs}/{{id}}", answer=self.show_redrive, tag=TAG,
                deed=Deed.DESCRIBE_REDRIVE, reply=RedriveJob, errors=(bad, absent),
            ),
            Operation(
                method="DELETE", path=f"{jobs}/{{id}}", answer=self.cancel_redrive, tag=TAG,
                deed=Deed.CANCEL_REDRIVE, reply=RedriveJob, errors=(bad, absent),
            ),
            Operation(
                method="DELETE", path=f"{one}/messages", answer=self.purge_dlq, tag=TAG,
                deed=Deed.PURGE_DLQ,
                reply=RedriveReply, status=accepted, errors=(bad, absent, taken),
                parameters=(
                    *_FILTERS,
                    Parameter(name="dry_run", kind="boolean", text="Only count them."),
                    Parameter(name="by", text="Who asks, for the history."),
                ),
            ),
        )  # fmt: skip

    async def list_dlqs(self, call: Call) -> Response:
        """Return every topic of dead letters, how many there are and since when."""
        listed = await self._dlq.list_all(call.grant, Nothing())
        summaries = [
            DlqSummary(
                topic=one.topic,
                source=one.source,
                depth=one.depth,
                oldest=None if one.oldest_us < 0 else format_time_us(one.oldest_us),
                redrive=one.redrive or None,
            )
            for one in listed.topics
        ]
        return json_reply(DlqList(dlqs=summaries))

    async def peek_dlq(self, call: Call) -> Response:
        """Return dead letters without taking them.

        ``topic`` is the source or the topic of its dead letters. A topic that has none yet gives
        an empty page. ``offset`` needs a ``partition``; ``skip`` counts what is meant.
        """
        limit = min(call.number("limit", default=LIMIT_DEFAULT, least=1), HTTP_READ_MESSAGES_MAX)
        skip = call.number("skip", default=0)
        partition = call.number("partition", default=-1) if call.text("partition") else None
        is_base64 = _is_base64(call.text("encoding"))
        peek = PeekLetters(
            call.path["topic"],
            read_filter(_filter_fields(call)),
            limit=limit,
            skip=skip,
            partition=partition,
            offset=call.number("offset", default=0),
            bytes_max=PEEK_BYTES_MAX,
        )
        topic, source, page = await self._dlq.read(call.grant, peek)
        letters = [write_letter(*one, source=source, is_base64=is_base64) for one in page.letters]
        return json_reply(
            DeadLetterPage(
                topic=topic,
                source=source,
                depth=page.depth,
                messages=letters,
                count=len(letters),
                limit=limit,
                skip=skip,
                more=page.is_cut,
            )
        )

    async def start_redrive(self, call: Call) -> Response:
        """Send dead letters back to their source, or to another topic.

        The job works on what is there now and goes on after a restart; one at a time for each
        topic. With ``dry_run`` the answer (with status 200) is what it would do. For a topic
        without dead letters the answer is a job that is done and has the id 0.
        """
        wanted = await call.body(_ORDER, bytes_max=self._service.config.http_body_bytes_max)
        most = wanted.max_redrives
        order = StartRedrive(
            call.path["topic"],
            target=wanted.target or "",
            filter=read_filter(wanted.filter or FilterFields()),
            rate=wanted.rate or 0,
            max_redrives=REDRIVES_DEFAULT if most is None else most,
            is_dry_run=bool(wanted.dry_run),
            by=_by(wanted.by),
        )
        return await self._start(call, order)

    async def purge_dlq(self, call: Call) -> Response:
        """Throw dead letters away, those that are there now.

        The job goes on after a restart. With ``dry_run`` the answer (with status 200) is how many.
        """
        order = StartRedrive(
            call.path["topic"],
            kind="purge",
            filter=read_filter(_filter_fields(call)),
            is_dry_run=call.flag("dry_run"),
            by=_by(call.text("by")),
        )
        return await self._start(call, order)

    async def _start(self, call: Call, order: StartRedrive) -> Response:
        topic, source, job, trial = await self._dlq.begin(call.grant, order)
        if job is not None:
            reply = RedriveReply(dry_run=False, job=write_job(job, topic=topic))
            return json_reply(reply, HTTPStatus.ACCEPTED)
        assert trial is not None, "a job or a trial"
        return json_reply(
            RedriveReply(
                dry_run=True,
                matched=trial.matched,
                unmatched=trial.unmatched,
                skipped=trial.skipped,
                complete=not trial.is_cut,
                sample=[write_letter(*letter, source=source) for letter in trial.sample],
            )
        )

    async def list_redrives(self, call: Call) -> Response:
        """Return the redrives and purges of a topic, the latest first."""
        name = call.path["topic"]
        found = await self._dlq.history(call.grant, TopicCall(name))
        jobs = [write_job(job, topic=name) for job in found.jobs]
        return json_reply(RedriveHistory(redrives=jobs))

    async def show_redrive(self, call: Call) -> Response:
        """Return how far a redrive or purge is."""
        name = call.path["topic"]
        job = await self._dlq.describe(call.grant, RedriveCall(name, _id(call)))
        return json_reply(write_job(job, topic=name))

    async def cancel_redrive(self, call: Call) -> Response:
        """End a redrive or purge after the batch under way; one that is over stays as it ended."""
        name = call.path["topic"]
        job = await self._dlq.cancel(call.grant, RedriveCall(name, _id(call)))
        return json_reply(write_job(job, topic=name))


def _peek_parameters() -> tuple[Parameter, ...]:
    most = f"Most dead letters to return; at most {HTTP_READ_MESSAGES_MAX}."
    return (
        Parameter(
            name="limit",
            kind="integer",
            default=LIMIT_DEFAULT,
            least=1,
            most=HTTP_READ_MESSAGES_MAX,
            text=most,
        ),
        Parameter(name="skip", kind="integer", default=0, least=0, text="Leave out so many."),
        Parameter(name="partition", kind="integer", least=0, text="Only this partition."),
        Parameter(
            name="offset", kind="integer", default=0, least=0, text="Begin at this offset of it."
        ),
        *_FILTERS,
        Parameter(
            name="encoding", choices=(TEXT, BASE64), text="`base64` returns every value as base64."
        ),
    )


def _filter_fields(call: Call) -> FilterFields:
    return FilterFields(**{parameter.name: call.text(parameter.name) for parameter in _FILTERS})


def _id(call: Call) -> int:
    number = parse_int64(call.path["id"])
    if number is None:
        raise InvalidRequestError("invalid redrive ID")
    return number


def _by(text: str | None) -> str:
    if text is not None and len(text) > BY_CHARACTERS_MAX:
        raise InvalidRequestError(f"by: longer than {BY_CHARACTERS_MAX} characters")
    return text or ""


def _is_base64(encoding: str | None) -> bool:
    if encoding not in {None, BASE64, TEXT}:
        raise InvalidRequestError('encoding: must be "base64" or "text"')
    return encoding == BASE64
