"""What the command line may ask of a run."""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MESSAGES = 1_000_000
MESSAGES_QUICK = 50_000
ROUNDS = 5
ROUNDS_QUICK = 1
GIBIBYTE = 1 << 30
MEBIBYTE = 1 << 20
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size and scope of a run."""

    quick: bool = False
    messages: int = MESSAGES
    """Messages per round of the fastest peers; slower ones publish their share of it."""
    rounds: int = ROUNDS
    only: tuple[str, ...] = ()
    """Names of workloads; empty means all."""
    peers: tuple[str, ...] = ()
    """Names of peers beside GoQueue; empty means all."""
    directory: Path = Path(tempfile.gettempdir())
    """Where brokers keep their files during the run: a real disk, or durability costs nothing."""
    results: Path = RESULTS

    @property
    def paced_seconds(self) -> int:
        """How long a round at a fixed rate lasts."""
        return 1 if self.quick else 5

    @property
    def trial_seconds(self) -> float:
        """How long callers that wait for each message go on."""
        return 0.5 if self.quick else 2.0

    @property
    def volume_bytes(self) -> int:
        """What is published where the question is one of volume."""
        return 64 * MEBIBYTE if self.quick else GIBIBYTE


def parse(arguments: Sequence[str], *, workloads: Sequence[str], peers: Sequence[str]) -> Options:
    """Turn arguments into options, or exit with a usage message."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure GoQueue beside its peers."
    )
    parser.add_argument("--quick", action="store_true", help="small counts, one round")
    parser.add_argument("--messages", type=_positive, help="messages per round (1000000)")
    parser.add_argument("--rounds", type=_positive, help="rounds per workload (5)")
    parser.add_argument(
        "--only",
        type=_names(workloads),
        default=(),
        metavar="WORKLOAD,...",
        help=", ".join(workloads),
    )
    parser.add_argument(
        "--peers",
        type=_names([*peers, "none"]),
        default=(),
        metavar="PEER,...",
        help=f"{', '.join(peers)}, or none",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="where brokers keep their files during the run; made if it is not there",
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the report goes")
    given = parser.parse_args(arguments)
    given.dir.mkdir(parents=True, exist_ok=True)
    return Options(
        quick=given.quick,
        messages=given.messages or (MESSAGES_QUICK if given.quick else MESSAGES),
        rounds=given.rounds or (ROUNDS_QUICK if given.quick else ROUNDS),
        only=given.only,
        peers=given.peers,
        directory=given.dir.resolve(),
        results=given.results.resolve(),
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _names(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of comma-separated lists of known names."""

    def parse_names(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}"
            )
        return names

    return parse_names
