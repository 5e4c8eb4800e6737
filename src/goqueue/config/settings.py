"""What an operator may set: names, meaning and bounds of every field of ``BrokerConfig``."""

from functools import partial
from typing import Final

from goqueue.base.limits import TRACE_SPANS_MAX
from goqueue.base.units import HOUR_MS, KiB, MiB, format_duration_ms, format_size_bytes
from goqueue.config.cluster_settings import CLUSTER_SETTINGS
from goqueue.config.readers import (
    EXPORTERS,
    LOG_FORMATS,
    LOG_LEVELS,
    Setting,
    read_count,
    read_duration,
    read_endpoint,
    read_exporters,
    read_flag,
    read_hosts,
    read_listener,
    read_node_id,
    read_one_of,
    read_ratio,
    read_size,
    read_text,
    read_url,
)
from goqueue.config.security_settings import SECURITY_SETTINGS
from goqueue.config.tls_settings import TLS_SETTINGS

SETTINGS: Final = (
    Setting(
        field="data_dir",
        key="data_dir",
        environment="GOQUEUE_BROKER_DATADIR",
        flag="--data",
        meaning="directory that holds everything the broker stores",
        read=read_text,
    ),
    Setting(
        field="node_id",
        key="node_id",
        environment="GOQUEUE_BROKER_NODEID",
        flag="--node-id",
        meaning="name of this broker in logs and statistics",
        read=read_node_id,
    ),
    Setting(
        field="native_listener",
        key="listeners.native",
        environment="GOQUEUE_LISTENERS_NATIVE",
        flag="--native",
        meaning="address of the native protocol; port 0 takes a free one",
        read=read_listener,
    ),
    Setting(
        field="http_listener",
        key="listeners.http",
        environment="GOQUEUE_LISTENERS_HTTP",
        flag="--http",
        meaning="address of HTTP; port 0 takes a free one",
        read=read_listener,
    ),
    Setting(
        field="http_hosts",
        key="http.hosts",
        environment="GOQUEUE_HTTP_HOSTS",
        flag=None,
        meaning="names HTTP clients may call this broker by, with commas between; addresses,"
        " localhost and the node's id always may",
        read=read_hosts,
        show=lambda value: str(value) or "none",
    ),
    Setting(
        field="log_level",
        key="log.level",
        environment="GOQUEUE_LOG_LEVEL",
        flag="--log-level",
        meaning="least important lines to log: debug, info, warning or error",
        read=partial(read_one_of, LOG_LEVELS),
    ),
    Setting(
        field="log_format",
        key="log.format",
        environment="GOQUEUE_LOG_FORMAT",
        flag="--log-format",
        meaning="console (colours), json (one object a line), or auto (by the terminal)",
        read=partial(read_one_of, LOG_FORMATS),
    ),
    Setting(
        field="connections_max",
        key="limits.connections",
        environment="GOQUEUE_LIMITS_CONNECTIONS",
        flag=None,
        meaning="most native connections; one more is told so and closed",
        read=read_count(1, 1_000_000),
    ),
    Setting(
        field="delayed_max",
        key="limits.delayed_messages",
        environment="GOQUEUE_LIMITS_DELAYED_MESSAGES",
        flag=None,
        meaning="most messages of a topic that wait for their time; one more is refused",
        read=read_count(0, 100_000_000),
    ),
    Setting(
        field="http_publish_body_bytes_max",
        key="limits.http_publish_body",
        environment="GOQUEUE_LIMITS_HTTP_PUBLISH_BODY",
        flag=None,
        meaning="largest body of a publish over HTTP; larger ones are answered 413",
        read=read_size(1 * KiB, 256 * MiB),
        show=format_size_bytes,
    ),
    Setting(
        field="http_body_bytes_max",
        key="limits.http_body",
        environment="GOQUEUE_LIMITS_HTTP_BODY",
        flag=None,
        meaning="largest body of any other HTTP request; larger ones are answered 413",
        read=read_size(1 * KiB, 64 * MiB),
        show=format_size_bytes,
    ),
    Setting(
        field="sync_threads",
        key="storage.sync_threads",
        environment="GOQUEUE_STORAGE_SYNC_THREADS",
        flag=None,
        meaning="partitions synced to disk at the same time; more help on fast disks only",
        read=read_count(1, 256),
    ),
    Setting(
        field="maintenance_interval_ms",
        key="storage.maintenance_interval",
        environment="GOQUEUE_STORAGE_MAINTENANCE_INTERVAL",
        flag=None,
        meaning="time between two looks for segments past their retention",
        read=read_duration(100, HOUR_MS),
        show=format_duration_ms,
    ),
    Setting(
        field="tracing_enabled",
        key="tracing.enabled",
        environment="GOQUEUE_TRACING_ENABLED",
        flag=None,
        meaning="whether the stories of messages are traced at all: true or false",
        read=read_flag,
        show=lambda value: str(bool(value)).lower(),
    ),
    Setting(
        field="tracing_rate",
        key="tracing.sampling_rate",
        environment="GOQUEUE_TRACING_SAMPLING_RATE",
        flag=None,
        meaning="share of messages that is traced, 0 to 1; dead letters always are",
        read=read_ratio,
    ),
    Setting(
        field="tracing_spans",
        key="tracing.buffer_spans",
        environment="GOQUEUE_TRACING_BUFFER_SPANS",
        flag=None,
        meaning="most spans kept in memory; older ones make room",
        read=read_count(1_000, TRACE_SPANS_MAX),
    ),
    Setting(
        field="tracing_exporters",
        key="tracing.exporters",
        environment="GOQUEUE_TRACING_EXPORTERS",
        flag=None,
        meaning=f"where spans go beside memory, with commas between: {', '.join(EXPORTERS)}",
        read=read_exporters,
        show=lambda value: str(value) or "none",
    ),
    Setting(
        field="tracing_export_interval_ms",
        key="tracing.export_interval",
        environment="GOQUEUE_TRACING_EXPORT_INTERVAL",
        flag=None,
        meaning="longest wait of a span for others before it is exported",
        read=read_duration(10, HOUR_MS),
        show=format_duration_ms,
    ),
    Setting(
        field="tracing_files_max",
        key="tracing.files",
        environment="GOQUEUE_TRACING_FILES",
        flag=None,
        meaning="most files of 10 MiB that the exporter file keeps; the oldest are deleted",
        read=read_count(1, 10_000),
    ),
    Setting(
        field="tracing_otlp_http_endpoint",
        key="tracing.otlp_http_endpoint",
        environment="GOQUEUE_TRACING_OTLP_HTTP_ENDPOINT",
        flag=None,
        meaning="where the exporter otlp-http sends spans",
        read=read_url,
    ),
    Setting(
        field="tracing_otlp_grpc_endpoint",
        key="tracing.otlp_grpc_endpoint",
        environment="GOQUEUE_TRACING_OTLP_GRPC_ENDPOINT",
        flag=None,
        meaning="where the exporter otlp-grpc sends spans; https:// before it means TLS",
        read=read_endpoint,
    ),
    Setting(
        field="tracing_jaeger_endpoint",
        key="tracing.jaeger_endpoint",
        environment="GOQUEUE_TRACING_JAEGER_ENDPOINT",
        flag=None,
        meaning="where the exporter jaeger sends spans: Jaeger's port for OTLP over gRPC",
        read=read_endpoint,
    ),
    Setting(
        field="shutdown_timeout_ms",
        key="shutdown_timeout",
        environment="GOQUEUE_SHUTDOWN_TIMEOUT",
        flag=None,
        meaning="longest wait for requests under way when stopping; 0s waits for none",
        read=read_duration(0, HOUR_MS),
        show=format_duration_ms,
    ),
    *TLS_SETTINGS,
    *CLUSTER_SETTINGS,
    *SECURITY_SETTINGS,
)
"""Every setting, in the order in which people meet them."""

BY_KEY: Final = {setting.key: setting for setting in SETTINGS}
BY_ENVIRONMENT: Final = {setting.environment: setting for setting in SETTINGS}

FILES_BY_KEY: Final = {f"{one.key}_file": one for one in SETTINGS if one.is_secret}
FILES_BY_ENVIRONMENT: Final = {f"{one.environment}_FILE": one for one in SETTINGS if one.is_secret}
"""Under these names a secret is given as the file that holds it."""
