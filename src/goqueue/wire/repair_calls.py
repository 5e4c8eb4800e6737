"""What a node asks another replica for when frames of its own are damaged.

Structs travel as msgpack arrays. The frames are the payload of the reply: whole frames that begin
at the offset asked for and end at ``next_offset``.
"""

from enum import IntEnum
from typing import Annotated, Final

import msgspec

from goqueue.base.cluster_limits import LEADER_EPOCHS_MAX
from goqueue.base.errors import ProtocolError
from goqueue.base.limits import FETCH_BYTES_MAX
from goqueue.wire.calls import Call
from goqueue.wire.replica_calls import Counter, EpochOrNone, ReplicaLogName

_UNREADABLE: Final = (msgspec.MsgspecError, ValueError)


class RepairOutcome(IntEnum):
    """What a replica has of a range that is damaged elsewhere."""

    FOUND = 0
    """The messages from the start of the range on, or some of them."""
    MISSING = 1
    """Not the first of them: they are damaged here, too, or were never here."""
    NOT_READY = 2
    """It is not known here yet; ask again."""


class RepairFetch(Call, frozen=True):
    """Ask for the messages of a range that has no good frame on the node that asks.

    ``epochs`` are those of the range there: a message is the same one only in the same epoch.
    """

    topic_id: Counter
    name: ReplicaLogName
    start_offset: Counter
    end_offset: Counter
    epochs: Annotated[list[tuple[EpochOrNone, Counter]], msgspec.Meta(max_length=LEADER_EPOCHS_MAX)]
    bytes_max: Annotated[int, msgspec.Meta(ge=1, le=FETCH_BYTES_MAX)]


class RepairFetched(Call, frozen=True):
    """What the replica has; the frames are the payload."""

    outcome: RepairOutcome
    next_offset: Counter


_decode_fetch = msgspec.msgpack.Decoder(RepairFetch).decode
_decode_fetched = msgspec.msgpack.Decoder(RepairFetched).decode


def decode_repair_fetch(raw: memoryview) -> RepairFetch:
    """Return a request for good frames, or raise ProtocolError."""
    try:
        call = _decode_fetch(raw)
    except _UNREADABLE as error:
        raise ProtocolError(f"not a request for a repair: {error}") from error
    if call.end_offset <= call.start_offset:
        raise ProtocolError("end_offset: must lie behind start_offset")
    return call


def decode_repair_fetched(raw: memoryview) -> RepairFetched:
    """Return an answer with good frames, or raise ProtocolError."""
    try:
        return _decode_fetched(raw)
    except _UNREADABLE as error:
        raise ProtocolError(f"not an answer to a request for a repair: {error}") from error
