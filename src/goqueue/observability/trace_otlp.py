"""Spans to a collector by OTLP, over HTTP or gRPC, with the exporters of the OpenTelemetry SDK.

The SDK takes a tenth of a second to load, so it is loaded only by those who export with it, in the
thread of the exporter.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from goqueue.core.tracing.kinds import DELIVERIES, RECEIVED
from goqueue.core.tracing.note import TraceSpan

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

TIMEOUT_SECONDS: Final = 5
"""Longest time one export may take, with all its retries."""
SERVICE: Final = "goqueue"
SYSTEM: Final = "goqueue"


class ExportRefusedError(Exception):
    """The collector did not take the spans."""


class OtlpSink:
    """Turns spans into those of OpenTelemetry and hands them to an exporter of its SDK."""

    def __init__(self, make: "Callable[[], SpanExporter]", *, node_id: str) -> None:
        self._make = make
        self._node_id = node_id
        self._exporter: SpanExporter | None = None
        self._resource: Resource | None = None

    def write(self, spans: Sequence[TraceSpan]) -> None:
        """Export spans, or raise."""
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - see above
        from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415

        if self._exporter is None:
            _silence()
            self._exporter = self._make()
            named = {"service.name": SERVICE, "service.instance.id": self._node_id}
            self._resource = Resource.create(named)
        result = self._exporter.export([readable(span, self._resource) for span in spans])
        if result is not SpanExportResult.SUCCESS:
            raise ExportRefusedError("the collector did not take the spans")

    def close(self) -> None:
        """End the exporter."""
        if self._exporter is not None:
            self._exporter.shutdown()


def _silence() -> None:
    """Keep the SDK's complaints out of our log: what fails is counted and told once, by us."""
    library = logging.getLogger("opentelemetry")
    library.addHandler(logging.NullHandler())
    library.propagate = False


def http_sink(endpoint: str, *, node_id: str) -> OtlpSink:
    """Return a sink for a URL such as http://localhost:4318/v1/traces."""

    def make() -> "SpanExporter":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )

        return OTLPSpanExporter(endpoint=endpoint, timeout=TIMEOUT_SECONDS)

    return OtlpSink(make, node_id=node_id)


def grpc_sink(endpoint: str, *, node_id: str) -> OtlpSink:
    """Return a sink for an address such as localhost:4317; ``https://`` before it means TLS."""

    def make() -> "SpanExporter":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )

        is_plain = not endpoint.startswith("https://")
        return OTLPSpanExporter(endpoint=endpoint, insecure=is_plain, timeout=TIMEOUT_SECONDS)

    return OtlpSink(make, node_id=node_id)


def readable(span: TraceSpan, resource: "Resource | None") -> "ReadableSpan":
    """Return a span as OpenTelemetry has it."""
    from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415

    return ReadableSpan(
        name=f"{span.topic} {span.event_type}",
        context=_context(span.trace_id, span.span_id),
        parent=_context(span.trace_id, span.parent_span_id) if span.parent_span_id else None,
        resource=resource,
        attributes=_attributes(span),
        kind=_kind(span),
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
        start_time=span.start_ns,
        end_time=span.end_ns,
    )


def _context(trace_id: str, span_id: str) -> Any:  # noqa: ANN401 - a type of the SDK
    from opentelemetry.trace import SpanContext, TraceFlags  # noqa: PLC0415

    return SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(1)
    )


def _kind(span: TraceSpan) -> Any:  # noqa: ANN401 - a type of the SDK
    from opentelemetry.trace import SpanKind  # noqa: PLC0415

    if span.event_type == RECEIVED:
        return SpanKind.SERVER
    return SpanKind.PRODUCER if span.event_type in DELIVERIES else SpanKind.INTERNAL


def _attributes(span: TraceSpan) -> dict[str, str | int]:
    """Return what is known of a span under the names of OpenTelemetry's conventions."""
    named: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.destination.name": span.topic,
        "messaging.destination.partition.id": str(span.partition),
        "messaging.message.offset": span.offset,
        "goqueue.event": span.event_type,
    }
    if span.consumer_group:
        named["messaging.consumer.group.name"] = span.consumer_group
    if span.consumer_id:
        named["messaging.client.id"] = span.consumer_id
    for name, value in (span.attributes or {}).items():
        named[f"goqueue.{name}"] = value
    return named
