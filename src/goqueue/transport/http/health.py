"""Health, version, sizes and metrics: what probes and people look at first."""

import platform
import time
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from goqueue.base.errors import GoQueueError
from goqueue.base.limits import FRAME_BYTES_MAX
from goqueue.base.units import SECOND_MS, format_duration_ms, format_size_bytes
from goqueue.observability.checkout import checkout_commit
from goqueue.observability.metrics import CONTENT_TYPE
from goqueue.runtime.broker import Broker
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Answer, Operation, Parameter
from goqueue.transport.http.reply import Response, json_reply, raw_reply, refusal
from goqueue.wire.http.errors import ErrorReply
from goqueue.wire.http.health import (
    Alive,
    BrokerSummary,
    Check,
    CheckStatus,
    Health,
    Stats,
    TopicStats,
    Version,
)
from goqueue.wire.times import format_time_us

TAG: Final = "health"
UNKNOWN: Final = "unknown"
_Finding = tuple[CheckStatus, str | None]


class HealthRoutes:
    """Answers about the broker itself."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be asked."""
        verbose = Parameter(name="verbose", text="Show each check.", kind="boolean")
        down = (HTTPStatus.SERVICE_UNAVAILABLE,)
        return (
            _get("/health", self.health, Alive),
            _get("/healthz", self.healthz, Health, errors=down),
            _get("/readyz", self.readyz, Health, parameters=(verbose,), errors=down),
            _get("/livez", self.livez, Health, errors=down),
            _get("/version", self.version, Version),
            _get("/stats", self.stats, Stats),
            _get("/metrics", self.metrics, CONTENT_TYPE, errors=down),
        )

    async def health(self, _call: Call) -> Response:
        """Tell that something answers here."""
        return json_reply(Alive(timestamp=self._now()))

    async def healthz(self, _call: Call) -> Response:
        """Tell whether the broker serves."""
        return self._verdict()

    async def livez(self, _call: Call) -> Response:
        """Tell whether the process is worth keeping."""
        return self._verdict()

    async def readyz(self, call: Call) -> Response:
        """Tell whether requests should be sent here; fails while nothing can be published."""
        checks = {"broker": _timed(self._check_broker), "storage": _timed(self._check_storage)}
        statuses = {check.status for check in checks.values()}
        status: CheckStatus = "pass"
        if statuses != {"pass"}:
            status = "fail" if "fail" in statuses else "warn"
        messages = "; ".join(check.message for check in checks.values() if check.message)
        is_verbose = call.flag("verbose")
        health = Health(
            status=status,
            timestamp=self._now(),
            uptime=self._uptime(),
            message=messages or None,
            checks=checks if is_verbose else None,
            broker=self._summary() if is_verbose else None,
        )
        return json_reply(health, _status_of(status))

    async def version(self, _call: Call) -> Response:
        """Tell what runs here."""
        return json_reply(
            Version(
                version=package_version(),
                git_commit=checkout_commit() or UNKNOWN,
                build_time=UNKNOWN,
                python_version=platform.python_version(),
            )
        )

    async def stats(self, _call: Call) -> Response:
        """Tell how much is stored."""
        topics = {
            name: TopicStats(
                name=name,
                partitions=len(topic.partitions),
                total_messages=sum(
                    part.visible_offset - part.log.start_offset for part in topic.partitions
                ),
                total_size=sum(part.log.size_bytes for part in topic.partitions),
            )
            for name, topic in self._broker.topics.items()
        }
        stats = Stats(
            node_id=self._broker.config.node_id,
            uptime=self._uptime(),
            topics=len(topics),
            total_size_bytes=sum(topic.total_size for topic in topics.values()),
            topic_stats={str(name): topic for name, topic in topics.items()},
        )
        return json_reply(stats)

    async def metrics(self, _call: Call) -> Response:
        """Return every metric in the text format of Prometheus."""
        if not self._broker.is_ready:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            return refusal(status, "the broker is stopping", code="shutting_down")
        await self._broker.consume.look_at_ages()
        return raw_reply(self._broker.metrics.render(), media_type=CONTENT_TYPE)

    def _verdict(self) -> Response:
        status, message = self._check_broker()
        health = Health(
            status=status, timestamp=self._now(), uptime=self._uptime(), message=message
        )
        return json_reply(health, _status_of(status))

    def _check_broker(self) -> _Finding:
        return ("pass", None) if self._broker.is_ready else ("fail", "the broker does not serve")

    def _check_storage(self) -> _Finding:
        try:
            free_bytes = self._broker.disk.free_bytes()
        except (GoQueueError, OSError) as error:
            return "fail", f"the disk does not answer: {error}"
        partitions = [part for topic in self._broker.topics.values() for part in topic.partitions]
        failed = [str(part.name) for part in partitions if part.log.failure is not None]
        if failed and len(failed) == len(partitions):
            return "fail", "no partition takes writes until restart"
        if failed:
            return "warn", f"{len(failed)} partitions take no writes until restart: {failed[0]} …"
        if free_bytes < FRAME_BYTES_MAX:
            return "warn", f"the disk is full: {format_size_bytes(free_bytes)} are free"
        return "pass", None

    def _summary(self) -> BrokerSummary:
        topics = self._broker.topics.values()
        return BrokerSummary(
            node_id=self._broker.config.node_id,
            topic_count=len(topics),
            total_size=sum(part.log.size_bytes for topic in topics for part in topic.partitions),
        )

    def _now(self) -> str:
        return format_time_us(self._broker.clock.now_us())

    def _uptime(self) -> str:
        return format_duration_ms(self._broker.clock.monotonic_ms() - self._broker.started_ms)


@cache
def package_version() -> str:
    """Return the version of this installation."""
    try:
        return version("goqueue")
    except PackageNotFoundError:
        return UNKNOWN


def _timed(check: Callable[[], _Finding]) -> Check:
    started = time.perf_counter()
    status, message = check()
    latency_ms = (time.perf_counter() - started) * SECOND_MS
    return Check(status=status, message=message, latency=f"{latency_ms:.3f}ms")


def _status_of(status: CheckStatus) -> HTTPStatus:
    return HTTPStatus.SERVICE_UNAVAILABLE if status == "fail" else HTTPStatus.OK


def _get(
    path: str,
    answer: Answer,
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
        tag=TAG,
        reply=reply,
        parameters=parameters,
        errors=errors,
        failure=failure,
        is_versioned=False,
    )
