"""The deciders, told as stories. See tests/golden."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import Epoch, Offset, PartitionId, ProducerId, Sequence
from goqueue.core.producers import identities
from goqueue.core.producers.dedup import DedupWindow
from goqueue.core.producers.identities import BlockSkipped, Identities, IdGiven
from goqueue.core.producers.ledger import Appended, ProducerLedger
from goqueue.core.record.stamp import ProducerStamp, Repeat
from goqueue.core.topics import catalog
from goqueue.core.topics.catalog import Catalog
from goqueue.core.topics.settings import TopicSettings
from goqueue.testing import golden
from goqueue.testing.clock import FakeClock

GOLDEN = Path(__file__).parents[1] / "golden"


class Shell:
    """Turns the commands of a script into calls; an error is an answer like any other."""

    def execute(self, command: str) -> str:
        verb, *words = command.split()
        perform: Callable[..., str] = getattr(self, verb)
        try:
            return perform(*words)
        except GoQueueError as error:
            return f"{error.code}: {error}"


def stamp_of(word: str) -> ProducerStamp:
    producer_id, epoch, sequence = map(int, word.split("/"))
    return ProducerStamp(ProducerId(producer_id), Epoch(epoch), Sequence(sequence))


def repeat_of(word: str) -> Repeat:
    row, place = word.split("@")
    partition, offset = map(int, place.split("/"))
    return Repeat(int(row), PartitionId(partition), Offset(offset))


class LedgerShell(Shell):
    """``publish producer/epoch/sequence count [row@partition/offset …]``; places are repeats."""

    def __init__(self) -> None:
        self.ledger = ProducerLedger()
        self.end = 0

    def publish(self, stamp: str, count: str, *repeats: str) -> str:
        original = self.ledger.judge(stamp_of(stamp), int(count))
        if original is not None:
            left_out = "".join(
                f", row {repeat.row} at {repeat.partition}/{repeat.offset}"
                for repeat in original.repeats
            )
            return f"repeat of {original.base_offset}{left_out}"
        event = Appended(
            stamp=stamp_of(stamp),
            sequence_count=int(count),
            base_offset=Offset(self.end),
            repeats=tuple(map(repeat_of, repeats)),
        )
        self.ledger.apply(event)
        self.end += int(count) - len(repeats)
        return f"appended {event.base_offset}..{self.end}"

    def others(self, count: str) -> str:
        self.end += int(count)
        return ""

    def many(self, count: str, producer: str) -> str:
        for sequence in range(int(count)):
            self.publish(f"{producer}/0/{sequence}", "1")
            self.others("1")
        return ""

    def restart(self) -> str:
        plain = msgspec.msgpack.decode(msgspec.msgpack.encode(self.ledger.snapshot()))
        self.ledger = ProducerLedger.restore(plain)
        return ""


class DedupShell(Shell):
    """``publish partition id …`` with ``-`` for a message without an id."""

    def __init__(self) -> None:
        self.clock = FakeClock(0)
        self.window = DedupWindow(1_000, ids_max=4)
        self.ends = {0: 0, 1: 0}

    def publish(self, partition: str, *ids: str) -> str:
        number = int(partition)
        repeats, fresh = self.window.find(
            [None if name == "-" else name.encode() for name in ids],
            partition=PartitionId(number),
            next_offset=Offset(self.ends[number]),
            now_ms=self.clock.now_ms(),
        )
        for event in fresh:
            self.window.apply(event)
        self.ends[number] += len(ids) - len(repeats)
        lines = [
            f"{event.dedup_id.decode()} at {event.partition}/{event.offset}" for event in fresh
        ]
        lines += [f"row {one.row} repeats {one.partition}/{one.offset}" for one in repeats]
        return "\n".join(lines)

    def advance(self, duration_ms: str) -> str:
        self.clock.advance(int(duration_ms))
        return ""

    def forget(self) -> str:
        return f"{self.window.forget(self.clock.now_ms())} forgotten, {len(self.window)} left"

    def resize(self, window_ms: str) -> str:
        self.window.resize(int(window_ms))
        return ""


class CatalogShell(Shell):
    """``create name partitions [setting=value …]``; ``restart`` replays the journal."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.journal: list[catalog.Event] = []

    def create(self, name: str, partitions: str, *settings: str) -> str:
        changes = dict(setting.split("=") for setting in settings)
        return self._commit(
            self.catalog.create(name, partitions=int(partitions), settings=changes, now_ms=0).events
        )

    def configure(self, name: str, *settings: str) -> str:
        changes = dict(setting.split("=") for setting in settings)
        return self._commit(self.catalog.configure(name, changes).events)

    def delete(self, name: str) -> str:
        return self._commit(self.catalog.delete(name).events)

    def show(self) -> str:
        lines = [self._describe(topic) for topic in self.catalog.topics.values()]
        return "\n".join(lines + [f"{name} deleted" for name in sorted(self.catalog.deleted)])

    def restart(self) -> str:
        self.catalog = Catalog()
        for event in self.journal:
            self.catalog.apply(event)
        return self.show()

    def compact(self) -> str:
        self.journal = list(self.catalog.snapshot())
        return f"{len(self.journal)} events"

    def _commit(self, events: tuple[catalog.Event, ...]) -> str:
        for event in events:
            self.journal.append(event)
            self.catalog.apply(event)
        return "\n".join(type(event).__name__ for event in events)

    @staticmethod
    def _describe(topic: catalog.Topic) -> str:
        defaults = msgspec.structs.asdict(TopicSettings())
        settings = msgspec.structs.asdict(topic.settings)
        changed = "".join(f" {k}={v}" for k, v in settings.items() if v != defaults[k])
        return f"{topic.name} {topic.partitions}{changed}"


