"""The demonstration as its user meets it: a process that ends with books that add up."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.demo.orders import Shop

ROOT = Path(__file__).parents[3]
SECONDS_MAX = 400
"""For a machine on which everything else runs, too; a quiet one takes a minute."""
FREE_PORTS = ("--native", "127.0.0.1:0", "--http", "127.0.0.1:0")


def start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "examples.demo", "-o", "json", "--data", str(folder)),
            *(*FREE_PORTS, *arguments),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
        cwd=ROOT,
    )


def finish(process: subprocess.Popen[bytes]) -> Any:
    """Return the report; a process that failed shows what it said."""
    try:
        out, err = process.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 0, f"{out.decode()}\n{err.decode()}"
    return json.loads(out)


def kinds_of(seed: int, count: int) -> dict[str, int]:
    """Return what a shop sells, from its seed alone."""
    shop = Shop(seed)
    for number in range(count):
        shop.next(number)
    return {kind.value: found for kind, found in shop.tally.items()}


@pytest.mark.slow
def test_every_row_is_accounted_for(tmp_path: Path) -> None:
    """Broker, orders, group and pipeline run for seconds; then every row is where it should be."""
    process = start(tmp_path / "demo", "--seconds=8", "--rate=60", "--seed=4")

    report = finish(process)

    rows = report["rows"]
    assert report["adds_up"] is True
    assert report["no_spark"] is None
    assert report["kinds"] == kinds_of(4, rows)
    assert sum(report["went"]["group"].values()) == rows
    assert sum(report["went"]["pipeline"].values()) == rows
    assert report["went"]["pipeline"]["clean"] == report["kinds"]["good"] + report["kinds"]["late"]
    assert report["went"]["pipeline"]["repeats"] == report["kinds"]["duplicate"]
    assert Path(report["picture"]).read_bytes().startswith(b"\x89PNG")
    assert len([check for check in report["checks"] if check["is_ok"]]) == 17


def test_it_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    """Without a time it runs until a signal; what is under way is finished, checked and told."""
    process = start(tmp_path / "demo", "--no-spark", "--rate=200")
    assert process.stderr is not None
    for line in process.stderr:
        if b"running" in line and b"published 0 " not in line:
            break
    process.send_signal(signal.SIGINT)

    report = finish(process)

    assert report["adds_up"] is True
    assert report["rows"] > 0
    assert report["kinds"] == kinds_of(1, report["rows"])
    assert report["no_spark"] == "not asked for"
    assert list(report["went"]) == ["group"]


def test_so_many_orders_and_no_more(tmp_path: Path) -> None:
    """A number of orders ends it as well, and it is kept exactly."""
    report = finish(start(tmp_path / "demo", "--no-spark", "--rate=1000", "--orders=700"))

    assert report["rows"] == 700
    assert report["adds_up"] is True


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """It says so and leaves with 1, before anything is started."""
    (tmp_path / "thesis.txt").touch()
    process = start(tmp_path, "--no-spark")

    _, err = process.communicate(timeout=SECONDS_MAX)

    assert process.returncode == 1
    assert json.loads(err)["error"]["code"] == "demo_folder"
