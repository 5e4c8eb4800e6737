"""Attacks a cluster of three real nodes, and judges what is left of it.

python -m tests.chaos                                  20 faults from seed 1
python -m tests.chaos --seed 7 --cycles 100 --kinds kill,pause
python -m tests.chaos --default-timers --json report.json
"""

import argparse
import dataclasses
import json
import os
import sys
import time
from pathlib import Path

from tests.chaos.faults import KINDS
from tests.chaos.inside import INSIDE, begin_inside, missing, prepare
from tests.chaos.run import Options, Report, Run


def main(arguments: list[str]) -> int:
    """Run it in namespaces of its own; 0 if every promise was kept."""
    options = _options(arguments)
    if INSIDE not in os.environ:
        if why := missing():
            _say(f"cannot run: {why}")
            return 2
        return begin_inside("tests.chaos", arguments)
    prepare()
    asked = Options(
        seed=options.seed,
        cycles=options.cycles,
        kinds=options.kinds.split(","),
        is_slow=options.default_timers,
        keep=options.keep,
    )
    report = Run(asked).go(lambda text: _say(f"{time.strftime('%H:%M:%S')} {text}"))
    _show(report)
    if options.json:
        Path(options.json).write_text(json.dumps(dataclasses.asdict(report)))
    return 1 if report.findings else 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--default-timers", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the disks and the logs")
    parser.add_argument("--json", default="", help="where to write everything that was found")
    return parser.parse_args(arguments)


def _show(report: Report) -> None:
    for title, numbers in (("acks after", report.took), ("longest pause", report.pauses)):
        for kind, seconds in numbers.items():
            _say(f"{title} {kind}: {_spread(seconds)}")
    _say(f"whole again: {_spread(report.whole)}")
    _say(f"counts: {report.counts}")
    _say(f"errors that reached clients: {report.errors}")
    for name, found in report.complaints.items():
        for text, count in found.items():
            _say(f"{name} logged {count} x {text}")
    _say(f"load of the machine {report.load}")
    for finding in report.findings:
        _say(f"BROKEN: {finding}")
    _say(f"seed {report.seed}: {len(report.faults)} faults, {len(report.findings)} findings"
         + (f", kept in {report.home}" if report.findings else ""))  # fmt: skip


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "never"
    ordered = sorted(seconds)
    p50, p99 = ordered[len(ordered) // 2], ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)]
    return f"{len(ordered)} x, p50 {p50:.2f} s, p99 {p99:.2f} s, max {ordered[-1]:.2f} s"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
