"""The control frame that ends a transaction in a partition.

Shape: codec. The contract's payload, and the transaction's number in a header of the broker's own:

     0             8       10          12
    +-------------+-------+-----------+--------------------
    | producer id | epoch | name size | transactional id …       key: the transactional id
    +-------------+-------+-----------+--------------------      headers: __tx, the number (u64);
                                                                  __end, 1 if it is a commit
"""

import struct
from typing import Final, NamedTuple

from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import Offset
from goqueue.base.units import NS_PER_US
from goqueue.core.record.check import CheckedFrame
from goqueue.core.record.frame import (
    CONTROL,
    CONTROL_BYTES,
    HAS_HEADERS,
    TX_COMMIT,
    Buffer,
    FrameHeader,
    encode_frame,
    read_header,
)
from goqueue.core.record.headers import decode_headers, encode_headers
from goqueue.core.record.marks import END, NO, TRANSACTION, YES, check_flags
from goqueue.core.record.stamp import NO_STAMP

_PAYLOAD: Final = struct.Struct(">QHH")
_NUMBER: Final = struct.Struct(">Q")
assert _PAYLOAD.size == CONTROL_BYTES


class Control(NamedTuple):
    """The end of one transaction."""

    number: int
    is_commit: bool


def control_frame(
    control: Control, *, name: str, producer_id: int, epoch: int, timestamp_us: int
) -> CheckedFrame:
    """Return the frame that ends a transaction, ready to be appended."""
    key = name.encode()
    raw = encode_frame(
        flags=CONTROL | HAS_HEADERS | (TX_COMMIT if control.is_commit else 0),
        offset=Offset(0),
        timestamp_ns=timestamp_us * NS_PER_US,
        key=key,
        value=_PAYLOAD.pack(producer_id, epoch, len(key)) + key,
        headers=encode_headers(
            {
                TRANSACTION: _NUMBER.pack(control.number),
                END: YES if control.is_commit else NO,
            }
        ),
        priority=0,
    )
    return CheckedFrame(
        header=read_header(raw),
        frame=raw,
        rows=1,
        stamp=NO_STAMP,
        sequence_count=1,
        first_timestamp_us=timestamp_us,
    )


def read_control(header: FrameHeader, frame: Buffer) -> Control | None:
    """Return which transaction a checked frame ends; None if it ends none."""
    if not header.flags & CONTROL or header.is_hole:
        return None
    block = memoryview(frame)[header.size - header.headers_size :]
    check_flags(header.flags, header.value_size, block)
    number = decode_headers(block).get(TRANSACTION, b"")
    if len(number) != _NUMBER.size:
        raise CorruptFrameError("a control frame does not say which transaction it ends")
    return Control(_NUMBER.unpack(number)[0], bool(header.flags & TX_COMMIT))
