"""The files of the quorum keep what was promised, or say that they cannot."""

from collections.abc import Callable, Sequence
from random import Random

import pytest

from goqueue.base.cluster_limits import RAFT_ENTRY_BYTES_MAX
from goqueue.base.ids import Position
from goqueue.base.limits import JOURNAL_RECORD_BYTES_MAX
from goqueue.core.raft.messages import (
    Entry,
    EntryKind,
    HardState,
    LogIndex,
    Membership,
    PeerId,
    Snapshot,
    StoredState,
    Term,
)
from goqueue.storage.raft_store import JOURNAL_PATH, LOST_PATH, SNAPSHOT_PATH, RaftStore
from goqueue.testing.disk import CrashError, MemoryDisk

MEMBERS = Membership((PeerId(1), PeerId(2), PeerId(3)))
LIFE = 99


def entry(index: int, term: int, data: bytes = b"x") -> Entry:
    return Entry(LogIndex(index), Term(term), EntryKind.DATA, data)


def hard(term: int, vote: int = 1, commit: int = 1) -> HardState:
    return HardState(Term(term), PeerId(vote), LogIndex(commit))


def compacted(index: int, term: int, *entries: Entry, boundary: int | None = None) -> StoredState:
    return StoredState(
        hard_state=hard(entries[-1].term if entries else term, commit=index),
        snapshot=Snapshot(LogIndex(index), Term(term), MEMBERS, b"state %d" % index),
        boundary=(LogIndex(boundary or index), Term(term)),
        entries=entries,
    )


def opened(disk: MemoryDisk) -> RaftStore:
    return RaftStore(disk, life=LIFE)


def founded(disk: MemoryDisk) -> RaftStore:
    store = opened(disk)
    store.found(MEMBERS)
    return store


def facts(state: StoredState | None) -> object:
    assert state is not None
    return state.hard_state, state.snapshot, state.boundary, list(state.entries)


def restored(disk: MemoryDisk) -> StoredState:
    store = opened(disk)
    assert not store.has_lost
    assert store.restored is not None
    return store.restored


def flip(disk: MemoryDisk, path: str, at: int, bit: int = 0) -> None:
    file = disk.open(path)
    raw = bytearray(file.read(Position(0), file.size()))
    raw[at] ^= 1 << bit
    file.truncate(0)
    file.append([bytes(raw)])
    file.sync()


def test_a_new_node_has_nothing() -> None:
    """It is founded or joins; both are found again."""
    disk = MemoryDisk()
    assert opened(disk).restored is None
    founder = founded(disk).restored
    assert facts(restored(disk)) == facts(founder)

    other = MemoryDisk()
    joined = opened(other).join()
    assert facts(restored(other)) == facts(joined)
    assert joined.snapshot.membership == Membership()


def test_later_entries_replace_those_from_their_index_on() -> None:
    """As the log of a follower does when a new leader disagrees."""
    disk = MemoryDisk()
    store = founded(disk)
    store.save(hard(2), [entry(2, 2), entry(3, 2), entry(4, 2)])
    store.save(hard(3), [entry(3, 3)])
    store.save(hard(4, vote=2), [])
    state = restored(disk.crash())

    assert list(state.entries) == [entry(2, 2), entry(3, 3)]
    assert state.hard_state == hard(4, vote=2)


def test_a_snapshot_replaces_what_came_before() -> None:
    """And entries go on behind it, or from a little before it."""
    disk = MemoryDisk()
    store = founded(disk)
    store.save(hard(2), [entry(at, 2) for at in range(2, 10)])
    state = compacted(7, 2, *(entry(at, 2) for at in range(5, 10)), boundary=4)
    store.save_snapshot(state)
    store.save(hard(3), [entry(10, 3)])
    found = restored(disk.crash())

    assert found.snapshot == state.snapshot
    assert found.boundary == (4, 2)
    assert [one.index for one in found.entries] == [5, 6, 7, 8, 9, 10]
    assert found.hard_state == hard(3)


def test_many_entries_are_cut_into_records() -> None:
    """A record of the journal is bounded, a write is not."""
    disk = MemoryDisk()
    store = founded(disk)
    large = [entry(at, 2, bytes(RAFT_ENTRY_BYTES_MAX)) for at in range(2, 8)]
    assert sum(len(one.data) for one in large) > JOURNAL_RECORD_BYTES_MAX
    store.save(hard(2), large)

    assert list(restored(disk.crash()).entries) == large


STEPS: Sequence[Callable[[RaftStore], object]] = [
    lambda store: store.found(MEMBERS),
    lambda store: store.save(hard(2), [entry(2, 2), entry(3, 2)]),
    lambda store: store.save(hard(3, vote=3), []),
    lambda store: store.save(hard(3, vote=3), [entry(3, 3), entry(4, 3)]),
    lambda store: store.save_snapshot(compacted(4, 3)),
    lambda store: store.save(hard(4), [entry(5, 4)]),
    lambda store: store.save_snapshot(compacted(9, 5, entry(10, 5))),
    lambda store: store.save(hard(5), [entry(11, 5)]),
]


