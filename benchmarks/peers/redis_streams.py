"""Redis Streams with redis-py: one stream per partition, pipelined, the append-only file on."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, ClassVar

import redis
from redis._parsers import _RESP2Parser
from redis.connection import PythonRespSerializer

from benchmarks.child import LOOPBACK, Child, free_port
from benchmarks.messages import Message
from benchmarks.pace import Pace
from benchmarks.peers.peer import (
    Client,
    Peer,
    age_seconds,
    partition_of,
    program,
    stamped,
)
from benchmarks.peers.redis_unbatched import RedisUnbatched, stream_names

PIPELINE_COMMANDS = 1000
READ_MESSAGES = 1000
BLOCK_MS = 1000
PACKED_BYTES = 6000
"""What redis-py packs into one buffer when left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisClient(Client):
    """Topics are groups of streams ``topic:partition``."""

    is_plain: bool = False
    """Whether to read and write as ``pip install redis`` alone does, without hiredis."""

    def create(self, topic: str, *, partitions: int) -> None:
        """Do nothing: a stream exists with its first message."""

    def delete(self, topic: str) -> None:
        """Remove the streams."""
        with self._connect() as connection:
            connection.delete(*stream_names(topic))

    def count(self, topic: str) -> int:
        """Add up the lengths of the streams."""
        with self._connect() as connection:
            return sum(int(connection.xlen(stream)) for stream in stream_names(topic))

    def publish(self, topic: str, messages: Iterable[Message]) -> float:
        """XADD in pipelines without transactions."""
        streams = stream_names(topic)
        with self._connect() as connection:
            pipeline = connection.pipeline(transaction=False)
            queued = 0
            start = time.perf_counter()
            for key, value in messages:
                pipeline.xadd(streams[partition_of(key)], {b"k": key, b"v": value})
                queued += 1
                if queued == PIPELINE_COMMANDS:
                    pipeline.execute()
                    queued = 0
            pipeline.execute()
            return time.perf_counter() - start

    def read(self, topic: str, *, count: int) -> float:
        """XREAD all streams at once from their beginning."""
        positions = dict.fromkeys(stream_names(topic), b"0")
        read = size = 0
        with self._connect() as connection:
            start = time.perf_counter()
            while read < count:
                for stream, entries in connection.xread(positions, count=READ_MESSAGES):
                    for _, fields in entries:
                        size += len(fields[b"v"])
                    read += len(entries)
                    positions[stream] = entries[-1][0]
            return time.perf_counter() - start

    def consume(self, topic: str, *, count: int) -> float:
        """XREADGROUP all streams at once; one XACK for what a stream gave."""
        streams = dict.fromkeys(stream_names(topic), b">")
        read = size = 0
        with self._connect() as connection:
            for stream in streams:
                connection.xgroup_create(stream, topic, id="0")
            start = time.perf_counter()
            while read < count:
                found = connection.xreadgroup(topic, "b", streams, count=READ_MESSAGES)
                pipeline = connection.pipeline(transaction=False)
                for stream, entries in found:
                    ids = []
                    for identity, fields in entries:
                        size += len(fields[b"v"])
                        ids.append(identity)
                    pipeline.xack(stream, topic, *ids)
                    read += len(entries)
                pipeline.execute()
            return time.perf_counter() - start

    def publish_each(self, topic: str, pace: Pace, *, value_bytes: int) -> list[float]:
        """XADD and wait for its reply."""
        stream = stream_names(topic)[0]
        latencies = []
        with self._connect() as connection:
            for _ in pace.ticks():
                start = time.perf_counter()
                connection.xadd(stream, {b"k": b"key", b"v": stamped(value_bytes)})
                latencies.append(time.perf_counter() - start)
        return latencies

    def follow(self, topic: str, *, count: int, ready: Callable[[], None]) -> list[float]:
        """XREAD that blocks for the next entries."""
        stream = stream_names(topic)[0]
        position = b"0"
        ages: list[float] = []
        with self._connect() as connection:
            ready()
            while len(ages) < count:
                found = connection.xread({stream: position}, count=READ_MESSAGES, block=BLOCK_MS)
                for _, entries in found:
                    ages.extend(age_seconds(fields[b"v"]) for _, fields in entries)
                    position = entries[-1][0]
        return ages

    def _connect(self) -> Any:  # noqa: ANN401 - redis-py types its replies as sync or async
        connection = redis.Redis(host=LOOPBACK, port=self.port, protocol=2, socket_timeout=30)
        if self.is_plain:
            settings = connection.connection_pool.connection_kwargs
            settings["parser_class"] = _RESP2Parser
            settings["command_packer"] = PythonRespSerializer(
                PACKED_BYTES, connection.get_encoder().encode
            )
        return connection


class RedisStreams(Peer):
    """A Redis server with its append-only file."""

    name: ClassVar[str] = "redis"
    durability: ClassVar[str] = "fsync every second (appendfsync everysec)"
    load_share: ClassVar[float] = 0.2
    sync: ClassVar[str] = "everysec"
    """When the append-only file is synced."""

    def start(self) -> None:
        """Start the server; background rewrites are off, so no round pays for another's."""
        self._program = program("redis-server", package="redis-server")
        self._port = free_port()
        settings = {
            "bind": LOOPBACK,
            "port": self._port,
            "dir": self._directory,
            "save": "",
            "appendonly": "yes",
            "appendfsync": self.sync,
            "auto-aof-rewrite-percentage": 0,
        }
        self._directory.mkdir(parents=True, exist_ok=True)
        argv = [self._program]
        for name, value in settings.items():
            argv += [f"--{name}", str(value)]
        child = Child(argv, directory=self._directory)
        self._children.append(child)
        child.wait_port(self._port)

    def client(self) -> RedisClient:
        """Return a client of this server."""
        return RedisClient(port=self._port)

    def unbatched(self) -> RedisUnbatched | None:
        """Return a client that sends one command at a time."""
        return RedisUnbatched(port=self._port)

    def version(self) -> str:
        """Ask the server, and name the client."""
        with redis.Redis(host=LOOPBACK, port=self._port) as connection:
            server: Any = connection.info("server")
        # Without the C parser redis-py reads several times slower: a reader must know.
        parser = f"hiredis {version('hiredis')}" if find_spec("hiredis") else "WITHOUT hiredis"
        return f"Redis {server['redis_version']}, redis-py {version('redis')}, {parser}"


class RedisAlways(RedisStreams):
    """A server that has synced what it acknowledges, as GoQueue has."""

    name: ClassVar[str] = "redis-always"
    durability: ClassVar[str] = "fsync before the reply (appendfsync always)"
    sync: ClassVar[str] = "always"


class RedisPlain(RedisStreams):
    """The same server, and the client as it is installed by itself."""

    name: ClassVar[str] = "redis-plain"
    load_share: ClassVar[float] = 0.1

    def client(self) -> RedisClient:
        """Return a client that leaves hiredis alone."""
        return RedisClient(port=self._port, is_plain=True)

    def unbatched(self) -> None:
        """Return nothing: one message at a time, the parser hardly matters."""

    def version(self) -> str:
        """Ask the server, and name the client."""
        return f"{super().version().rpartition(',')[0]}, without hiredis"
