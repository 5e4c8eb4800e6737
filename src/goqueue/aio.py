"""The asynchronous SDK: ``client = await goqueue.aio.connect("127.0.0.1:7070")``."""

from goqueue.client.aclient import AsyncClient
from goqueue.client.aio.routed_link import open_link
from goqueue.client.consumer.aio import AsyncConsumer
from goqueue.client.dial import dial_of
from goqueue.client.producers import AsyncProducer
from goqueue.client.protocol.exchange import parse_addresses
from goqueue.client.tls import TlsOptions

__all__ = ["AsyncClient", "AsyncConsumer", "AsyncProducer", "connect"]


async def connect(
    address: str = "127.0.0.1:7070",
    *,
    timeout: float = 30.0,  # noqa: ASYNC109 - bounds each later call, not this one
    api_key: str | None = None,
    tls: bool | TlsOptions | None = None,
    insecure: bool = False,
) -> AsyncClient:
    """Connect to a broker, or to a cluster by some of its nodes: ``"a:7070,b:7070,c:7070"``.

    ``timeout`` bounds each call, in seconds. ``tls`` asks for TLS, as ``goqueues://`` in the
    address does; a key is shown in the clear to another machine only if ``insecure`` says so.
    """
    dial = dial_of(address, timeout_s=timeout, api_key=api_key, tls=tls, insecure=insecure)
    link = await open_link(parse_addresses(address), dial)
    return AsyncClient(link, timeout_s=timeout)
