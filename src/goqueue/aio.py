"""The asynchronous SDK: ``client = await goqueue.aio.connect("127.0.0.1:7070")``."""

from goqueue.client.aclient import AsyncClient
from goqueue.client.aio.link import NativeLink
from goqueue.client.consumer.aio import AsyncConsumer
from goqueue.client.producers import AsyncProducer

__all__ = ["AsyncClient", "AsyncConsumer", "AsyncProducer", "connect"]


async def connect(
    address: str = "127.0.0.1:7070",
    *,
    timeout: float = 30.0,  # noqa: ASYNC109 - bounds each later call, not this one
    api_key: str | None = None,
) -> AsyncClient:
    """Connect to a broker. ``timeout`` bounds each call, in seconds."""
    link = NativeLink(address, timeout_s=timeout, api_key=api_key)
    await link.connect()
    return AsyncClient(link, timeout_s=timeout)
