"""The certificates of a broker at work: contexts of its listeners, made anew as files change."""

import asyncio
import contextlib
import ssl
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from cryptography import x509
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from goqueue.base.units import SECOND_MS
from goqueue.config.model import BrokerConfig
from goqueue.config.tls import TlsFiles, tls_files
from goqueue.config.tls_check import explain
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.storage.certificates import ensure_self_signed, pin_of

NATIVE_PROTOCOL: Final = "goqueue/1"
HTTP_PROTOCOL: Final = "http/1.1"
PEER_PROTOCOL: Final = NATIVE_PROTOCOL

log = get_logger("goqueue.tls")


class ServerTls:
    """Knows the contexts in force. New files are tried as a whole before they are used."""

    def __init__(self, files: TlsFiles, *, interval_ms: int, for_peers: bool = False) -> None:
        self._files = files
        self._interval_s = interval_ms / SECOND_MS
        self._for_peers = for_peers
        self._digest = b""
        self._refused = b""
        self._expires = datetime.now(UTC)
        self._task: asyncio.Task[None] | None = None
        self.reloads = 0
        """How often new files were taken since the start."""
        self.failures = 0
        """How often new files could not be used."""
        self.native: ssl.SSLContext
        self.http: ssl.SSLContext
        self.accepting: ssl.SSLContext
        self.dialling: ssl.SSLContext
        self._take(files.digest())

    def __repr__(self) -> str:
        return f"<ServerTls of {self._files.cert} until {self._expires:%Y-%m-%d}>"

    def native_context(self) -> ssl.SSLContext:
        """Return the context for clients of the native protocol."""
        return self.native

    def http_context(self) -> ssl.SSLContext:
        """Return the context for clients of HTTP."""
        return self.http

    def accepting_context(self) -> ssl.SSLContext:
        """Return the context for nodes that connect to this one."""
        return self.accepting

    def dialling_context(self) -> ssl.SSLContext:
        """Return the context for connections of this node to others."""
        return self.dialling

    @property
    def pin(self) -> str:
        """What a client may compare with the certificate, instead of asking an authority."""
        return pin_of(x509.load_pem_x509_certificate(self._files.cert.read_bytes()))

    def start(self) -> None:
        """Look at the files again and again."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def reload(self) -> bool:
        """Use what is in the files now if it changed and fits; return whether it is used."""
        try:
            digest = self._files.digest()
            if digest in (self._digest, self._refused):
                return False
            # Whoever swaps files may be half-way: they are used when they fit one another.
            self._refused = digest
            self._take(digest)
        except (OSError, ValueError) as error:
            self.failures += 1
            log.warning(
                LogEvent.CERTIFICATE_REFUSED,
                cert=str(self._files.cert),
                reason=explain(error),
                next="the certificate in use stays until the files fit",
            )
            return False
        self.reloads += 1
        log.info(
            LogEvent.CERTIFICATE_LOADED,
            cert=str(self._files.cert),
            expires=self._expires.isoformat(timespec="seconds"),
        )
        return True

    def metrics(self) -> Iterator[Metric]:
        """Yield the series of the certificate."""
        left_s = (self._expires - datetime.now(UTC)).total_seconds()
        name = "goqueue_security_certificate_"
        expiry = GaugeMetricFamily(f"{name}expiry_seconds", "Until the certificate ends")
        expiry.add_metric([], left_s)
        yield expiry
        for kind, count in (("reloads", self.reloads), ("reload_failures", self.failures)):
            counter = CounterMetricFamily(f"{name}{kind}", f"Certificate {kind.replace('_', ' ')}")
            counter.add_metric([], count)
            yield counter

    def _take(self, digest: bytes) -> None:
        certificate = x509.load_pem_x509_certificate(self._files.cert.read_bytes())
        now = datetime.now(UTC)
        if certificate.not_valid_after_utc <= now:
            raise ValueError(f"the certificate ended on {certificate.not_valid_after_utc:%Y-%m-%d}")
        if certificate.not_valid_before_utc > now:
            begins = certificate.not_valid_before_utc
            raise ValueError(f"the certificate is valid from {begins:%Y-%m-%d %H:%M} UTC only")
        native = self._files.server_context(NATIVE_PROTOCOL)
        http = self._files.server_context(HTTP_PROTOCOL)
        if self._for_peers:
            self.accepting, self.dialling = self._files.peer_contexts(PEER_PROTOCOL)
        self.native, self.http = native, http
        self._digest, self._refused = digest, b""
        self._expires = certificate.not_valid_after_utc

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._interval_s)
            await loop.run_in_executor(None, self.reload)


def open_tls(config: BrokerConfig) -> ServerTls:
    """Return the certificates of a broker with TLS, made if the settings say so."""
    files = tls_files(config)
    assert files is not None, "asked for"
    if config.tls_self_signed:
        ensure_self_signed(files.cert, files.key, _own_names(config))
    return ServerTls(
        files, interval_ms=config.tls_reload_interval_ms, for_peers=config.cluster_enabled
    )


def _own_names(config: BrokerConfig) -> Sequence[str]:
    hosts = [one for one in config.http_hosts.split(",") if one]
    return ("localhost", "127.0.0.1", "::1", config.node_id, *hosts)