def states_after() -> list[object]:
    disk = MemoryDisk()
    store = opened(disk)
    states: list[object] = [None]
    for step in STEPS:
        step(store)
        states.append(facts(restored(disk.reopen())))
    return states


@pytest.mark.parametrize("is_torn", [False, True])
def test_a_crash_at_any_operation_loses_nothing_that_was_acknowledged(is_torn: bool) -> None:  # noqa: FBT001
    """And is never taken for damage: such a node would have no vote for no reason."""
    states = states_after()
    operations = 1
    while True:
        disk = MemoryDisk()
        disk.fail_at(operations)
        done = 0
        try:
            store = opened(disk)
            for step in STEPS:
                step(store)
                done += 1
        except CrashError:
            pass
        else:
            assert operations > 20
            return
        store = opened(disk.crash(torn=Random(operations) if is_torn else None))
        assert not store.has_lost, operations
        found = None if store.restored is None else facts(store.restored)
        assert is_between(found, states[done], states[done + 1]), (operations, done)
        operations += 1


def is_between(found: object, before: object, after: object) -> bool:
    """A snapshot may be there already while the journal is still the old one."""
    if found in (before, after):
        return True
    if not isinstance(found, tuple) or not isinstance(after, tuple):
        return False
    return bool(found[1] == after[1] and found[0] == before[0])  # type: ignore[index]


def test_every_flipped_bit_of_a_journal_is_noticed() -> None:
    """In the middle or at the end: the node goes on from what is good, in another life."""
    disk = MemoryDisk()
    store = founded(disk)
    store.save(hard(2), [entry(2, 2), entry(3, 2)])
    store.save(hard(3), [entry(4, 3)])
    good = facts(store.restored)
    size = disk.open(JOURNAL_PATH).size()
    for position in range(size):
        hurt = MemoryDisk()
        copy = founded(hurt)
        copy.save(hard(2), [entry(2, 2), entry(3, 2)])
        copy.save(hard(3), [entry(4, 3)])
        flip(hurt, JOURNAL_PATH, position, bit=position % 8)
        found = opened(hurt)

        assert found.has_lost, position
        assert found.restored is not None
        assert found.restored.hard_state.life == LIFE
        assert list(found.restored.entries) in ([], [entry(2, 2), entry(3, 2)])
        assert hurt.exists(LOST_PATH)
        again = opened(hurt.crash())
        assert not again.has_lost
        assert facts(again.restored) == facts(found.restored)
    assert good is not None


def test_what_was_lost_begins_another_life_each_time() -> None:
    """Also if the clock that numbers lives was set back."""
    disk = MemoryDisk()
    founded(disk).save(hard(2), [entry(2, 2)])
    flip(disk, JOURNAL_PATH, -1)
    store = opened(disk)
    store.save(hard(2), [entry(2, 2)])
    flip(disk, JOURNAL_PATH, -1)
    state = RaftStore(disk, life=5).restored

    assert state is not None
    assert state.hard_state.life == LIFE + 1


@pytest.mark.parametrize("how", ["flip", "remove", "truncate"])
def test_a_lost_snapshot_is_noticed(how: str) -> None:
    """Entries without the state before them are worth nothing."""
    disk = MemoryDisk()
    store = founded(disk)
    store.save_snapshot(compacted(7, 2, entry(8, 3)))
    match how:
        case "flip":
            flip(disk, SNAPSHOT_PATH, 9)
        case "remove":
            disk.remove(SNAPSHOT_PATH)
        case _:
            disk.open(SNAPSHOT_PATH).truncate(3)
    found = opened(disk)

    assert found.has_lost
    assert found.restored is not None
    assert found.restored.snapshot.index == 0
    assert found.restored.hard_state.term == 3
    assert found.restored.hard_state.life == LIFE


def test_a_lost_journal_is_noticed() -> None:
    """The snapshot beside it shows that there was one; it is a state the node once had."""
    disk = MemoryDisk()
    store = founded(disk)
    store.save_snapshot(compacted(7, 2, entry(8, 3)))
    disk.remove(JOURNAL_PATH)
    found = opened(disk)

    assert found.has_lost
    assert found.restored is not None
    assert found.restored.snapshot.index == 7
    assert not found.restored.entries


def test_a_node_known_to_have_been_a_member_begins_again() -> None:
    """All its files are gone: it must not vote as if it had never promised anything."""
    disk = MemoryDisk()
    state = opened(disk).begin_again(life=LIFE)

    assert state.hard_state.life == LIFE
    assert facts(restored(disk)) == facts(state)
