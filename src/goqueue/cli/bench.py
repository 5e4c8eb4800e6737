"""``goqueue bench``: the speed of a broker, seen from here."""

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from goqueue.cli.failure import Failure
from goqueue.cli.output import Grid, remark
from goqueue.cli.produce import Compression, CompressionName
from goqueue.cli.session import Session, command

if TYPE_CHECKING:
    from goqueue import Client

PERCENTILES: Final = (50, 90, 99, 100)
MIB: Final = 1024 * 1024

Messages = Annotated[int, typer.Option("-n", "--messages", min=1, help="Messages to publish.")]
Size = Annotated[int, typer.Option(min=0, max=1_000_000, help="Bytes of each value.")]
PartitionCount = Annotated[int, typer.Option("-p", "--partitions", min=1, help="Partitions.")]
Singles = Annotated[
    int, typer.Option(min=1, help="Messages published one at a time, each waiting for its ack.")
]
Embedded = Annotated[
    bool,
    typer.Option("--embedded", help="Measure a broker inside this process, on a new directory."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is measured."""

    messages: int
    value_bytes: int
    partitions: int
    singles: int
    compression: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How much work was done in how much time."""

    work: str
    messages: int
    value_bytes: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Return messages in a second."""
        return self.messages / self.seconds

    @property
    def mib_per_second(self) -> float:
        """Return the values' MiB in a second."""
        return self.messages * self.value_bytes / MIB / self.seconds


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "bench")(bench)


def bench(
    session: Session,
    *,
    messages: Messages = 200_000,
    size: Size = 100,
    partitions: PartitionCount = 3,
    singles: Singles = 500,
    compression: CompressionName = Compression.NONE,
    embedded: Embedded = False,
) -> None:
    """Measure publishing, reading and latency on a topic that is made for it and deleted after.

    Acks wait for the disk, as they do by default. Use an idle machine, and believe the second run.
    """
    load = Load(
        messages=messages,
        value_bytes=size,
        partitions=partitions,
        singles=singles,
        compression=None if compression is Compression.NONE else compression.value,
    )
    with _client(session, embedded=embedded) as client, _topic(client, load) as topic:
        rates = [
            _publish(client, topic, load),
            _read(client, topic, load),
            _read_batches(client, topic, load),
        ]
        latencies_ms = sorted(_latencies_ms(client, topic, load))
    _print(session, load, rates, latencies_ms)


@contextmanager
def _client(session: Session, *, embedded: bool) -> "Iterator[Client]":
    if not embedded:
        with session.connect() as client:
            yield client
        return
    # Only measuring needs the broker in here, and its log would be in the way.
    import goqueue  # noqa: PLC0415
    from goqueue.observability.logging import configure_logging  # noqa: PLC0415

    configure_logging(level="error", style="auto")
    directory = tempfile.mkdtemp(prefix="goqueue-bench-")
    try:
        with goqueue.open(directory) as client:
            yield client
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _topic(client: "Client", load: Load) -> Iterator[str]:
    name = f"bench-{secrets.token_hex(4)}"
    client.create_topic(name, partitions=load.partitions)
    try:
        yield name
    finally:
        client.delete_topic(name)


def _publish(client: "Client", topic: str, load: Load) -> Rate:
    value = secrets.token_bytes(load.value_bytes)
    keys = [b"key-%d" % number for number in range(1_000)]
    failures: list[Exception] = []
    producer = client.producer(
        topic, compression=load.compression, on_error=lambda error, _: failures.append(error)
    )
    send = producer.send
    started = time.perf_counter()
    for number in range(load.messages):
        send(value, key=keys[number % 1_000])
    producer.flush()
    seconds = time.perf_counter() - started
    if failures:
        raise failures[0]
    return _rate("publish, with keys, acks after fsync", load, seconds)


def _read(client: "Client", topic: str, load: Load) -> Rate:
    return _timed("read, as message objects", load, lambda: sum(1 for _ in client.read(topic)))


def _read_batches(client: "Client", topic: str, load: Load) -> Rate:
    return _timed(
        "read, as Arrow batches",
        load,
        lambda: sum(batch.num_rows for batch in client.read_batches(topic)),
    )


def _timed(work: str, load: Load, count: Callable[[], int]) -> Rate:
    started = time.perf_counter()
    found = count()
    seconds = time.perf_counter() - started
    if found != load.messages:
        raise Failure(f"{load.messages} messages were published and {found} read", code="data_loss")
    return _rate(work, load, seconds)


def _rate(work: str, load: Load, seconds: float) -> Rate:
    return Rate(work=work, messages=load.messages, value_bytes=load.value_bytes, seconds=seconds)


def _latencies_ms(client: "Client", topic: str, load: Load) -> Iterator[float]:
    value = secrets.token_bytes(load.value_bytes)
    with client.producer(topic, linger_ms=0) as producer:
        for _ in range(load.singles):
            started = time.perf_counter()
            producer.publish(value)
            yield (time.perf_counter() - started) * 1_000


def percentile(ascending: list[float], percent: int) -> float:
    """Return the value that so many percent of the values do not exceed."""
    place = -(-len(ascending) * percent // 100)
    return ascending[max(place, 1) - 1]


def _print(session: Session, load: Load, rates: list[Rate], latencies_ms: list[float]) -> None:
    points = {
        "max" if percent == PERCENTILES[-1] else f"p{percent}": percentile(latencies_ms, percent)
        for percent in PERCENTILES
    }
    data = {
        "messages": load.messages,
        "value_bytes": load.value_bytes,
        "partitions": load.partitions,
        "compression": load.compression,
        "rates": [
            {
                "work": rate.work,
                "messages_per_second": round(rate.per_second),
                "mib_per_second": round(rate.mib_per_second, 1),
                "seconds": round(rate.seconds, 4),
            }
            for rate in rates
        ],
        "publish_latency_ms": {name: round(value, 3) for name, value in points.items()},
    }
    rows = [
        (rate.work, f"{rate.per_second:,.0f}", f"{rate.mib_per_second:,.1f}", f"{rate.seconds:.3f}")
        for rate in rates
    ]
    session.show(data, Grid(columns=("WORK", ">MESSAGES/S", ">MiB/S", ">SECONDS"), rows=rows))
    if session.is_table:
        shown = ", ".join(f"{name} {value:.2f} ms" for name, value in points.items())
        remark(f"one message at a time, acknowledged after fsync: {shown}")
