"""The broker's configuration: a frozen value, checked where it is built."""

import msgspec

from goqueue.base.limits import (
    CONNECTIONS_MAX,
    DELAYED_MAX,
    HTTP_BODY_BYTES_MAX,
    HTTP_PUBLISH_BODY_BYTES_MAX,
    TRACE_SPANS,
)
from goqueue.base.secret import NO_SECRET, Secret
from goqueue.base.security_limits import ATTEMPTS_MAX, LOCKOUT_MS_MAX


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the broker is told at start. Times are milliseconds, sizes bytes.

    ``settings`` has the meaning, the bounds and the names of each field for operators.
    """

    data_dir: str = "./data"
    node_id: str = "node-1"
    http_listener: str = "127.0.0.1:8080"
    native_listener: str = "127.0.0.1:7070"
    http_hosts: str = ""
    log_level: str = "info"
    log_format: str = "auto"
    connections_max: int = CONNECTIONS_MAX
    delayed_max: int = DELAYED_MAX
    http_publish_body_bytes_max: int = HTTP_PUBLISH_BODY_BYTES_MAX
    http_body_bytes_max: int = HTTP_BODY_BYTES_MAX
    sync_threads: int = 8
    maintenance_interval_ms: int = 10_000
    tracing_enabled: bool = True
    tracing_rate: float = 0.01
    tracing_spans: int = TRACE_SPANS
    tracing_exporters: str = ""
    tracing_export_interval_ms: int = 5_000
    tracing_files_max: int = 10
    tracing_otlp_http_endpoint: str = "http://localhost:4318/v1/traces"
    tracing_otlp_grpc_endpoint: str = "localhost:4317"
    tracing_jaeger_endpoint: str = "localhost:4317"
    shutdown_timeout_ms: int = 30_000
    tls_enabled: bool = False
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_ca_file: str = ""
    tls_crl_file: str = ""
    tls_client_auth: str = "none"
    tls_min_version: str = "1.2"
    tls_self_signed: bool = False
    tls_behind_proxy: bool = False
    tls_reload_interval_ms: int = 30_000
    cluster_enabled: bool = False
    cluster_peers: str = ""
    cluster_listener: str = "127.0.0.1:7000"
    cluster_advertise: str = ""
    cluster_client_advertise: str = ""
    cluster_quorum: str = "embedded"
    cluster_key_file: str = ""
    cluster_rack: str = ""
    cluster_heartbeat_ms: int = 3_000
    cluster_suspect_ms: int = 6_000
    cluster_dead_ms: int = 9_000
    cluster_election_ms: int = 1_000
    cluster_leave_ms: int = 30_000
    cluster_replication_factor: int = 0
    cluster_scrub_bytes: int = 1_048_576
    auth_enabled: bool = False
    api_root_key: Secret = NO_SECRET
    auth_allow_health: bool = True
    auth_failures_max: int = ATTEMPTS_MAX
    auth_lockout_ms_max: int = LOCKOUT_MS_MAX
    acl_enabled: bool = True
