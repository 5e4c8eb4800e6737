"""Health, version, sizes and metrics: what probes and people look at first."""

from http import HTTPStatus
from typing import Final

from goqueue.base.deeds import Deed
from goqueue.service.health import METRICS_CONTENT_TYPE
from goqueue.service.service import Service
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Answer, Operation, Parameter
from goqueue.transport.http.reply import Response, json_reply, raw_reply
from goqueue.wire.http.errors import ErrorReply
from goqueue.wire.http.health import Alive, Health, Stats, Version

TAG: Final = "health"


class HealthRoutes:
    """Answers about the broker itself."""

    def __init__(self, service: Service) -> None:
        self._status = service.status
        self._stats = service.stats

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be asked."""
        verbose = Parameter(name="verbose", text="Show each check.", kind="boolean")
        down = (HTTPStatus.SERVICE_UNAVAILABLE,)
        return (
            _get("/health", self.health, Deed.PROBE_HEALTH, Alive),
            _get("/healthz", self.healthz, Deed.PROBE_HEALTH, Health, errors=down),
            _get(
                "/readyz",
                self.readyz,
                Deed.PROBE_HEALTH,
                Health,
                parameters=(verbose,),
                errors=down,
            ),
            _get("/livez", self.livez, Deed.PROBE_HEALTH, Health, errors=down),
            _get("/version", self.version, Deed.PROBE_HEALTH, Version),
            _get("/stats", self.stats, Deed.SUM_UP_TOPICS, Stats),
            _get("/metrics", self.metrics, Deed.READ_METRICS, METRICS_CONTENT_TYPE, errors=down),
        )

    async def health(self, call: Call) -> Response:
        """Tell that something answers here."""
        return json_reply(Alive(timestamp=self._status.now(call.grant)))

    async def healthz(self, call: Call) -> Response:
        """Return True if the broker serves."""
        return _verdict(self._status.alive(call.grant))

    async def livez(self, call: Call) -> Response:
        """Return True if the process is worth keeping, also while it waits for its cluster."""
        return _verdict(self._status.live(call.grant))

    async def readyz(self, call: Call) -> Response:
        """Return True if requests should be sent here; fails while nothing can be published."""
        return _verdict(self._status.ready(call.grant, is_verbose=call.flag("verbose")))

    async def version(self, call: Call) -> Response:
        """Tell what runs here."""
        return json_reply(self._status.version(call.grant))

    async def stats(self, call: Call) -> Response:
        """Tell how much is stored."""
        return json_reply(await self._stats.sizes(call.grant))

    async def metrics(self, call: Call) -> Response:
        """Return every metric in the text format of Prometheus, a second old at most."""
        text = await self._status.metrics(call.grant)
        return raw_reply(text, media_type=METRICS_CONTENT_TYPE)


def _verdict(health: Health) -> Response:
    is_down = health.status == "fail"
    return json_reply(health, HTTPStatus.SERVICE_UNAVAILABLE if is_down else HTTPStatus.OK)


def _get(
    path: str,
    answer: Answer,
    deed: Deed,
    reply: object,
    *,
    parameters: tuple[Parameter, ...] = (),
    errors: tuple[HTTPStatus, ...] = (),
) -> Operation:
    failure = ErrorReply if isinstance(reply, str) else reply
    return Operation(
        method="GET",
        path=path,
        answer=answer,
        deed=deed,
        tag=TAG,
        reply=reply,
        parameters=parameters,
        errors=errors,
        failure=failure,
        is_versioned=False,
    )
