"""A quorum without processes: nodes, disks and a network that does as it likes, from a seed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from goqueue.base.errors import GoQueueError
from goqueue.core.raft.messages import (
    ChangeKind,
    Effects,
    Entry,
    EntryKind,
    HardState,
    LogIndex,
    Membership,
    MembershipChange,
    PeerId,
    RaftMessage,
    RaftRole,
    Snapshot,
    StoredState,
    Term,
)
from goqueue.core.raft.quorum import is_majority
from goqueue.core.raft.raft import Raft
from goqueue.core.raft.state import RaftConfig
from tests.core.raft.invariants import Invariants, check

ELECTION_TICKS: Final = 5
HEARTBEAT_TICKS: Final = 1
NETWORK_MESSAGES_MAX: Final = 60
FOUNDED: Final = (LogIndex(1), Term(1))
NODES_MAX: Final = 7


@dataclass(slots=True)
class Record:
    """What one write made durable."""

    hard_state: HardState
    entries: tuple[Entry, ...]


@dataclass(slots=True)
class SimulatedDisk:
    """A snapshot and the writes since; what was written is synced."""

    snapshot: Snapshot
    boundary: tuple[LogIndex, Term]
    records: list[Record] = field(default_factory=list)

    def write(self, effects: Effects) -> None:
        """Make effects durable."""
        if effects.hard_state is None:
            return
        if effects.snapshot is not None:
            self.snapshot = effects.snapshot
            self.boundary = effects.snapshot.index, effects.snapshot.term
            self.records = []
        self.records.append(Record(effects.hard_state, tuple(effects.entries)))

    def compact(self, raft: Raft) -> None:
        """Replace the writes by what is left of the log."""
        log = raft.log
        hard_state = self.records[-1].hard_state if self.records else HardState()
        self.snapshot = log.snapshot
        self.boundary = log.boundary_index, log.boundary_term
        durable = log.entries[: log.stable - log.boundary_index]
        self.records = [Record(hard_state, tuple(durable))]

    def restore(self) -> StoredState:
        """Read everything back: later entries replace those from their index on."""
        first = self.boundary[0] + 1
        entries: list[Entry] = []
        hard_state = HardState()
        for record in self.records:
            hard_state = record.hard_state
            if record.entries:
                del entries[record.entries[0].index - first :]
                entries.extend(record.entries)
        if self.boundary[0] + len(entries) < self.snapshot.index:
            self.boundary, entries = (self.snapshot.index, self.snapshot.term), []
        return StoredState(
            hard_state=hard_state, snapshot=self.snapshot, boundary=self.boundary, entries=entries
        )


class Member:
    """A process of the quorum, or the place where one was."""

    def __init__(self, node: PeerId, disk: SimulatedDisk) -> None:
        self.node = node
        self.disk = disk
        self.raft: Raft | None = None
        self.under_way: Effects | None = None
        self.state: list[bytes] = []
        """What the host has applied: the data of all entries."""
        self.reads: dict[int, LogIndex] = {}
        """Reads that wait, with what was committed anywhere when they were asked for."""


class World:
    """Runs a quorum from a seed; every step is checked."""

    def __init__(self, seed: int, *, voters: int = 3, faults: bool = True) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.invariants = Invariants()
        self.members: dict[PeerId, Member] = {}
        self.network: list[RaftMessage] = []
        self.cut: set[tuple[PeerId, PeerId]] = set()
        self.steps = 0
        self.proposals = 0
        self.reads_answered = 0
        self.lives = 0
        self.loss = 0.0
        nodes = tuple(PeerId(node) for node in range(1, voters + 1))
        founded = Snapshot(*FOUNDED, Membership(nodes), b"")
        self.invariants.founded(founded.index)
        for node in nodes:
            self.members[node] = Member(node, SimulatedDisk(founded, FOUNDED))
            self.start(self.members[node])
        self._actions = FAULTS if faults else QUIET
        # Each seed has its own mix, so that some have much of what others never see.
        self._weights = [
            weight * (self.random.choice(MIX) if at >= len(QUIET) else 1)
            for at, (_, weight) in enumerate(self._actions)
        ]
        self._out_of_order = self.random.choice((0.0, 0.1, 0.3, 0.8))
        self._twice = self.random.choice((0.0, 0.05, 0.2))
        self._slow_disk = self.random.choice(((8,), (0, 1, 2, 8, 8, 8), (0, 0, 1, 1, 2)))

    def start(self, member: Member) -> None:
        """Start a process from what its disk holds."""
        config = RaftConfig(
            node=member.node,
            election_ticks=ELECTION_TICKS,
            heartbeat_ticks=HEARTBEAT_TICKS,
            window_max=4,
            append_bytes_max=40,
        )
        restored = member.disk.restore()
        self.invariants.restarted(member.node)
        member.raft = Raft(config, restored, self.random.randrange)
        member.under_way = None
        member.state = restored.snapshot.data.split(b",") if restored.snapshot.data else []
        member.reads = {}

    # One step

    def run(self, steps: int) -> None:
        """Do so many things at random."""
        chosen = self.random.choices(self._actions, self._weights, k=steps)
        for action, _ in chosen:
            action(self)
        self.steps += steps

    def alive(self) -> Member | None:
        """Return any process that runs."""
        member = self.random.choice(list(self.members.values()))
        return member if member.raft is not None else None

    def leading(self) -> Member | None:
        """Return a process that takes itself for the leader."""
        leaders = [
            member
            for member in self.members.values()
            if member.raft is not None and member.raft.role is RaftRole.LEADER
        ]
        return self.random.choice(leaders) if leaders else None

    def deliver(self) -> None:
        """Let a message arrive, out of order, again, or not at all."""
        if not self.network:
            self.tick()
            return
        is_late = self.random.random() < self._out_of_order
        at = self.random.randrange(len(self.network)) if is_late else 0
        is_repeated = self.random.random() < self._twice
        message = self.network[at] if is_repeated else self.network.pop(at)
        receiver = self.members.get(message.to)
        is_lost = (message.sender, message.to) in self.cut or self.random.random() < self.loss
        if receiver is None or receiver.raft is None or is_lost:
            return
        receiver.raft.step(message)
        self.invariants.after_step(receiver.raft)
        self.pump(receiver)

    def tick(self) -> None:
        """Let time pass for one process."""
        member = self.alive()
        if member is not None and member.raft is not None:
            member.raft.tick()
            self.invariants.after_step(member.raft)
            self.pump(member)

    def pump(self, member: Member) -> None:
        """Let a process carry out its effects, usually at once; its disk may be slow."""
        for _ in range(self.random.choice(self._slow_disk)):
            if not self.proceed(member):
                return

    def proceed(self, member: Member) -> bool:
        """Begin or finish one round of effects."""
        raft = member.raft
        if raft is None:
            return False
        effects = member.under_way
        if effects is None:
            if not raft.has_effects:
                return False
            member.under_way = raft.take_effects()
            self.send(member.under_way.messages)
            return True
        member.disk.write(effects)
        raft.persisted(effects)
        self.invariants.after_step(raft)
        self.send(effects.replies)
        self.apply(member, effects)
        raft.applied(effects)
        self.invariants.after_step(raft)
        member.under_way = None
        return True

    def send(self, messages: list[RaftMessage] | tuple[RaftMessage, ...] | object) -> None:
        """Hand messages to the network, which has little room."""
        assert isinstance(messages, list | tuple)
        self.network.extend(messages)
        while len(self.network) > NETWORK_MESSAGES_MAX:
            self.network.pop(self.random.randrange(len(self.network)))

    def apply(self, member: Member, effects: Effects) -> None:
        """Be the host's state machine, and see that reads are not answered too early."""
        if effects.snapshot is not None:
            data = effects.snapshot.data
            member.state = data.split(b",") if data else []
        member.state.extend(
            entry.data for entry in effects.committed if entry.kind is EntryKind.DATA
        )
        for read in effects.reads:
            asked = member.reads.pop(read.context, None)
            if asked is not None:
                self.reads_answered += 1
                check(read.index >= asked, "reads see what was committed", self.seed, read, asked)

    # What people do

    def propose(self) -> None:
        """Ask a leader for something."""
        member = self.leading()
        if member is not None and member.raft is not None:
            self.proposals += 1
            self._try(member, lambda raft: raft.propose([b"%d" % self.proposals]))

    def read(self) -> None:
        """Ask any process for a read."""
        member = self.alive()
        if member is not None and member.raft is not None:
            self.proposals += 1
            if member.raft.read(self.proposals):
                member.reads[self.proposals] = self.invariants.chosen_max
            self.pump(member)

    def transfer(self) -> None:
        """Ask a leader to hand over."""
        member = self.leading()
        if member is not None and member.raft is not None:
            target = self.random.choice(member.raft.membership.nodes)
            self._try(member, lambda raft: raft.transfer(target))

    def change(self) -> None:
        """Ask a leader for another membership; a new node has an empty disk."""
        member = self.leading()
        if member is None or member.raft is None:
            return
        nodes = member.raft.membership.nodes
        kind = self.random.choice(list(ChangeKind))
        node = self.random.choice(nodes)
        if self.random.random() < 0.5 and len(nodes) < NODES_MAX:
            node = PeerId(max(self.members) + 1)
            kind = self.random.choice((ChangeKind.ADD_LEARNER, ChangeKind.ADD_VOTER))
            nothing = Snapshot(LogIndex(0), Term(0), Membership(), b"")
            self.members[node] = Member(node, SimulatedDisk(nothing, (LogIndex(0), Term(0))))
            self.start(self.members[node])
        if kind is ChangeKind.REMOVE and len(member.raft.membership.voters) < 3:
            return
        self._try(member, lambda raft: raft.propose_change(MembershipChange(kind, node)))

    def compact(self) -> None:
        """Take a snapshot of what a process has applied."""
        member = self.alive()
        if member is None or member.raft is None or member.under_way is not None:
            return
        if member.raft.log.received is None and member.raft.log.applied > FOUNDED[0]:
            member.raft.compact(b",".join(member.state), keep=self.random.choice((0, 3, 10)))
            member.disk.compact(member.raft)

    def _try(self, member: Member, ask: Callable[[Raft], object]) -> None:
        assert member.raft is not None
        try:
            ask(member.raft)
        except GoQueueError:
            return
        self.invariants.after_step(member.raft)
        self.pump(member)

    # What goes wrong

    def crash(self) -> None:
        """End a process: what is not durable is lost."""
        member = self.alive()
        if member is not None:
            member.raft = None

    def crash_leader(self) -> None:
        """End a process that leads, usually with something half done."""
        member = self.leading()
        if member is not None:
            member.raft = None

    def cut_power(self) -> None:
        """End all processes, and start them again."""
        for member in self.members.values():
            self.start(member)

    def restart(self) -> None:
        """Start a process that was ended."""
        for member in self.members.values():
            if member.raft is None:
                self.start(member)
                return

    def damage(self) -> None:
        """Lose the end of a journal, or all of it, if every voter has all its promises."""
        member = self.alive()
        leader = self.leading()
        if member is None or leader is None or leader.raft is None or len(self.members) < 3:
            return
        membership = leader.raft.membership
        has_lost = any(
            other.raft is None or other.raft.is_quarantined or other.disk.records == []
            for other in self.members.values()
        )
        if has_lost or membership.recovering or len(membership.voters) < 3:
            return
        self.lives += 1
        member.raft = None
        kept = self.random.randrange(len(member.disk.records) + 1)
        del member.disk.records[kept:]
        restored = member.disk.restore()
        hard_state = restored.hard_state
        if self.random.random() < 0.3:
            nothing = Snapshot(LogIndex(0), Term(0), Membership(), b"")
            member.disk = SimulatedDisk(nothing, (LogIndex(0), Term(0)))
        lost = HardState(hard_state.term, hard_state.vote, hard_state.commit, self.lives)
        member.disk.records.append(Record(lost, ()))
        self.start(member)

    def split(self) -> None:
        """Cut some links, perhaps one way only."""
        nodes = list(self.members)
        self.cut = {(a, b) for a in nodes for b in nodes if a != b and self.random.random() < 0.4}
        if self.random.random() < 0.5:
            self.cut |= {(b, a) for a, b in self.cut}

    def isolate(self) -> None:
        """Cut one process off."""
        node = self.random.choice(list(self.members))
        self.cut = {(node, other) for other in self.members} | {
            (other, node) for other in self.members
        }

    def heal(self) -> None:
        """Mend the network, but for a little loss."""
        self.cut = set()
        self.loss = self.random.choice((0.0, 0.0, 0.1, 0.3))

    # The end

    def settle(self, rounds: int = 400) -> None:
        """Mend everything; a leader must be found, and all members must agree."""
        self.cut, self.loss = set(), 0.0
        for member in self.members.values():
            if member.raft is None:
                self.start(member)
        for at in range(rounds):
            for member in list(self.members.values()):
                assert member.raft is not None
                member.raft.tick()
                self.invariants.after_step(member.raft)
                while self.proceed(member):
                    pass
            self._deliver_all()
            if at % 20 == 19 and self._agrees():
                return
        check(
            self._is_beyond_help(),
            "a healed quorum agrees",
            self.seed,
            [m.raft for m in self.members.values()],
        )

    def _is_beyond_help(self) -> bool:
        """Return True if too many voters lost data for the others to be a majority."""
        rafts = [member.raft for member in self.members.values() if member.raft is not None]
        membership = max(rafts, key=lambda raft: raft.log.applied).membership
        lost = sum(raft.is_quarantined for raft in rafts if raft.node in membership.voters)
        return not is_majority(membership, len(membership.voters) - lost)

    def _deliver_all(self) -> None:
        for _ in range(30):
            if not self.network:
                return
            messages, self.network = self.network, []
            for message in messages:
                receiver = self.members[message.to]
                if receiver.raft is not None:
                    receiver.raft.step(message)
                    self.invariants.after_step(receiver.raft)
                    while self.proceed(receiver):
                        pass

    def _agrees(self) -> bool:
        leader = self.leading()
        if leader is None or leader.raft is None:
            return False
        self._try(leader, lambda raft: raft.propose([b"end"]))
        while self.proceed(leader):
            pass
        self._deliver_all()
        membership = leader.raft.membership
        if membership.recovering or leader.raft.log.applied != leader.raft.log.last_index:
            return False
        members = [self.members[node] for node in membership.nodes]
        return all(member.state == leader.state for member in members)


Action = Callable[[World], None]
FAULTS: Final[list[tuple[Action, float]]] = [
    (World.deliver, 100),
    (World.tick, 22),
    (World.propose, 8),
    (World.read, 2),
    (World.transfer, 0.3),
    (World.change, 0.7),
    (World.compact, 0.7),
    (World.crash, 0.5),
    (World.crash_leader, 0.3),
    (World.cut_power, 0.05),
    (World.restart, 1.0),
    (World.damage, 0.2),
    (World.split, 0.2),
    (World.isolate, 0.3),
    (World.heal, 0.7),
]
QUIET: Final[list[tuple[Action, float]]] = FAULTS[:4]
MIX: Final = (0, 0.3, 1, 3, 10)
