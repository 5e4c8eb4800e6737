"""Hostile bytes at a live broker: it answers or hangs up, stays small, and keeps serving.

Each target runs for GOQUEUE_FUZZ_SECONDS (a few by default). A failure prints its seed.
"""

import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from crc32c import crc32c

import goqueue
from goqueue.core.record.batch import pack_batch
from goqueue.core.record.columns import build_batch
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import NO_STAMP
from goqueue.wire import calls
from goqueue.wire.packet import Kind, Operation, encode_packet

SECONDS = float(os.environ.get("GOQUEUE_FUZZ_SECONDS", "4"))
MEMORY_GROWTH_MAX = 300 * 1024 * 1024
TOPIC = "victim"
GOOD = [b"good-%d" % number for number in range(50)]
REPLY_SECONDS = 60.0
SEEDS_MIN = 11


class Victim:
    """A broker that logs to a file, so that it never waits for a reader of its log."""

    def __init__(self, folder: Path) -> None:
        self.data_dir = folder / "data"
        log = folder / "log"
        command = [sys.executable, "-m", "goqueue", "serve", "--data", str(self.data_dir)]
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [*command, "--native", "127.0.0.1:0", "--http", "127.0.0.1:0"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        pause = threading.Event()
        ready: list[str] = []
        for _ in range(2_400):
            lines = [json.loads(line) for line in log.read_text().splitlines()]
            ready = [line["native"] for line in lines if line["event"] == "listening"]
            if ready:
                break
            pause.wait(0.05)
        (self.native,) = ready

    def stop(self) -> int:
        """Ask it to stop; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    victim = Victim(tmp_path_factory.mktemp("fuzz"))
    with goqueue.connect(victim.native) as client:
        client.create_topic(TOPIC, partitions=1)
        producer = client.producer(TOPIC)
        for value in GOOD:
            producer.send(value)
    yield victim
    victim.process.kill()
    victim.process.wait()


def packet(operation: int, header: calls.Call, payload: bytes = b"", correlation: int = 1) -> bytes:
    buffers = encode_packet(
        operation=operation,
        kind=Kind.REQUEST,
        correlation=correlation,
        header=msgspec.msgpack.encode(header),
        payload=[payload] if payload else [],
    )
    return b"".join(buffers)


HELLO = packet(Operation.HELLO, calls.Hello(calls.PROTOCOL_VERSION, "fuzz"))


def produce(frames: bytes) -> bytes:
    part = calls.ProducePart(0, len(frames))
    return packet(Operation.PRODUCE, calls.Produce(TOPIC, "all", [part]), frames, correlation=2)


def good_frames(now_us: int) -> list[bytes]:
    draft = Draft(value=b"bad if stored", key=b"k", timestamp_us=now_us, headers={"a": b"b"})
    batch, column_set = build_batch(
        keys=[b"k"] * 20, values=[b"bad if stored"] * 20, timestamps_us=[now_us] * 20
    )
    packed = [
        pack_batch(
            batch,
            column_set=column_set,
            first_timestamp_us=now_us,
            last_timestamp_us=now_us,
            compression=compression,
        ).frame(NO_STAMP)
        for compression in (None, "lz4", "zstd")
    ]
    return [frame_drafts([draft]), *packed]


def mutate(dice: random.Random, raw: bytes, *, first: int = 0) -> bytes:
    """Flip, overwrite, cut or repeat a few bytes behind ``first``."""
    bytes_ = bytearray(raw)
    for _ in range(dice.randint(1, 6)):
        place = dice.randrange(first, len(bytes_))
        match dice.randrange(4):
            case 0:
                bytes_[place] ^= 1 << dice.randrange(8)
            case 1:
                size = min(dice.choice((1, 2, 4, 8)), len(bytes_) - place)
                bytes_[place : place + size] = dice.choice((b"\0", b"\xff", b"\x7f")) * size
            case 2:
                del bytes_[place : place + dice.randint(1, 8)]
            case _:
                bytes_[place:place] = dice.randbytes(dice.randint(1, 8))
        if len(bytes_) <= first:
            break
    return bytes(bytes_)


def seal(frame: bytes) -> bytes:
    """Make the checksum right again, so that what lies behind it is looked at."""
    if len(frame) < 34:
        return frame
    return frame[:4] + struct.pack(">I", crc32c(frame[8:])) + frame[8:]


def random_bytes(dice: random.Random) -> bytes:
    return dice.randbytes(dice.randint(1, 5_000))


def mutated_packets(dice: random.Random) -> bytes:
    frames = dice.choice(good_frames(0))
    fetch = calls.Fetch(TOPIC, 1 << 20, 0, [calls.FetchPart(0, 0)])
    whole = HELLO + packet(Operation.FETCH, fetch, correlation=3) + produce(frames)
    return mutate(dice, whole, first=dice.choice((0, len(HELLO))))


def mutated_headers(dice: random.Random) -> bytes:
    """A packet whose sizes are right and whose header is msgpack of the wrong shape."""
    raw = msgspec.msgpack.encode(
        dice.choice(([], {}, None, "x", [TOPIC] * 9, [2**63] * 4, [[[[]]]], [-1, "all", [[0, -5]]]))
    )
    operation = dice.choice([int(one) for one in Operation if one is not Operation.DELETE_TOPIC])
    head = struct.pack(">IBBII", 10 + len(raw), operation, 0, dice.randrange(2**32), len(raw))
    return HELLO + head + raw


def mutated_frames(dice: random.Random) -> bytes:
    frame = mutate(dice, dice.choice(good_frames(0)), first=dice.choice((8, 26, 34)))
    return HELLO + produce(seal(frame))


def lying_sizes(dice: random.Random) -> bytes:
    size = dice.choice((0, 1, 9, 10, 2**16, 34 * 2**20, 34 * 2**20 + 1, 2**31 - 1, 2**32 - 1))
    return HELLO + struct.pack(">IBBII", size, 21, 0, 1, dice.choice((0, 5, 2**20 + 1, 2**32 - 1)))


TARGETS: list[Callable[[random.Random], bytes]] = [
    random_bytes,
    mutated_packets,
    mutated_headers,
    mutated_frames,
    lying_sizes,
]


def attack(address: str, raw: bytes) -> None:
    """Send bytes, say that no more will come, and wait until the broker hangs up."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), REPLY_SECONDS) as connection:
        try:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 20):
                pass
        except ConnectionError:
            return


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
def test_hostile_bytes_hurt_only_their_sender(
    broker: Victim, target: Callable[[random.Random], bytes]
) -> None:
    """P10, P11: nothing bad is stored, memory stays bounded, a good client is served as ever."""
    process = psutil.Process(broker.process.pid)
    before = process.memory_info().rss
    deadline = time.monotonic() + SECONDS
    seed = 0
    while time.monotonic() < deadline or seed < SEEDS_MIN:
        attack(broker.native, target(random.Random(seed)))
        seed += 1
        assert process.is_running(), f"{target.__name__} with seed {seed - 1}"

    with goqueue.connect(broker.native) as client:
        values = [message.value for message in client.read(TOPIC)]
    assert values[: len(GOOD)] == GOOD
    assert process.memory_info().rss - before < MEMORY_GROWTH_MAX


def test_what_is_on_disk_is_whole(broker: Victim) -> None:
    """After all that, every checksum in the data directory holds."""
    assert broker.stop() == 0
    check = subprocess.run(
        [sys.executable, "-m", "goqueue", "verify", str(broker.data_dir), "--deep"],
        capture_output=True,
        check=False,
        timeout=120,
    )

    assert check.returncode == 0, check.stdout + check.stderr
