"""Put a mixed load on a broker for a long time and report what its memory, files and threads do."""

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import psutil
from rich.console import Console

import goqueue
from benchmarks import machine
from benchmarks.child import LOOPBACK, Child, free_port
from benchmarks.soak import report
from benchmarks.soak.load import PROCESSES
from benchmarks.soak.samples import Sample, look
from benchmarks.soak.stage import prepare

SECONDS = 3_600.0
RATE = 1_000.0
SAMPLE_SECONDS = 5.0
PROBE_EVERY = 12
"""Samples between two looks inside."""
STOP_SECONDS_MAX = 60.0
RESULTS = Path(__file__).parents[1] / "results"


def main(arguments: Sequence[str]) -> int:
    """Run the load, print the report; fail if something grows or a part of the load failed."""
    options = _parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 130)
    options.dir.mkdir(parents=True, exist_ok=True)
    for name, value in machine.describe(options.dir).items():
        console.print(f"[dim]{name:>20}[/] {value}", highlight=False)
    signal.signal(signal.SIGTERM, _leave)
    folder = Path(tempfile.mkdtemp(prefix="goqueue-soak-", dir=options.dir))
    options.results.mkdir(parents=True, exist_ok=True)
    try:
        samples, counts = _soak(options, folder, console)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    written = options.results / "soak.json"
    described = {"rate": options.rate, "seconds": options.seconds, "counts": counts}
    rows = [asdict(sample) for sample in samples]
    written.write_text(json.dumps({**described, "samples": rows}))
    is_level = report.show(samples, counts, console)
    picture = report.draw(samples, options.results / "soak.png")
    console.print(f"written: {written} and {picture}")
    return 0 if is_level else 1


def _soak(
    options: argparse.Namespace, folder: Path, console: Console
) -> tuple[list[Sample], Counter[str]]:
    with contextlib.ExitStack() as stack:
        native, http = f"{LOOPBACK}:{free_port()}", f"{LOOPBACK}:{free_port()}"
        broker = _serve(options, folder, native=native, http=http)
        stack.callback(broker.stop)
        broker.wait_port(int(native.rpartition(":")[2]))
        broker.wait_port(int(http.rpartition(":")[2]))
        with goqueue.connect(native) as client:
            prepare(client)
        load: dict[str, Child] = {}
        for name in PROCESSES:
            argv = [sys.executable, "-m", "benchmarks.soak.load", name, native, http]
            argv += [str(options.rate), str(options.seconds)]
            path = {"PYTHONPATH": os.pathsep.join(sys.path)}
            load[name] = Child(argv, directory=folder / name, environment=path)
            stack.callback(load[name].stop)
        samples = _watch(broker, folder / "data", options, console)
        for child in load.values():
            child.wait_end(STOP_SECONDS_MAX)
        counts = Counter[str]()
        for child in load.values():
            counts.update(_told(child.output))
        with (options.results / "soak.log").open("wb") as log:
            for child in (broker, *load.values()):
                log.write(child.output.read_bytes())
        return samples, counts


def _serve(options: argparse.Namespace, folder: Path, *, native: str, http: str) -> Child:
    """Start the broker: the plain program, or the one that can be looked into."""
    module = "benchmarks.soak.probe" if options.probe else "goqueue"
    argv = [sys.executable, "-m", module, "serve", "--data", str(folder / "data")]
    argv += ["--native", native, "--http", http]
    argv += ["--set", "storage.maintenance_interval=5s", "--set", "tracing.sampling_rate=0.05"]
    probe = options.results.resolve() / "soak-probe.jsonl"
    if options.probe:
        probe.unlink(missing_ok=True)
    environment = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONDONTWRITEBYTECODE": "",
        "GOQUEUE_SOAK_PROBE": str(probe),
    }
    return Child(argv, directory=folder / "broker", environment=environment)


def _watch(
    broker: Child, data: Path, options: argparse.Namespace, console: Console
) -> list[Sample]:
    """Look at the broker every few seconds until the load ends."""
    process, samples = psutil.Process(broker.pid), list[Sample]()
    start = time.monotonic()
    while (seconds := time.monotonic() - start) < options.seconds:
        if not broker.is_alive:
            raise SystemExit("the broker ended")
        samples.append(look(process, data, seconds=seconds))
        if len(samples) % PROBE_EVERY == 1:
            console.print(report.line(samples[-1]), highlight=False)
            if options.probe:
                os.kill(broker.pid, signal.SIGUSR1)
        time.sleep(min(SAMPLE_SECONDS, max(options.seconds - seconds, 0)))
    return samples


def _told(output: Path) -> dict[str, int]:
    """Return the counts a process printed as its last line."""
    lines = output.read_text(errors="replace").splitlines()
    try:
        counts: dict[str, int] = json.loads(lines[-1])
    except (IndexError, ValueError):
        return {f"error {output.parent.name}: ended early": 1}
    return counts


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    seconds = float(os.environ.get("GOQUEUE_SOAK_SECONDS", SECONDS))
    parser.add_argument("--seconds", type=float, default=seconds, help="how long (3600)")
    parser.add_argument("--rate", type=float, default=RATE, help="publishes a second (1000)")
    parser.add_argument("--probe", action="store_true", help="count objects, once a minute")
    directory = Path(tempfile.gettempdir())
    parser.add_argument("--dir", type=Path, default=directory, help="where the broker's files go")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the report goes")
    given = parser.parse_args(arguments)
    given.dir.mkdir(parents=True, exist_ok=True)
    return given


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
