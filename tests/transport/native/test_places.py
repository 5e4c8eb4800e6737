"""Where files lie is told to clients on the broker's machine only, whatever others ask for."""

import msgspec
import pytest

from goqueue.base.units import MiB
from goqueue.core.record.message import Draft
from goqueue.core.record.row import encode_row
from goqueue.wire import calls
from goqueue.wire.packet import Operation
from tests.transport.native.raw import NOW_US, Raw
from tests.transport.native.running import Running

ROWS, VALUE_BYTES = 40, 64 * 1024


def _fetch(raw: Raw) -> tuple[calls.FetchedPart, int]:
    """Ask for all of it in place; return the answer and how many bytes came with it."""
    fetch = calls.Fetch("orders", 32 * MiB, 0, [calls.FetchPart(0, 0)], in_place=1 * MiB)
    raw.send(Operation.FETCH, fetch)
    packet = raw.receive()
    assert packet is not None
    return msgspec.msgpack.decode(packet.header, type=calls.Fetched).parts[0], len(packet.payload)


@pytest.mark.parametrize(("host", "is_local"), [("127.0.0.1", True), ("127.0.0.2", False)])
def test_the_broker_decides_who_reads_in_place(
    server: Running, host: str, *, is_local: bool
) -> None:
    """Who comes from another address gets frames, no more at once than were asked for in place."""
    with server.connect(own_host=host) as raw:
        raw.create()
        frame = encode_row(Draft(value=bytes(VALUE_BYTES), timestamp_us=NOW_US))
        for _ in range(ROWS):
            assert raw.offer(frame)[1] == ""
        part, size = _fetch(raw)

        assert (part.place is not None) == is_local
        assert (size == 0) == is_local
        assert size <= MiB
        assert part.next_offset > 0
