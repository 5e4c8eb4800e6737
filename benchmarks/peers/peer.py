"""What the harness asks of a broker and of its client, whoever made them."""

import shutil
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from zlib import crc32

from benchmarks.child import Child
from benchmarks.messages import Message
from benchmarks.pace import Pace
from benchmarks.peers.unbatched import Unbatched

PARTITIONS = 3
STAMP = struct.Struct(">Q")
FOLLOW_SECONDS_MAX = 60.0


class SkippedError(Exception):
    """The peer cannot run on this machine; the message says why."""


def stamped(value_bytes: int) -> bytes:
    """Return a value that begins with the time it was made at."""
    return STAMP.pack(time.monotonic_ns()) + bytes(value_bytes - STAMP.size)


def age_seconds(value: bytes) -> float:
    """Return how long ago a stamped value was made, by this machine's one monotonic clock."""
    made_ns: int = STAMP.unpack_from(value)[0]
    return (time.monotonic_ns() - made_ns) / 1e9


def partition_names(topic: str) -> list[str]:
    """Name the streams or queues that stand for partitions where a peer has none."""
    return [f"{topic}-{partition}" for partition in range(PARTITIONS)]


def partition_of(key: bytes) -> int:
    """Return the partition of a key."""
    return crc32(key) % PARTITIONS


def program(name: str, *, package: str, folder: str | None = None) -> str:
    """Return the path of a peer's program, or skip the peer."""
    path = shutil.which(name, path=folder) or shutil.which(name)
    if path is None:
        raise SkippedError(f"{name} is not installed (Debian package {package})")
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Client(ABC):
    """One peer's Python client, as an address that can be handed to another process.

    Each call opens its own connection before its clock starts and closes it after it stopped.
    """

    port: int

    @abstractmethod
    def create(self, topic: str, *, partitions: int) -> None:
        """Make a topic."""

    @abstractmethod
    def delete(self, topic: str) -> None:
        """Remove a topic and what it holds."""

    @abstractmethod
    def count(self, topic: str) -> int:
        """Return how many messages the broker has."""

    @abstractmethod
    def publish(self, topic: str, messages: Iterable[Message]) -> float:
        """Publish one by one; return the seconds from the first to the last acknowledgement."""

    @abstractmethod
    def read(self, topic: str, *, count: int) -> float:
        """Read from the start as message objects; return the seconds it took."""

    def consume(self, topic: str, *, count: int) -> float:
        """Consume as a group of one, one ack per message; return the seconds it took."""
        raise NotImplementedError

    @abstractmethod
    def publish_each(self, topic: str, pace: Pace, *, value_bytes: int) -> list[float]:
        """Publish stamped values one at a time at a pace; return each one's seconds to its ack."""

    @abstractmethod
    def follow(self, topic: str, *, count: int, ready: Callable[[], None]) -> list[float]:
        """Read stamped values as they come, after saying ready; return each one's age."""


class Peer(ABC):
    """A broker run by the harness on loopback ports in a directory of its own."""

    name: ClassVar[str]
    durability: ClassVar[str]
    """What an acknowledgement means in the settings used here."""
    load_share: ClassVar[float] = 1.0
    """The part of a load this peer gets, so that its rounds last about as long as ours."""
    partitioned: ClassVar[bool] = False
    """Whether a topic's partitions are its own idea, not queues or streams side by side."""

    settles_messages: ClassVar[bool] = True
    """Whether consumers ack single messages, not positions."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._children: list[Child] = []

    @abstractmethod
    def start(self) -> None:
        """Start the broker and return when it serves; raise SkippedError where it cannot run."""

    @abstractmethod
    def client(self) -> Client:
        """Return a client of this broker."""

    def unbatched(self) -> Unbatched | None:
        """Return a client that handles one message at a time, where that is measured."""
        return None

    @abstractmethod
    def version(self) -> str:
        """Name the versions of broker and client."""

    def stop(self) -> None:
        """End every process that was started, last one first."""
        while self._children:
            self._children.pop().stop()

    def kill(self) -> None:
        """End every process as a power cut would."""
        while self._children:
            self._children.pop().kill()

    def rss_bytes(self) -> int:
        """Return the resident memory of the broker."""
        return sum(child.rss_bytes() for child in self._children)

    def processor_seconds(self) -> float:
        """Return how long the broker has kept processors busy."""
        return sum(child.processor_seconds() for child in self._children)

    def load(self, messages: int) -> int:
        """Return this peer's share of a load."""
        return max(1000, round(messages * self.load_share))
