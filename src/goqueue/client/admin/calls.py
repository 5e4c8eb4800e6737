"""What every family of administration calls stands on: a link, and how long an answer may take."""

from collections.abc import Sequence

from goqueue.client.aio.link import Link, call_once, retry
from goqueue.client.protocol.exchange import Answer, ReplyHeader, decode
from goqueue.wire.calls import Call
from goqueue.wire.packet import Buffer, Operation


class AsyncCalls:
    """Asks a broker from an event loop."""

    def __init__(self, link: Link, timeout_s: float) -> None:
        self._link = link
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._link!r}>"

    async def _call(
        self,
        operation: Operation,
        header: Call,
        kind: type[ReplyHeader],
        payload: Sequence[Buffer] = (),
    ) -> ReplyHeader:
        """Make a call that may safely be made twice."""
        return decode((await self._request(operation, header, payload)).header, kind)

    async def _once(
        self, operation: Operation, header: Call, kind: type[ReplyHeader]
    ) -> ReplyHeader:
        """Make a call that must not be repeated: whether a lost one was carried out is unknown."""
        return await call_once(self._link, operation, header, kind, timeout_s=self._timeout_s)

    async def _request(
        self, operation: Operation, header: Call, payload: Sequence[Buffer] = ()
    ) -> Answer:
        """Make a call that may safely be made twice, and return its reply as it came."""
        answer: Answer = await retry(
            lambda: self._link.request(operation, header, payload), timeout_s=self._timeout_s
        )
        return answer