class IdentitiesShell(Shell):
    """``renew id epoch`` and ``check id epoch``; ``restart`` replays the journal."""

    def __init__(self) -> None:
        self.identities = Identities()
        self.journal: list[identities.Event] = []

    def init(self) -> str:
        decision = self.identities.init()
        events = self._commit(decision.events)
        self.identities.apply(IdGiven(producer_id=decision.reply.producer_id))
        return f"{events}producer {decision.reply.producer_id} epoch {decision.reply.epoch}"

    def use_up_block(self) -> str:
        for _ in range(identities.IDS_PER_BLOCK - 1):
            self.init()
        return ""

    def renew(self, producer_id: str, epoch: str) -> str:
        decision = self.identities.renew(producer_id=int(producer_id), epoch=int(epoch))
        events = self._commit(decision.events)
        return f"{events}producer {decision.reply.producer_id} epoch {decision.reply.epoch}"

    def check(self, producer_id: str, epoch: str) -> str:
        self.identities.check(producer_id=int(producer_id), epoch=int(epoch))
        return ""

    def restart(self) -> str:
        self.identities = Identities()
        for event in self.journal:
            self.identities.apply(event)
        self.identities.apply(BlockSkipped())
        return ""

    def compact(self) -> str:
        self.journal = list(self.identities.snapshot())
        return f"{len(self.journal)} events"

    def _commit(self, events: tuple[identities.Event, ...]) -> str:
        for event in events:
            self.journal.append(event)
            self.identities.apply(event)
        return "".join(f"{type(event).__name__}\n" for event in events)


SHELLS: dict[str, type[Shell]] = {
    "catalog": CatalogShell,
    "dedup": DedupShell,
    "identities": IdentitiesShell,
    "ledger": LedgerShell,
}
SCRIPTS = sorted(path for name in SHELLS for path in (GOLDEN / name).glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_story(script: Path) -> None:
    """The decider behaves as the script says."""
    text = script.read_text()
    actual = golden.run(text, SHELLS[script.parent.name]().execute)
    if os.environ.get("GOLDEN_REWRITE"):
        script.write_text(actual)

    assert actual == text
