"""Promise P2 as a program: what was acknowledged is, for every group, in exactly one state.

Fed with what publishers and consumers were told, and at any time compared with the ledgers of a
broker. What the broker confirmed must hold over any crash:

- a message whose ack was confirmed is never delivered again;
- a message is at most under one live lease, and each delivery counts up;
- a message is dead-lettered at most once, and then neither acked nor delivered;
- the states of a ledger add up to the messages there are.
"""

from collections import defaultdict
from collections.abc import Iterable

from pyroaring import BitMap64

from goqueue.base.ids import TopicPartition
from goqueue.core.delivery.ledger import Ledger
from goqueue.core.delivery.view import View
from goqueue.core.offset_sets import each

Place = tuple[str, TopicPartition]
"""A group and a partition."""


class ConservationError(AssertionError):
    """A promise was broken; every fault found is listed."""


class ConservationChecker:
    """Remembers what was confirmed and finds what contradicts it."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.published: dict[TopicPartition, BitMap64] = defaultdict(BitMap64)
        self.acked: dict[Place, BitMap64] = defaultdict(BitMap64)
        self.dead: dict[Place, BitMap64] = defaultdict(BitMap64)
        self._counts: dict[Place, dict[int, int]] = defaultdict(dict)

    def __repr__(self) -> str:
        sent = sum(map(len, self.published.values()))
        return f"<ConservationChecker: {sent} published, {len(self.faults)} faults>"

    def sent(self, partition: TopicPartition, offsets: Iterable[int]) -> None:
        """Note messages whose publish was acknowledged."""
        self.published[partition].update(offsets)

    def delivered(
        self,
        group: str,
        partition: TopicPartition,
        offsets: Iterable[int],
        failures: dict[int, int],
    ) -> None:
        """Note a delivery: offsets, and how often each had failed before."""
        place = (group, partition)
        for offset in offsets:
            if offset in self.acked[place]:
                self._fault(f"{group} {partition}@{offset} was acked and delivered again")
            if offset in self.dead[place]:
                self._fault(f"{group} {partition}@{offset} is a dead letter and was delivered")
            count = failures.get(offset, 0) + 1
            if count < self._counts[place].get(offset, 0):
                self._fault(f"{group} {partition}@{offset} counts down to delivery {count}")
            self._counts[place][offset] = count

    def settled(self, group: str, partition: TopicPartition, offsets: Iterable[int]) -> None:
        """Note acks that were confirmed."""
        self.acked[(group, partition)].update(offsets)

    def buried(self, group: str, partition: TopicPartition, offset: int) -> None:
        """Note a dead letter that was read."""
        place = (group, partition)
        if offset in self.dead[place]:
            self._fault(f"{group} {partition}@{offset} is a dead letter twice")
        if offset in self.acked[place]:
            self._fault(f"{group} {partition}@{offset} was acked and is a dead letter")
        self.dead[place].add(offset)

    def compare(self, group: str, partition: TopicPartition, ledger: Ledger, view: View) -> None:
        """Compare a ledger with the history, and with itself."""
        place = (group, partition)
        where = f"{group} {partition}"
        for offset in each(self.acked[place]):
            if not ledger.is_settled(offset):
                self._fault(f"{where}@{offset}: its ack was confirmed and is forgotten")
        census = states_of(ledger, view)
        total = sum(map(len, census.values()))
        union = BitMap64()
        for offsets in census.values():
            union |= offsets
        everything = BitMap64()
        begin = max(ledger.origin, view.start_offset)
        if begin < view.end_offset:
            everything.add_range(begin, view.end_offset)
        if total != len(union) or union != everything:
            shown = {name: len(offsets) for name, offsets in census.items()}
            self._fault(f"{where}: {shown} are not the {len(everything)} messages there are")
        ended = sum(ledger.outcomes)
        if ended != ledger.committed - ledger.origin + len(ledger.done):
            self._fault(f"{where}: {ended} messages ended, {ledger!r} knows others")
        lost = self.published[partition] - union - _before(begin)
        if lost:
            self._fault(f"{where}: published and nowhere: {each(lost).tolist()[:10]}")

    def check(self) -> None:
        """Raise if anything was found."""
        if self.faults:
            raise ConservationError("\n".join(self.faults[:20]))

    def _fault(self, text: str) -> None:
        self.faults.append(text)


def _before(offset: int) -> BitMap64:
    earlier = BitMap64()
    if offset > 0:
        earlier.add_range(0, offset)
    return earlier


def states_of(ledger: Ledger, view: View) -> dict[str, BitMap64]:
    """Return every message of a partition by its state for a group."""
    begin, end = max(ledger.origin, view.start_offset), view.end_offset
    everything = BitMap64()
    if begin < end:
        everything.add_range(begin, end)
    done = everything & (_before(ledger.committed) | ledger.done)
    leased = everything & ledger.leases.offsets
    waiting = everything & ledger.waiting.offsets
    doomed = BitMap64(ledger.dooms) & everything
    held = BitMap64()
    for offsets in ledger.holds.values():
        held |= offsets & everything
    held -= done
    open_ = everything - done - leased - waiting - doomed - held
    return {
        "done": done,
        "leased": leased,
        "waiting": waiting,
        "doomed": doomed,
        "held": held,
        "delayed": open_ & view.hidden,
        "cancelled": open_ & view.cancelled,
        "ready": open_ - view.hidden - view.cancelled,
    }
