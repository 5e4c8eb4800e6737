"""Nodes of a quorum that carry out their effects at once, and a network a test can shape."""

from collections.abc import Callable, Iterable, Sequence

from goqueue.core.raft.messages import (
    Body,
    Effects,
    Entry,
    EntryKind,
    HardState,
    LogIndex,
    Membership,
    PeerId,
    RaftMessage,
    RaftRole,
    ReadState,
    Snapshot,
    StoredState,
    Term,
)
from goqueue.core.raft.raft import Raft
from goqueue.core.raft.state import RaftConfig

ELECTION, HEARTBEAT = 10, 1


def peers(*numbers: int) -> tuple[PeerId, ...]:
    return tuple(PeerId(number) for number in numbers)


def entry(index: int, term: int, data: bytes = b"", kind: EntryKind | None = None) -> Entry:
    kind = kind or (EntryKind.DATA if data else EntryKind.EMPTY)
    return Entry(LogIndex(index), Term(term), kind, data)


def message(sender: int, to: int, term: int, body: Body) -> RaftMessage:
    return RaftMessage(PeerId(sender), PeerId(to), Term(term), body)


def stored(
    voters: Iterable[int] = (1, 2, 3),
    *,
    learners: Iterable[int] = (),
    terms: Sequence[int] = (),
    hard: HardState | None = None,
) -> StoredState:
    """A node whose log, behind the founding at (1, 1), has entries of these terms."""
    membership = Membership(peers(*voters), peers(*learners))
    snapshot = Snapshot(LogIndex(1), Term(1), membership, b"")
    entries = [entry(at, term, b"%d" % at) for at, term in enumerate(terms, 2)]
    last = terms[-1] if terms else 1
    return StoredState(
        hard_state=hard or HardState(Term(last)),
        snapshot=snapshot,
        boundary=(LogIndex(1), Term(1)),
        entries=entries,
    )


def raft_of(
    number: int,
    state: StoredState | None = None,
    *,
    draw: Callable[[int], int] = lambda _: 0,
    window_max: int = 4,
    append_bytes_max: int = 1 << 20,
    uncommitted_bytes_max: int = 1 << 20,
) -> Raft:
    config = RaftConfig(
        node=PeerId(number),
        election_ticks=ELECTION,
        heartbeat_ticks=HEARTBEAT,
        window_max=window_max,
        append_bytes_max=append_bytes_max,
        uncommitted_bytes_max=uncommitted_bytes_max,
    )
    return Raft(config, state or stored(), draw)


def finish(raft: Raft) -> list[Effects]:
    """Carry out all effects of a node; return them."""
    done = []
    while raft.has_effects:
        effects = raft.take_effects()
        raft.persisted(effects)
        raft.applied(effects)
        done.append(effects)
    return done


def said(raft: Raft) -> list[RaftMessage]:
    """Carry out all effects; return the messages among them."""
    return [one for effects in finish(raft) for one in (*effects.messages, *effects.replies)]


def bodies(raft: Raft, kind: type[Body] | None = None) -> list[Body]:
    """Carry out all effects; return what the node said, of one kind."""
    return [one.body for one in said(raft) if kind is None or isinstance(one.body, kind)]


class Group:
    """Several nodes. ``settle`` delivers messages until it is quiet."""

    def __init__(self, *numbers: int, states: dict[int, StoredState] | None = None) -> None:
        states = states or {}
        founders = numbers or (1, 2, 3)
        self.rafts = {
            number: raft_of(number, states.get(number) or stored(founders)) for number in founders
        }
        self.cut: set[tuple[int, int]] = set()
        self.ignored: tuple[type[Body], ...] = ()
        self.reads: dict[int, list[ReadState]] = {number: [] for number in self.rafts}
        self.applied: dict[int, list[Entry]] = {number: [] for number in self.rafts}
        self.snapshots: dict[int, list[Snapshot]] = {number: [] for number in self.rafts}
        self.heard: list[RaftMessage] = []

    def __getitem__(self, number: int) -> Raft:
        return self.rafts[number]

    def add(self, raft: Raft) -> None:
        """Let another node take part."""
        number = raft.node
        self.rafts[number] = raft
        self.reads[number], self.applied[number], self.snapshots[number] = [], [], []

    def collect(self) -> list[RaftMessage]:
        """Carry out the effects of all nodes; return what they say to whom they can reach."""
        messages = []
        for number, raft in self.rafts.items():
            for effects in finish(raft):
                self.reads[number] += effects.reads
                self.applied[number] += effects.committed
                self.snapshots[number] += [effects.snapshot] if effects.snapshot else []
                messages += [*effects.messages, *effects.replies]
        return [
            one
            for one in messages
            if (one.sender, one.to) not in self.cut
            and not isinstance(one.body, self.ignored)
            and one.to in self.rafts
        ]

    def settle(self) -> None:
        """Deliver until it is quiet."""
        for _ in range(200):
            messages = self.collect()
            if not messages:
                return
            self.heard += messages
            for one in messages:
                self.rafts[one.to].step(one)
        raise AssertionError("they never stop talking")

    def isolate(self, number: int) -> None:
        """Cut a node off."""
        for other in self.rafts:
            self.cut |= {(number, other), (other, number)}

    def heal(self) -> None:
        """Mend all links."""
        self.cut = set()
        self.ignored = ()

    def elect(self, number: int) -> Raft:
        """Have a node win an election, in place of any leader."""
        self.expire_leases()
        self.rafts[number].campaign()
        self.settle()
        assert self.rafts[number].role is RaftRole.LEADER
        return self.rafts[number]

    def expire_leases(self) -> None:
        """Let all nodes forget when they last heard of a leader."""
        for raft in self.rafts.values():
            raft._state.election_elapsed = ELECTION  # noqa: SLF001 - faster than to wait

    def tick(self, number: int, times: int = 1) -> None:
        """Let time pass for one node, and settle after each tick."""
        for _ in range(times):
            self.rafts[number].tick()
            self.settle()

    def propose(self, number: int, *data: bytes) -> None:
        """Propose and settle."""
        self.rafts[number].propose(list(data) or [b"data"])
        self.settle()

    def roles(self) -> dict[int, RaftRole]:
        return {number: raft.role for number, raft in self.rafts.items()}

    def logs(self) -> dict[int, list[int]]:
        """The terms of all entries, by node."""
        return {
            number: [one.term for one in raft.log.entries] for number, raft in self.rafts.items()
        }

    def commits(self) -> dict[int, int]:
        return {number: raft.log.commit for number, raft in self.rafts.items()}

    def leaders(self) -> list[int]:
        return [number for number, role in self.roles().items() if role is RaftRole.LEADER]


def behind() -> Group:
    """Return three nodes, the third cut off, and the leader's log compacted past its end."""
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(3)
    for at in range(5):
        group.propose(1, b"%d" % at)
    group[1].compact(b"state", keep=0)
    return group
