"""Messages of the quorum as bytes, and the check of what another node sends.

Shape: codec. A message is a msgpack array ``[sender, to, term, body]``; a body is an array that
begins with the number of its kind (``core/raft/messages.py``). Fields are only ever added at the
end. Every count and length is compared with its limit while it is decoded; a message that no node
following the rules could have sent is refused before the stepper sees it.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from goqueue.base.cluster_limits import RAFT_MESSAGE_BYTES_MAX
from goqueue.base.errors import ProtocolError
from goqueue.core.raft.messages import (
    NO_PEER,
    Append,
    Entry,
    EntryKind,
    InstallSnapshot,
    LogIndex,
    RaftMessage,
    Term,
)
from goqueue.core.raft.quorum import change_in

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(RaftMessage).decode


def encode_message(message: RaftMessage) -> bytes:
    """Return the bytes of a message."""
    return _encode(message)


def decode_message(raw: bytes | memoryview) -> RaftMessage:
    """Return a message that makes sense, or raise ProtocolError."""
    if len(raw) > RAFT_MESSAGE_BYTES_MAX:
        raise ProtocolError(f"a message of the quorum has {len(raw)} bytes")
    try:
        message = _decode(raw)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ProtocolError(f"no message of the quorum: {error}") from error
    if NO_PEER in (message.sender, message.to):
        raise ProtocolError("a message of the quorum names its sender and receiver")
    match message.body:
        case Append(previous_index=index, previous_term=term, entries=entries):
            _check_entries(index, term, entries, latest=message.term)
        case InstallSnapshot(snapshot=snapshot) if snapshot.term > message.term:
            raise ProtocolError("a snapshot is of a later term than its message")
        case _:
            pass
    return message


def _check_entries(index: LogIndex, term: Term, entries: Sequence[Entry], *, latest: Term) -> None:
    """Refuse entries that do not follow one another, or are of a term to come."""
    for entry in entries:
        index = LogIndex(index + 1)
        if entry.index != index or not term <= entry.term <= latest:
            raise ProtocolError(f"entry {entry.index} does not follow the one before it")
        if entry.kind is EntryKind.CHANGE:
            _check_change(entry)
        term = entry.term


def _check_change(entry: Entry) -> None:
    try:
        change_in(entry)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"entry {entry.index} is no change of the membership") from error
