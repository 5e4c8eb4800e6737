"""What a node of the quorum must not forget: a journal, and a snapshot beside it.

``cluster/raft.journal`` is a ``Journal``. A record is a msgpack array ``[hard state, entries,
base]``: its entries replace those from their first index on. The first record has a base, which
says what the entries follow and which snapshot they need. The base of a node that was just founded
brings its snapshot along; later there is ``cluster/raft.snapshot``:

     0        4
    +--------+----------------------
    | crc32c | snapshot as msgpack …       big-endian
    +--------+----------------------

A torn end was never acknowledged. Damage is: the node may have promised what is lost, a vote or an
entry. It then goes on from what is good, a state it once had, in another *life*: the quorum counts
with it again when the others have taken that into account (``core/raft/raft.py``). What cannot be
read is kept in ``raft.journal.lost``.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from crc32c import crc32c

from goqueue.base.cluster_limits import RAFT_APPEND_BYTES_MAX
from goqueue.base.errors import StorageFailedError
from goqueue.base.ids import Position
from goqueue.core.raft.messages import (
    Entry,
    HardState,
    LogIndex,
    Membership,
    Snapshot,
    StoredState,
    Term,
)
from goqueue.storage.disk import Disk, write_atomically
from goqueue.storage.journal import Journal

DIRECTORY: Final = "cluster"
JOURNAL_PATH: Final = f"{DIRECTORY}/raft.journal"
SNAPSHOT_PATH: Final = f"{DIRECTORY}/raft.snapshot"
LOST_PATH: Final = f"{JOURNAL_PATH}.lost"
FOUNDED_AT: Final = (LogIndex(1), Term(1))
"""The place of the snapshot all founders begin with. Nodes that join later are sent one."""
EMPTY: Final = Snapshot(LogIndex(0), Term(0), Membership(), b"")

_CRC: Final = struct.Struct(">I")


class Base(msgspec.Struct, frozen=True, array_like=True):
    """Where the entries of a journal begin."""

    index: LogIndex
    term: Term
    snapshot_index: LogIndex
    """The snapshot needed is of this entry or a later one."""
    snapshot: Snapshot | None = None


class StoredRecord(msgspec.Struct, frozen=True, array_like=True):
    """One write of the journal."""

    hard_state: HardState
    entries: tuple[Entry, ...] = ()
    base: Base | None = None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(StoredRecord).decode
_decode_snapshot: Final = msgspec.msgpack.Decoder(Snapshot).decode


class RaftStore:
    """The files of one node. ``life`` numbers the life that begins if something was lost.

    It must be greater than any before, as milliseconds of the wall clock are. ``restored`` is what
    was found: None if nothing was ever written. Then the host calls ``found`` on the first nodes of
    a cluster, ``join`` on later ones, and ``begin_again`` on one it knows to have been a member.
    """

    def __init__(self, disk: Disk, *, life: int) -> None:
        assert life > 0, "the first life is 0"
        self._disk = disk
        disk.make_directory(DIRECTORY)
        self._journal = Journal(disk, JOURNAL_PATH, past_damage=True)
        self.has_lost = False
        """Whether something was damaged or missing that the node may have promised."""
        self.restored = self._load(life)
        self._journal.records.clear()

    def __repr__(self) -> str:
        return f"<RaftStore: {self._journal!r}>"

    @property
    def size_bytes(self) -> int:
        """Length of the journal."""
        return self._journal.size_bytes

    def found(self, membership: Membership, data: bytes = b"") -> StoredState:
        """Begin a quorum, in the same way on each of its first nodes."""
        assert self.restored is None, "nothing was ever written"
        return self._begin(Snapshot(*FOUNDED_AT, membership, data), HardState(FOUNDED_AT[1]))

    def join(self) -> StoredState:
        """Begin without anything: the leader will send it."""
        assert self.restored is None, "nothing was ever written"
        return self._begin(EMPTY, HardState())

    def begin_again(self, *, life: int) -> StoredState:
        """Begin without anything on a node that was a member before: all it promised is lost."""
        assert self.restored is None, "nothing is left"
        self.has_lost = True
        return self._begin(EMPTY, HardState(life=life))

    def _begin(self, snapshot: Snapshot, hard_state: HardState) -> StoredState:
        base = Base(snapshot.index, snapshot.term, snapshot.index, snapshot)
        self._journal.append(_pack(hard_state, (), base))
        self.restored = StoredState(
            hard_state=hard_state, snapshot=snapshot, boundary=(snapshot.index, snapshot.term)
        )
        return self.restored

    def save(self, hard_state: HardState, entries: Sequence[Entry]) -> None:
        """Make a vote and entries durable; what the log had from the first of them on is gone."""
        self._journal.append(_pack(hard_state, entries))

    def save_snapshot(self, state: StoredState) -> None:
        """Make a snapshot durable and keep only the entries that belong to it."""
        body = _encode(state.snapshot)
        write_atomically(self._disk, SNAPSHOT_PATH, _CRC.pack(crc32c(body)) + body)
        self._rewrite(state)

    def close(self) -> None:
        """Release the file."""
        self._journal.close()

    def _rewrite(self, state: StoredState) -> None:
        base = Base(*state.boundary, state.snapshot.index)
        self._journal.rewrite(_pack(state.hard_state, state.entries, base))

    def _load(self, life: int) -> StoredState | None:
        records = [_understand(raw) for raw in self._journal.records]
        snapshot, is_readable = self._load_snapshot()
        if not records and not self._journal.damaged:
            if snapshot is None and is_readable:
                return None
            self.has_lost = True
        state = _replay(records, snapshot)
        self.has_lost = (
            self.has_lost or state is None or not is_readable or bool(self._journal.damaged)
        )
        if state is None:
            state = _beginning(records, snapshot)
        if not self.has_lost:
            return state
        hard = state.hard_state
        state = StoredState(
            hard_state=HardState(hard.term, hard.vote, hard.commit, max(life, hard.life + 1)),
            snapshot=state.snapshot,
            boundary=state.boundary,
            entries=state.entries,
        )
        if self._journal.damaged:
            write_atomically(self._disk, LOST_PATH, self._journal.damaged)
        self.save_snapshot(state)
        return state

    def _load_snapshot(self) -> tuple[Snapshot | None, bool]:
        """Return the snapshot of the file, and False if there is one that cannot be read."""
        if not self._disk.exists(SNAPSHOT_PATH):
            return None, True
        file = self._disk.open(SNAPSHOT_PATH)
        try:
            raw = file.read(Position(0), file.size())
        finally:
            file.close()
        body = raw[_CRC.size :]
        if len(raw) < _CRC.size or _CRC.unpack_from(raw)[0] != crc32c(body):
            return None, False
        try:
            return _decode_snapshot(body), True
        except msgspec.MsgspecError as error:
            raise StorageFailedError(_unknown(SNAPSHOT_PATH, error)) from error


def _pack(
    hard_state: HardState, entries: Sequence[Entry], base: Base | None = None
) -> Iterator[bytes]:
    """Return records of bounded size. A crash between them leaves a part that was not promised."""
    piece: list[Entry] = []
    size = 0
    for entry in entries:
        if piece and size + len(entry.data) > RAFT_APPEND_BYTES_MAX:
            yield _encode(StoredRecord(hard_state, tuple(piece), base))
            piece, size, base = [], 0, None
        piece.append(entry)
        size += len(entry.data) + 1
    yield _encode(StoredRecord(hard_state, tuple(piece), base))


def _understand(raw: bytes) -> StoredRecord:
    try:
        return _decode(raw)
    except msgspec.MsgspecError as error:
        raise StorageFailedError(_unknown(JOURNAL_PATH, error)) from error


def _unknown(path: str, error: Exception) -> str:
    return (
        f"{path} holds something that this version of GoQueue does not understand ({error});"
        " a newer version may have written it"
    )


def _replay(records: Sequence[StoredRecord], snapshot: Snapshot | None) -> StoredState | None:
    """Return the state that the records lead to; None if the snapshot they need is not there."""
    if not records or records[0].base is None:
        return None
    base = records[0].base
    known = [one for one in (base.snapshot, snapshot) if one is not None]
    latest = max(known, key=lambda one: one.index, default=None)
    if latest is None or latest.index < base.snapshot_index:
        return None
    entries: list[Entry] = []
    for record in records:
        if record.entries:
            del entries[record.entries[0].index - base.index - 1 :]
            entries.extend(record.entries)
    boundary = base.index, base.term
    place = latest.index - base.index
    terms = [base.term, *(entry.term for entry in entries)]
    # The power failed between the snapshot and the journal: what it replaces is still there.
    if place >= len(terms) or terms[place] != latest.term:
        boundary, entries = (latest.index, latest.term), []
    return StoredState(
        hard_state=records[-1].hard_state, snapshot=latest, boundary=boundary, entries=entries
    )


def _beginning(records: Sequence[StoredRecord], snapshot: Snapshot | None) -> StoredState:
    """Return what can be begun with where the journal or its snapshot is lost."""
    latest = snapshot or EMPTY
    known = records[-1].hard_state if records else HardState()
    hard_state = HardState(known.term, known.vote, latest.index, known.life)
    return StoredState(hard_state=hard_state, snapshot=latest, boundary=(latest.index, latest.term))
