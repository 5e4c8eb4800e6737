"""A real broker hands its spans to real collectors, to files and to the standard output."""

import json
import time
from pathlib import Path
from typing import Any

import httpx

from tests.cli.running import SECONDS_MAX, BrokerProcess, lines_of
from tests.observability.collectors import Collector, GrpcCollector, HttpCollector

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
EVENTS = ["publish.received", "publish.partitioned", "publish.persisted"]


def settings(**values: str) -> list[str]:
    return [word for name, value in values.items() for word in ("--set", f"tracing.{name}={value}")]


def publish(broker: BrokerProcess, count: int, **headers: str) -> None:
    base = f"http://{broker.http}"
    httpx.post(f"{base}/topics", json={"name": "orders", "num_partitions": 1}, timeout=SECONDS_MAX)
    body = {"messages": [{"value": "a"}] * count}
    reply = httpx.post(
        f"{base}/topics/orders/messages", json=body, headers=headers, timeout=SECONDS_MAX
    )
    assert "error" not in reply.text


def get(broker: BrokerProcess, path: str) -> httpx.Response:
    return httpx.get(f"http://{broker.http}{path}", timeout=SECONDS_MAX)


def metric(broker: BrokerProcess, name: str) -> float:
    for line in get(broker, "/metrics").text.splitlines():
        if line.startswith(f"goqueue_tracing_{name} "):
            return float(line.rpartition(" ")[2])
    return 0.0


def attributes_of(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def test_collectors_get_the_spans(tmp_path: Path) -> None:
    """OTLP over HTTP, over gRPC and to Jaeger's port: ids, parents, times and names."""
    with HttpCollector() as http, GrpcCollector() as rpc, GrpcCollector() as jaeger:
        broker = BrokerProcess(
            tmp_path / "data",
            *settings(
                sampling_rate="1",
                exporters="otlp-http,otlp-grpc,jaeger",
                export_interval="50ms",
                otlp_http_endpoint=http.address,
                otlp_grpc_endpoint=rpc.address,
                jaeger_endpoint=jaeger.address,
            ),
        )
        publish(broker, 1, traceparent=PARENT)
        for collector in (http, rpc, jaeger):
            check(collector)
        stats = get(broker, "/traces/stats").json()
        assert stats["exporters_enabled"] == ["otlp-http", "otlp-grpc", "jaeger"]
        assert broker.stop() == 0


def check(collector: Collector) -> None:
    spans = sorted(collector.wait_for(3), key=lambda span: attributes_of(span)["goqueue.event"])
    partitioned, persisted, received = spans

    assert [attributes_of(span)["goqueue.event"] for span in spans] == [
        *("publish.partitioned", "publish.persisted", "publish.received"),
    ]
    assert {span.trace_id.hex() for span in spans} == {PARENT[3:35]}
    assert received.parent_span_id.hex() == PARENT[36:52]
    assert partitioned.parent_span_id == persisted.parent_span_id == received.span_id
    assert received.start_time_unix_nano <= partitioned.end_time_unix_nano
    assert partitioned.end_time_unix_nano <= persisted.end_time_unix_nano
    assert persisted.end_time_unix_nano <= received.end_time_unix_nano
    named = attributes_of(received)
    assert named["messaging.destination.name"] == "orders"
    assert named["messaging.message.offset"] == 0
    assert received.name == "orders publish.received"
    assert collector.resources[0]["service.name"] == "goqueue"
    assert collector.resources[0]["service.instance.id"] == "node-1"


def test_files_and_standard_output_get_the_spans(tmp_path: Path) -> None:
    """Lines of JSON, ids in hexadecimal, all of them there when the broker has stopped."""
    broker = BrokerProcess(
        tmp_path / "data",
        *settings(sampling_rate="1", exporters="file, stdout", export_interval="1h"),
    )
    publish(broker, 2)
    (first, second) = get(broker, "/traces").json()["traces"]
    assert broker.process.stdout is not None
    printed = lines_of(broker.process, "stdout")
    broker.process.terminate()
    told = [json.loads(line) for line in printed]
    assert broker.stop() == 0

    (path,) = (tmp_path / "data" / "traces" / "traces").glob("traces-*-001.json")
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert written == told
    assert sorted(span["event_type"] for span in written) == sorted(2 * EVENTS)
    assert {span["trace_id"] for span in written} == {first["trace_id"], second["trace_id"]}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_collector_that_is_not_there_hurts_nobody(tmp_path: Path) -> None:
    """Messages are published as always; what is lost is counted."""
    broker = BrokerProcess(
        tmp_path / "data",
        *settings(
            sampling_rate="1",
            exporters="otlp-http",
            export_interval="10ms",
            otlp_http_endpoint="http://127.0.0.1:9/v1/traces",
        ),
    )
    for _ in range(3):
        publish(broker, 100)
    deadline = time.monotonic() + SECONDS_MAX
    while not metric(broker, 'export_failures_total{exporter="otlp-http"}'):
        assert time.monotonic() < deadline
    assert metric(broker, 'spans_dropped_total{exporter="otlp-http"}') > 0
    assert metric(broker, "spans_total") == 900
    assert broker.stop() == 0
    told = [line for line in broker.lines if line["event"] == "spans not exported, will retry"]
    assert len(told) == 1
