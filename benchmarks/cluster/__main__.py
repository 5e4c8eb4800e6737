"""Three nodes on this machine: starts, takeovers, restarts, and what replication costs.

    python -m benchmarks.cluster                       everything, about five minutes
    python -m benchmarks.cluster --only work,idle      some parts
    python -m benchmarks.cluster --kills 20            more takeovers

Everything runs on loopback and one disk, so read ratios, counts and processor time.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import goqueue
from benchmarks.cluster import beside_kafka, faults, scale, work
from benchmarks.cluster.fleet import NODES, Fleet

STARTS = 3
TIMEOUT_SECONDS = 60
PARTS = ("start", "work", "kafka", "topics", "idle", "catch-up", "kills", "rolling")

Found = dict[str, object]


class Bench:
    """One cluster that all parts are measured on, and a folder for everything."""

    def __init__(self, options: argparse.Namespace, home: Path) -> None:
        self._options = options
        self._home = home
        self._fleet: Fleet | None = None
        self._client: goqueue.Client | None = None

    @property
    def fleet(self) -> Fleet:
        """The cluster, started at first use."""
        if self._fleet is None:
            self._fleet = Fleet.of(self._home / "cluster", nodes=NODES)
            self._fleet.start_all()
        return self._fleet

    @property
    def client(self) -> goqueue.Client:
        """A client of the cluster."""
        if self._client is None:
            self._client = goqueue.connect(self.fleet.addresses, timeout=TIMEOUT_SECONDS)
        return self._client

    def close(self) -> None:
        """Stop everything."""
        if self._client is not None:
            self._client.close()
        if self._fleet is not None:
            self._fleet.stop()

    def start(self) -> Found:
        """Start empty clusters."""
        found: list[float] = []
        for number in range(STARTS):
            fleet = Fleet.of(self._home / f"start{number}", nodes=NODES)
            try:
                found.append(round(fleet.start_all(), 2))
            finally:
                fleet.stop()
        return {"three empty nodes to the first publishes, s": found}

    def work(self) -> Found:
        """Compare three replicas with one, and with a broker by itself."""
        alone = Fleet.of(self._home / "alone", nodes=1)
        try:
            alone.start_all()
            with goqueue.connect(alone.addresses, timeout=TIMEOUT_SECONDS) as client:
                sides = [
                    work.Side(name="one broker", fleet=alone, client=client, factor=None),
                    work.Side(name="RF 1", fleet=self.fleet, client=self.client, factor=1),
                    work.Side(name="RF 3", fleet=self.fleet, client=self.client, factor=3),
                ]
                options = self._options
                return work.compare(sides, messages=options.messages, rounds=options.rounds)
        finally:
            alone.stop()

    def kafka(self) -> Found:
        """Compare with three brokers of Kafka."""
        side = work.Side(name="RF 3", fleet=self.fleet, client=self.client, factor=NODES)
        options = self._options
        return beside_kafka.compare(
            side, self._home / "kafka", messages=options.messages, rounds=options.rounds
        )

    def topics(self) -> Found:
        """Make topics of many partitions."""
        return {
            str(count): scale.topics(self.client, partitions=count)
            for count in (100, self._options.wide)
        }

    def idle(self) -> Found:
        """Look at 3,000 partitions at rest."""
        for number in range(3):
            self.client.create_topic(f"idle-{number}", partitions=self._options.wide)
        found = {"partitions": 3 * self._options.wide, **scale.idle(self.fleet)}
        for number in range(3):
            self.client.delete_topic(f"idle-{number}")
        return found

    def catch_up(self) -> Found:
        """Let a node fall behind."""
        return faults.catch_up(self.fleet, self.client, megabytes=self._options.megabytes)

    def kills(self) -> Found:
        """Kill nodes."""
        options = self._options
        return faults.takeovers(
            self.fleet, self.client, kills=options.kills, partitions=options.partitions
        )

    def rolling(self) -> Found:
        """Stop and start nodes."""
        return faults.rolling(self.fleet, self.client, partitions=self._options.rolling)

    def parts(self) -> dict[str, Callable[[], Found]]:
        """Return what can be asked for, in its order."""
        methods = (
            self.start, self.work, self.kafka, self.topics,
            self.idle, self.catch_up, self.kills, self.rolling,
        )  # fmt: skip
        return dict(zip(PARTS, methods, strict=True))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options, or end with what is wrong with them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--partitions", type=int, default=300, help="of the topic of the kills")
    parser.add_argument("--rolling", type=int, default=30, help="partitions of the restarts")
    parser.add_argument("--wide", type=int, default=1_000, help="partitions of a large topic")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--megabytes", type=int, default=400, help="that a node falls behind")
    parser.add_argument("--dir", type=Path, default=None, help="where the disk is")
    options = parser.parse_args(arguments)
    unknown = set(options.only.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"--only: not a part: {', '.join(sorted(unknown))}")
    return options


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    options = parse(arguments)
    home = Path(tempfile.mkdtemp(prefix="goqueue-cluster-", dir=options.dir))
    bench, wanted = Bench(options, home), options.only.split(",")
    try:
        for name, part in bench.parts().items():
            if name in wanted:
                loads = [round(one, 1) for one in os.getloadavg()]
                print(json.dumps({name: part(), "load before": loads}, indent=2), flush=True)
    finally:
        bench.close()
        shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
