"""Whole Arrow batches, each row to its partition, in requests larger than a socket takes."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import goqueue
from goqueue.base.units import MiB
from goqueue.client.blocking.link import BlockingLink, send_all
from goqueue.client.dial import Dial
from goqueue.client.producer.batch_sender import BatchSender
from goqueue.client.protocol.exchange import decode
from goqueue.core.record.batch import SCHEMAS
from goqueue.wire import calls
from goqueue.wire.packet import Operation
from tests.transport.native.running import Running

TOPIC = "orders"
NOW_US = 1_700_000_000_000_000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data: Path = tmp_path_factory.mktemp("batches") / "data"
    with Running(data) as server:
        yield server.address


def stored(values: list[bytes]) -> pa.RecordBatch:
    """Return a batch without keys."""
    times = np.full(len(values), NOW_US)
    columns = [pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary()), pa.array(times)]
    schema = SCHEMAS[0]
    arrays = [one.cast(field.type) for one, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@pytest.mark.parametrize(
    ("partitions", "rows", "value_bytes"),
    [(1, 10, 10), (3, 300, 60_000), (400, 4_000, 200)],
    ids=["small", "many-bytes", "many-partitions"],
)
def test_every_row_arrives_in_its_partition(
    address: str, partitions: int, rows: int, value_bytes: int
) -> None:
    """In the order it had; whether buffers go out joined, in parts or in several calls."""
    dice = np.random.default_rng(7)
    places = dice.integers(0, partitions, rows)
    values = [b"%06d" % row + dice.bytes(value_bytes) for row in range(rows)]
    with goqueue.connect(address) as client:
        client.create_topic(TOPIC, partitions=partitions, retention_ms=0)
        link = BlockingLink(address, Dial(timeout_s=60))
        identity = link.request(Operation.INIT_PRODUCER, calls.InitProducer())
        sender = BatchSender(link, decode(identity.header, calls.ProducerIdentity))
        sender.send(TOPIC, stored(values), places)
        sender.flush()
        link.close()
        found: dict[int, list[bytes]] = {}
        for batch in client.read_batches(TOPIC, start="earliest", end="latest"):
            for partition, value in zip(
                batch["partition"].to_pylist(), batch["value"].to_pylist(), strict=True
            ):
                found.setdefault(partition, []).append(value)
        client.delete_topic(TOPIC)

    assert sender.rows == rows
    assert found == {
        place: [values[row] for row in np.flatnonzero(places == place)]
        for place in np.unique(places).tolist()
    }


def test_a_peer_that_takes_a_little_now_and_then_does_not_hold_a_request() -> None:
    """The time is for the whole request."""
    ours, theirs = socket.socketpair()

    def drip() -> None:
        while theirs.recv(1):
            pass

    reader = threading.Thread(target=drip)
    with ours:
        for buffer_size in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            ours.setsockopt(socket.SOL_SOCKET, buffer_size, 4_096)
        ours.settimeout(0.2)
        reader.start()
        with pytest.raises(TimeoutError):
            send_all(ours, [bytes(32 * MiB), bytes(32 * MiB)])
        assert ours.gettimeout() == 0.2
    reader.join()
    theirs.close()
