"""Who is there, and whether all is well: what clients, probes and people ask first."""

import platform
import time
from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from goqueue.base.caller import Caller
from goqueue.base.deeds import Deed
from goqueue.base.errors import GoQueueError, ShuttingDownError, UnsupportedError
from goqueue.base.limits import FRAME_BYTES_MAX
from goqueue.base.units import SECOND_MS, format_duration_ms, format_size_bytes
from goqueue.observability.checkout import checkout_commit
from goqueue.observability.exposition import Exposition
from goqueue.observability.metrics import CONTENT_TYPE
from goqueue.runtime.broker import Broker
from goqueue.service.gate import Gate
from goqueue.service.verb import caller_verb, verb
from goqueue.wire import calls
from goqueue.wire.http.health import BrokerSummary, Check, CheckStatus, Health, Version
from goqueue.wire.metadata_calls import CLUSTER
from goqueue.wire.times import format_time_us

METRICS_CONTENT_TYPE: Final = CONTENT_TYPE
UNKNOWN: Final = "unknown"
_Finding = tuple[CheckStatus, str]


class Status:
    """What can be asked about the broker itself."""

    def __init__(self, broker: Broker, gate: Gate) -> None:
        self._broker = broker
        self._gate = gate
        self._exposition = Exposition(broker.metrics, broker.consume.look_at_ages)

    @caller_verb(Deed.GREET)
    async def hello(self, caller: Caller, call: calls.Hello) -> calls.HelloReply:
        """Agree on a protocol."""
        if call.protocol != calls.PROTOCOL_VERSION:
            raise UnsupportedError(
                f"protocol {call.protocol} is not spoken here; {calls.PROTOCOL_VERSION} is"
            )
        node_id, features = self._broker.config.node_id, list(calls.FEATURES)
        if self._broker.topology is not None:
            features.append(CLUSTER)
        return calls.HelloReply(
            calls.PROTOCOL_VERSION,
            server_name(),
            node_id,
            features,
            self._left_ms(caller),
        )

    def _left_ms(self, caller: Caller) -> int:
        """Return how long a credential is valid yet; 0 where it does not end by itself."""
        security = self._broker.security
        key = security.directory.keys.get(caller.principal)
        end_ms = caller.expires_ms if key is None else key.expires_ms
        return max(1, end_ms - security.now_ms()) if end_ms else 0

    @verb(Deed.PING)
    async def ping(self, _: calls.Nothing) -> calls.Nothing:
        """Answer."""
        return calls.Nothing()

    @verb(Deed.PROBE_HEALTH)
    def now(self) -> str:
        """Return the time of the broker's clock."""
        return format_time_us(self._broker.clock.now_us())

    @verb(Deed.PROBE_HEALTH)
    def alive(self) -> Health:
        """Return True if the broker serves."""
        status, message = self._check_broker()
        return Health(
            status=status,
            timestamp=format_time_us(self._broker.clock.now_us()),
            uptime=self._uptime(),
            message=message if status != "pass" else None,
        )

    @verb(Deed.PROBE_HEALTH)
    def live(self) -> Health:
        """Return True if the process is worth keeping: also one that waits for its cluster."""
        waits_for = self._gate.waits_for
        status, message = self._check_broker()
        return Health(
            status="pass" if waits_for else status,
            timestamp=format_time_us(self._broker.clock.now_us()),
            uptime=self._uptime(),
            message=message if status != "pass" else None,
        )

    @caller_verb(Deed.PROBE_HEALTH)
    def ready(self, caller: Caller, *, is_verbose: bool) -> Health:
        """Return True if requests should be sent here; names are for who may read the metrics."""
        has_names = self._may_see_names(caller)
        check_storage = partial(self._check_storage, has_names=has_names)
        checks = {"broker": _timed(self._check_broker), "storage": _timed(check_storage)}
        if self._broker.topology is not None:
            checks["cluster"] = _timed(self._check_cluster)
        statuses = {check.status for check in checks.values()}
        status: CheckStatus = "pass"
        if statuses != {"pass"}:
            status = "fail" if "fail" in statuses else "warn"
        failures = [one.message for one in checks.values() if one.status != "pass"]
        messages = "; ".join(dict.fromkeys(failures))
        return Health(
            status=status,
            timestamp=format_time_us(self._broker.clock.now_us()),
            uptime=self._uptime(),
            message=messages or None,
            checks=checks if is_verbose else None,
            broker=self._summary() if is_verbose and has_names else None,
        )

    def _may_see_names(self, caller: Caller) -> bool:
        try:
            return self._gate.sees(caller, Deed.READ_METRICS, "")
        except GoQueueError:
            return False

    @verb(Deed.PROBE_HEALTH)
    def version(self) -> Version:
        """Tell what runs here."""
        return Version(
            version=package_version(),
            git_commit=checkout_commit() or UNKNOWN,
            build_time=UNKNOWN,
            python_version=platform.python_version(),
        )

    @verb(Deed.READ_METRICS)
    async def metrics(self) -> bytes:
        """Return every metric in the text format of Prometheus, a second old at most."""
        if not self._broker.is_ready:
            raise ShuttingDownError("the broker is stopping")
        return await self._exposition.text()

    def _uptime(self) -> str:
        return format_duration_ms(0) if self._gate.waits_for else uptime_of(self._broker)

    def _check_cluster(self) -> _Finding:
        topology = self._broker.topology
        assert topology is not None, "a node of a cluster"
        try:
            topology.check_live()
        except GoQueueError as error:
            return "fail", self._gate.waits_for or error.message
        return "pass", f"{len(topology.nodes)} nodes are alive"

    def _check_broker(self) -> _Finding:
        if self._gate.waits_for:
            return "fail", self._gate.waits_for
        if not self._broker.is_ready:
            return "fail", "the broker does not serve"
        return "pass", f"{len(self._broker.topics)} topics are served"

    def _check_storage(self, *, has_names: bool) -> _Finding:
        try:
            free_bytes = self._broker.disk.free_bytes()
        except (GoQueueError, OSError) as error:
            return "fail", f"the disk does not answer{f': {error}' if has_names else ''}"
        partitions = [part for topic in self._broker.topics.values() for part in topic.partitions]
        failed = [str(part.name) for part in partitions if part.log.failure is not None]
        if failed and len(failed) == len(partitions):
            return "fail", "no partition takes writes until restart"
        if failed:
            first = f": {failed[0]} …" if has_names else ""
            return "warn", f"{len(failed)} partitions take no writes until restart{first}"
        if free_bytes < FRAME_BYTES_MAX:
            return "warn", f"the disk is full: {format_size_bytes(free_bytes)} are free"
        free = format_size_bytes(free_bytes)
        return "pass", f"{len(partitions)} partitions take writes; {free} are free"

    def _summary(self) -> BrokerSummary:
        topics = self._broker.topics.values()
        return BrokerSummary(
            node_id=self._broker.config.node_id,
            topic_count=len(topics),
            total_size=sum(part.log.size_bytes for topic in topics for part in topic.partitions),
        )


@cache
def package_version() -> str:
    """Return the version of this installation."""
    try:
        return version("goqueue")
    except PackageNotFoundError:
        return UNKNOWN


@cache
def server_name() -> str:
    """Return what the broker calls itself."""
    return f"goqueue/{package_version()}"


def uptime_of(broker: Broker) -> str:
    """Return for how long a broker has run."""
    return format_duration_ms(broker.clock.monotonic_ms() - broker.started_ms)


def _timed(check: Callable[[], _Finding]) -> Check:
    started = time.perf_counter()
    status, message = check()
    latency_ms = (time.perf_counter() - started) * SECOND_MS
    return Check(status=status, message=message, latency=f"{latency_ms:.3f}ms")
