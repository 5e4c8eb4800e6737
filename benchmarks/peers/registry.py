"""Every peer by name, imported only when asked for: its client may not be installed."""

from importlib import import_module
from pathlib import Path

from benchmarks.peers.peer import Peer, SkippedError

PEERS = {
    "redis": ("benchmarks.peers.redis_streams", "RedisStreams"),
    "redis-always": ("benchmarks.peers.redis_streams", "RedisAlways"),
    "redis-plain": ("benchmarks.peers.redis_streams", "RedisPlain"),
    "nats": ("benchmarks.peers.nats_jetstream", "NatsJetStream"),
    "rabbitmq": ("benchmarks.peers.rabbitmq", "RabbitMq"),
    "kafka": ("benchmarks.peers.kafka", "Kafka"),
}


def make(name: str, directory: Path) -> Peer:
    """Return the peer, not yet started; skip it when its Python client is missing."""
    module_name, class_name = PEERS[name]
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise SkippedError(f"its Python client is not installed: {error}") from error
    peer: Peer = getattr(module, class_name)(directory)
    return peer
