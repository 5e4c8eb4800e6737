"""One run: a cluster, clients, faults from a seed, and the verdict."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final

import goqueue
from goqueue.base.ids import TopicName
from tests.chaos.crew import Crew
from tests.chaos.faults import ON_SMALL_DISK, Fault, plan
from tests.chaos.load import ORDERS, TOPICS
from tests.chaos.nodes import QUICK, Fleet, wait_until
from tests.chaos.replicas import differences
from tests.chaos.verdict import judge

NAMES: Final = ("n1", "n2", "n3")
WHOLE_SECONDS_MAX: Final = 90
SERVED_SECONDS_MAX: Final = 60
_NO_TOPICS: Final[Mapping[TopicName, int]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is asked of a run."""

    seed: int
    cycles: int
    kinds: Sequence[str]
    is_slow: bool = False
    """With the timers that nodes have by default."""
    keep: bool = False
    """Leave disks and logs for somebody to look at."""


@dataclass(slots=True)
class Report:
    """What one run found."""

    seed: int
    faults: list[str] = field(default_factory=list)
    took: dict[str, list[float]] = field(default_factory=dict)
    """Seconds from each kind of fault to an ack of every partition."""
    pauses: dict[str, list[float]] = field(default_factory=dict)
    """The longest time without an ack of each partition meanwhile, by kind."""
    whole: list[float] = field(default_factory=list)
    """Seconds from the end of each fault until all replicas were in sync."""
    findings: list[str] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    """Errors that reached a client: no promise was broken by them."""
    counts: dict[str, int] = field(default_factory=dict)
    complaints: dict[str, dict[str, int]] = field(default_factory=dict)
    load: float = 0.0
    home: str = ""


class Run:
    """Begins everything, breaks it, and looks at what is left."""

    def __init__(self, options: Options) -> None:
        self.home = Path(tempfile.mkdtemp(prefix=f"goqueue-chaos-{options.seed}-"))
        self.report = Report(options.seed, home=str(self.home))
        self.fleet = Fleet(self.home, {} if options.is_slow else QUICK, names=NAMES)
        self.plan = plan(options.seed, options.cycles, kinds=options.kinds, names=NAMES)
        self._keep = options.keep
        self.crew = Crew(self.fleet)

    def go(self, say: Callable[[str], None]) -> Report:
        """Run it all; the data directories stay where something was found."""
        self.fleet.nodes[ON_SMALL_DISK].mount_small_disk()
        try:
            self._start()
            for number, fault in enumerate(self.plan, start=1):
                say(f"{number} {self._cycle(number, fault)}")
            self._finish(say)
        finally:
            for node in self.fleet.nodes.values():
                if node.is_running:
                    node.end(signal.SIGKILL)
                self.report.complaints[node.name] = dict(node.complaints())
            self.report.errors = dict(self.crew.told.errors)
            self.report.counts = {**self.crew.counts(), **self.report.counts}
            self.report.load = round(os.getloadavg()[1], 1)
        if not self.report.findings and not self._keep:
            self.fleet.nodes[ON_SMALL_DISK].unmount()
            shutil.rmtree(self.home, ignore_errors=True)
        return self.report

    def _start(self) -> None:
        for name in NAMES:
            self.fleet.start(name)
        self._until_whole("at the start", _NO_TOPICS)
        with goqueue.connect(self.fleet.addresses, timeout=60) as client:
            for topic, partitions in TOPICS.items():
                client.create_topic(topic, partitions=partitions)
        self.crew.start()
        if self._served(0.0, SERVED_SECONDS_MAX) is None:
            self.report.findings.append("nothing is served at the start")

    def _cycle(self, number: int, fault: Fault) -> str:
        """Do a fault, undo it, and wait until the cluster is whole; return what to say of it."""
        self.crew.begin_round(number)
        victim = self._victim(fault.victim)
        began = time.monotonic()
        fault.kind.begin(self.fleet, victim)
        until = time.monotonic() + fault.hold_s
        took = self._served(began, fault.hold_s)
        Event().wait(max(0.0, until - time.monotonic()))
        fault.kind.end(self.fleet, victim)
        if took is None:
            took = self._served(began, SERVED_SECONDS_MAX)
        where = f"{fault} ({victim})"
        whole = self._until_whole(where, TOPICS)
        self._note(where, fault.kind.name, took, whole)
        return f"{where}: acks after {took or -1:.2f} s, whole {whole or -1:.1f} s"

    def _note(self, where: str, kind: str, took: float | None, whole: float | None) -> None:
        self.report.faults.append(where)
        if took is None:
            self.report.findings.append(f"{where}: no acks again")
        else:
            self.report.took.setdefault(kind, []).append(round(took, 3))
        if whole is not None:
            self.report.whole.append(round(whole, 2))
        pauses = self.report.pauses.setdefault(kind, [])
        pauses += [round(one, 3) for one in self.crew.pauses()]

    def _victim(self, wanted: str) -> str:
        if wanted == "leader":
            return self.fleet.leader(ORDERS, 0) or NAMES[0]
        if wanted == "controller":
            return self.fleet.controller() or NAMES[0]
        return wanted

    def _served(self, since: float, seconds_max: float) -> float | None:
        """Return after how long every partition has acknowledged a message, None if not in time."""
        wait_until(lambda: min(self.crew.acked_at()) > since, seconds_max)
        latest = self.crew.first_acks(since)
        return max(latest) - since if len(latest) == TOPICS[ORDERS] else None

    def _until_whole(self, where: str, topics: Mapping[TopicName, int]) -> float | None:
        whole = wait_until(lambda: self.fleet.is_whole(topics), WHOLE_SECONDS_MAX)
        if whole is None:
            self.report.findings.append(f"{where}: not whole after {WHOLE_SECONDS_MAX} s")
        return whole

    def _finish(self, say: Callable[[str], None]) -> None:
        """Let clients end, judge what they were told, stop the nodes, compare their disks."""
        say("the clients end")
        findings = self.report.findings
        findings += self.crew.finish_sending()
        with goqueue.connect(self.fleet.addresses, timeout=60) as client:
            findings += self.crew.drain(client)
            self.crew.finish()
            ends, broken = judge(client, self.crew)
            findings += broken
        for name in NAMES:
            code = self.fleet.nodes[name].end(signal.SIGTERM)
            if code != 0:
                findings.append(f"{name} ended with {code}")
        findings += differences({name: self.home / name for name in NAMES}, ends=ends)
