"""However greedy its clients are, the broker's memory stays below a ceiling."""

import resource
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from goqueue.base.limits import REPLY_BUFFER_BYTES_MAX
from goqueue.base.units import MiB
from goqueue.core.record.message import Draft
from goqueue.core.record.row import encode_row
from goqueue.wire import calls
from goqueue.wire.packet import Operation
from tests.acceptance.served import Served
from tests.transport.native.raw import NOW_US, Raw, begin_large, frames_of

FETCH = calls.Fetch("orders", 32 * MiB, 0, [calls.FetchPart(0, 0)])
FETCH_HUGE = calls.Fetch("huge", 32 * MiB, 0, [calls.FetchPart(0, 0)])
SLACK_BYTES = 80 * MiB


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker in its own process with 32 MiB of messages to read, small and huge ones."""
    # A thousand connections are more than many systems allow a process that does not ask.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    data: Path = tmp_path_factory.mktemp("memory") / "data"
    with Served(data) as running:
        with Raw(running.address) as raw:
            raw.greet()
            raw.create()
            raw.create("huge")
            for topic, count in (("orders", 64), ("huge", 2)):
                value = bytes(32 * MiB // count)
                frame = encode_row(Draft(value=value, timestamp_us=NOW_US))
                for _ in range(count):
                    assert raw.offer(frame, topic=topic)[1] == ""
            read_all(raw)
        yield running
        assert running.complaints() == []
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def crowd(served: Served) -> Iterator[ExitStack]:
    """Connections that end with the test."""
    del served
    with ExitStack() as stack:
        yield stack


def join(crowd: ExitStack, served: Served, *, receive_bytes: int | None = None) -> Raw:
    raw = crowd.enter_context(Raw(served.address, receive_bytes=receive_bytes))
    raw.greet()
    return raw


def read_all(raw: Raw) -> int:
    """Read the topic to its end; return how many bytes came."""
    offset = received = 0
    end = raw.end_offset()
    while offset < end:
        parts, frames = raw.fetch(calls.FetchPart(0, offset), bytes_max=32 * MiB)
        assert parts[0].failure is None, parts[0].failure
        offset = parts[0].next_offset
        received += len(frames)
    return received


def test_a_reader_that_does_not_read_holds_one_reply(served: Served, crowd: ExitStack) -> None:
    """Forty replies of 32 MiB asked for at once and not taken: one is made, and all come later."""
    other, slow = join(crowd, served), join(crowd, served)
    before = served.resident_bytes()
    wanted = [slow.send(Operation.FETCH, FETCH) for _ in range(40)]
    for _ in range(5):
        assert read_all(other) > 32 * MiB

    assert served.resident_bytes() - before < 32 * MiB + SLACK_BYTES
    answered = [packet.correlation for _ in wanted if (packet := slow.receive())]
    # Each carries its number: one that waited for the disk may come behind the next.
    assert sorted(answered) == wanted


def test_readers_that_do_not_read_share_one_budget(served: Served, crowd: ExitStack) -> None:
    """Sixty of them hold no more than the budget; the others go on, with smaller replies."""
    other = join(crowd, served)
    before = served.resident_bytes()
    for _ in range(60):
        join(crowd, served, receive_bytes=4_096).send(Operation.FETCH, FETCH)
    for _ in range(5):
        other.ping()
        assert read_all(other) > 32 * MiB

    assert served.resident_bytes() - before < REPLY_BUFFER_BYTES_MAX + SLACK_BYTES


def test_huge_messages_that_nobody_takes_are_bounded_too(served: Served, crowd: ExitStack) -> None:
    """A message comes whole or not at all, so when the budget is used up readers wait."""
    other = join(crowd, served)
    before = served.resident_bytes()
    for _ in range(60):
        join(crowd, served, receive_bytes=4_096).send(Operation.FETCH, FETCH_HUGE)
    for _ in range(100):
        other.ping()

    assert served.resident_bytes() - before < REPLY_BUFFER_BYTES_MAX + SLACK_BYTES


def test_a_declared_size_reserves_nothing(served: Served, crowd: ExitStack) -> None:
    """Hundreds of requests of 20 MiB that never arrive cost nothing and stop nobody."""
    before = served.resident_bytes()
    for _ in range(300):
        begin_large(join(crowd, served), arrived=1_000)
    other = join(crowd, served)

    assert other.offer(frames_of(*[bytes(MiB)] * 10), topic="huge")[1] == ""
    assert read_all(other) > 32 * MiB
    assert served.resident_bytes() - before < SLACK_BYTES


def test_a_thousand_connections_with_half_a_request_are_bounded(
    served: Served, crowd: ExitStack
) -> None:
    """Each may hold a little; what they hold beside the budget is small for each."""
    before = served.resident_bytes()
    for _ in range(900):
        raw = crowd.enter_context(Raw(served.address))
        begin_large(raw, arrived=20_000)
    other = join(crowd, served)

    assert read_all(other) > 32 * MiB
    assert served.resident_bytes() - before < 900 * 64 * 1_024 + SLACK_BYTES


def test_when_they_are_gone_so_is_what_they_held(served: Served) -> None:
    """After the crowd has left, a reader gets full replies again."""
    with Raw(served.address) as raw:
        raw.greet()
        _, frames = raw.fetch(calls.FetchPart(0, 0), bytes_max=32 * MiB)

    assert len(frames) > 31 * MiB
