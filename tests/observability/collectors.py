"""Two real collectors of OTLP: one over HTTP, one over gRPC. What they got is theirs to tell."""

import gzip
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import grpc  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

SECONDS_MAX = 60


class Collector:
    """Keeps spans and lets others wait for them."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.address = ""
        self._news = threading.Condition()

    def take(self, request: Any) -> None:
        with self._news:
            for group in request.resource_spans:
                named = {one.key: one.value.string_value for one in group.resource.attributes}
                self.resources.append(named)
                for scope in group.scope_spans:
                    self.spans += scope.spans
            self._news.notify_all()

    def wait_for(self, count: int) -> list[Any]:
        """Return the spans when there are so many."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.spans) >= count, SECONDS_MAX), self.spans
            return list(self.spans)


class HttpCollector(Collector):
    """Takes ``POST /v1/traces`` with protobuf, packed or not."""

    def __enter__(self) -> Self:
        collector = self

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class GrpcCollector(Collector, TraceServiceServicer):
    """Serves ``opentelemetry.proto.collector.trace.v1.TraceService``."""

    def __enter__(self) -> Self:
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self.address = f"127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    def Export(self, request: Any, _context: Any) -> Any:  # noqa: N802 - a name of the protocol
        self.take(request)
        return ExportTraceServiceResponse()
