"""The exporters an operator asked for, each with a thread and a queue of its own."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from goqueue.config.model import BrokerConfig
from goqueue.config.readers import (
    FILE_EXPORTER,
    JAEGER_EXPORTER,
    OTLP_GRPC_EXPORTER,
    OTLP_HTTP_EXPORTER,
    STDOUT_EXPORTER,
)
from goqueue.observability.logging import get_logger
from goqueue.observability.trace_export import TraceExport
from goqueue.observability.trace_files import TraceFiles
from goqueue.observability.trace_metrics import TraceMetrics
from goqueue.observability.trace_otlp import grpc_sink, http_sink
from goqueue.observability.trace_sink import Sink
from goqueue.observability.trace_stdout import TraceStdout

DIRECTORY: Final = "traces/traces"
STOP_SECONDS: Final = 5.0
"""Longest wait for exporters to send what they still have when the broker stops."""

log = get_logger("goqueue.tracing")


class Exports:
    """Every exporter of a broker."""

    def __init__(self, config: BrokerConfig, metrics: TraceMetrics) -> None:
        self._config = config
        self._exports: list[TraceExport] = []
        if config.tracing_enabled:
            self._exports = [
                TraceExport(
                    name,
                    self._sink(name),
                    metrics=metrics,
                    interval_ms=config.tracing_export_interval_ms,
                )
                for name in config.tracing_exporters.split(",")
                if name
            ]

    def __repr__(self) -> str:
        return f"<Exports to {', '.join(one.name for one in self._exports) or 'nobody'}>"

    def __iter__(self) -> Iterator[TraceExport]:
        return iter(self._exports)

    def __len__(self) -> int:
        return len(self._exports)

    def _sink(self, name: str) -> Sink:
        config = self._config
        if name == FILE_EXPORTER:
            directory = Path(config.data_dir) / DIRECTORY
            return TraceFiles(directory, files_max=config.tracing_files_max)
        if name == STDOUT_EXPORTER:
            return TraceStdout()
        if name == OTLP_HTTP_EXPORTER:
            return http_sink(config.tracing_otlp_http_endpoint, node_id=config.node_id)
        assert name in (OTLP_GRPC_EXPORTER, JAEGER_EXPORTER), "checked where it was read"
        is_jaeger = name == JAEGER_EXPORTER
        endpoint = (
            config.tracing_jaeger_endpoint if is_jaeger else config.tracing_otlp_grpc_endpoint
        )
        return grpc_sink(endpoint, node_id=config.node_id)

    def start(self) -> None:
        """Begin to export."""
        for export in self._exports:
            export.start()

    async def stop(self) -> None:
        """Let each send what it has, within a time."""
        if self._exports:
            loop = asyncio.get_running_loop()
            ends = [
                loop.run_in_executor(None, export.stop, STOP_SECONDS) for export in self._exports
            ]
            await asyncio.gather(*ends)
