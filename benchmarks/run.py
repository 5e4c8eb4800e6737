"""One run: start the peers, let them take turns in every workload, stop them all."""

import gc
import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from subprocess import SubprocessError
from types import FrameType

from rich.console import Console
from rich.progress import Progress

from benchmarks.child import ChildFailedError
from benchmarks.options import Options
from benchmarks.peers.goqueue import GoQueue
from benchmarks.peers.peer import PARTITIONS, Peer, SkippedError
from benchmarks.peers.registry import PEERS, make
from benchmarks.results import Results, Series
from benchmarks.trial import Bench, Measured, Trial, Workload

TRIAL_SECONDS_MAX = 300
"""Longest a trial may take, so that a hanging peer costs minutes and not the run."""

WARM_UP_BYTES = 100

Versions = dict[str, str]
"""What ran, and what its acknowledgement meant, by peer."""


def run(options: Options, workloads: list[Workload], console: Console) -> tuple[Results, Versions]:
    """Measure the chosen workloads and return what was found, with the versions used."""
    results = Results()
    with ExitStack() as stack:
        scratch = Path(tempfile.mkdtemp(prefix="goqueue-bench-", dir=options.directory))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        goqueue = GoQueue(scratch / "goqueue")
        stack.callback(goqueue.stop)
        goqueue.start()
        others = _start_others(options, scratch, results, stack, console)
        bench = Bench(options=options, goqueue=goqueue, others=others, scratch=scratch)
        versions = {peer.name: f"{peer.version()}; {peer.durability}" for peer in bench.peers}
        for name, described in versions.items():
            console.print(f"[dim]{name:>20}[/] {described}", highlight=False)
        _warm_up(bench, results, console)
        for workload in workloads:
            _run_workload(bench, workload, results, console)
    return results, versions


def _start_others(
    options: Options, scratch: Path, results: Results, stack: ExitStack, console: Console
) -> list[Peer]:
    started = []
    for name in options.peers or PEERS:
        if name == "none":
            continue
        try:
            peer = make(name, scratch / name)
            stack.callback(peer.stop)
            peer.start()
        except (SkippedError, ChildFailedError, OSError, SubprocessError) as reason:
            results.skipped[name] = str(reason)
            console.print(f"[yellow]{name} is skipped:[/] {reason}")
        else:
            started.append(peer)
    return started


def _warm_up(bench: Bench, results: Results, console: Console) -> None:
    """Let every peer do its work once untimed: a JVM is several times faster the second time."""
    for peer in bench.peers:
        console.print(f"[dim]warming up {peer.name}[/]")
        trial = Trial(
            case="warm-up", peer=peer.name, measure=partial(_publish_and_read, bench, peer)
        )
        _run_trial("warm-up", trial, results)


def _publish_and_read(bench: Bench, peer: Peer) -> Measured:
    client, topic = peer.client(), bench.fresh_topic()
    messages = peer.load(bench.options.messages)
    client.create(topic, partitions=PARTITIONS)
    client.publish(topic, bench.pool(WARM_UP_BYTES).take(messages))
    client.read(topic, count=messages)
    client.delete(topic)
    return {}


def _run_workload(bench: Bench, workload: Workload, results: Results, console: Console) -> None:
    rounds = min(bench.options.rounds, workload.rounds_max)
    # Nothing may refresh by itself: a drawing thread would take turns with the one measured.
    with Progress(
        console=console, auto_refresh=False, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(f"{workload.name}: preparing", total=None)
        progress.refresh()
        trials = _prepare(bench, workload, results)
        broken: set[Trial] = set()
        for turn in range(rounds):
            for number, trial in enumerate(trials):
                if trial in broken:
                    continue
                progress.update(
                    task,
                    description=f"{workload.name}: round {turn + 1}, {trial.case}, {trial.peer}",
                    completed=turn * len(trials) + number,
                    total=rounds * len(trials),
                )
                progress.refresh()
                if not _run_trial(workload.name, trial, results):
                    broken.add(trial)
    console.print(f"[green]✓[/] {workload.name}: {workload.title}")


def _prepare(bench: Bench, workload: Workload, results: Results) -> list[Trial]:
    try:
        with _time_limit(TRIAL_SECONDS_MAX):
            return workload.trials(bench)
    except Exception as error:  # noqa: BLE001 - one workload's failure must not end the run
        _note(results, f"{workload.name}: preparation", error)
        return []


def _run_trial(workload: str, trial: Trial, results: Results) -> bool:
    _settle()
    try:
        with _time_limit(TRIAL_SECONDS_MAX):
            measured = trial.measure()
    except Exception as error:  # noqa: BLE001 - one peer's failure must not end the run
        _note(results, f"{workload}: {trial.case}: {trial.peer}", error)
        return False
    for metric, value in measured.items():
        series = Series(
            workload=workload,
            case=trial.case,
            metric=metric.name,
            unit=metric.unit,
            better=metric.better,
        )
        results.add(series, trial.peer, value)
    return True


def _settle() -> None:
    """Write back what the trial before left in the page cache, and collect its garbage."""
    os.sync()
    gc.collect()
    gc.freeze()


@contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def expire(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _note(results: Results, where: str, error: Exception) -> None:
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(last.filename).name}:{last.lineno}"
    results.failures.append(f"{where}: {type(error).__name__}: {error} ({place})")
