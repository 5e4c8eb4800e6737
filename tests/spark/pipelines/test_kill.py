"""A pipeline process that is killed in the middle goes on where it was."""

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from goqueue.client.sync import Client
from goqueue.spark.pipelines.lake import Lake
from goqueue.spark.pipelines.state import StateFolder
from tests.acceptance.served import Served, free_port

SECONDS_MAX = 400

PIPELINE = """
name: killed
trigger: 100ms
sources:
  orders: {{topic: {topic}, schema: id BIGINT, rows_max: 500}}
expectations:
  orders: [{{name: not a seventh, that: id % 7 <> 0, else: quarantine}}]
sinks:
  out: {{from: orders, topic: {topic}-out, value: "CAST(id AS STRING)", partitions: 2}}
  lake: {{from: orders, lake: lake, partition_by: [topic]}}
"""


@contextmanager
def started(folder: Path, broker: Served, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start the pipeline in a process of its own; what it says goes to a file."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "goqueue", "pipeline", "run", "killed.yaml"),
                *("--mode", "continuous", "--server", broker.address, "--master", "local[2]"),
                *options,
            ],
            cwd=folder,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        # The JVM is in the same group, and goes with it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(process: subprocess.Popen[bytes], folder: Path, check: Callable[[], bool]) -> None:
    """Wait until something holds; a process that ends before is a failure."""
    pause = threading.Event()
    for _ in range(SECONDS_MAX * 10):
        if check():
            return
        assert process.poll() is None, (folder / "log").read_text()[-3_000:]
        pause.wait(0.1)
    raise AssertionError((folder / "log").read_text()[-3_000:])


def produce(client: Client, topic: str, first: int, count: int) -> None:
    with client.producer(topic) as producer:
        for number in range(first, first + count):
            producer.send(b'{"id": %d}' % number, key=b"%d" % (number % 10))


@pytest.mark.slow
def test_a_killed_pipeline_goes_on(
    client: Client, topic: str, broker: Served, tmp_path: Path
) -> None:
    """Killed with its JVM while batches flow, then run again: every row once, everywhere."""
    (tmp_path / "killed.yaml").write_text(PIPELINE.format(topic=topic))
    produce(client, topic, 0, 6_000)
    state = StateFolder(tmp_path / "pipelines-state", "killed")

    def rows() -> list[int]:
        try:
            return [query.rows for query in state.read().queries.values()]
        except Exception:  # noqa: BLE001 - not there yet
            return []

    with started(tmp_path, broker) as first:
        wait_for(first, tmp_path, lambda: len(rows()) == 3 and min(rows()) >= 500)
    after_kill = state.read().state
    produce(client, topic, 6_000, 500)
    port = free_port()
    with started(tmp_path, broker, "--metrics-port", str(port)) as second:

        def is_caught_up() -> bool:
            found = state.read()
            lags = [query.lag_rows for query in found.queries.values()]
            return found.pid == second.pid and lags == [0, 0, 0]

        wait_for(second, tmp_path, is_caught_up)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
            metrics = reply.read().decode()
        stop = subprocess.run(
            [sys.executable, "-m", "goqueue", "pipeline", "stop", "killed", "--timeout", "300"],
            cwd=tmp_path,
            check=False,
            capture_output=True,
        )
        code = second.wait(SECONDS_MAX)

    good = {number for number in range(6_500) if number % 7}
    out = Counter(int(message.value or b"") for message in client.read(f"{topic}-out"))
    letters = Counter(
        json.loads(message.value or b"")["id"] for message in client.read(f"{topic}.dlq")
    )
    files = Lake(tmp_path / "lake").files()
    lake = Counter(number for file in files for number in pq.read_table(file)["id"].to_pylist())
    assert after_kill == "killed"
    assert out == Counter(good)
    assert letters == Counter(set(range(6_500)) - good)
    assert lake == Counter(good)
    assert 'goqueue_pipeline_up{pipeline="killed",sink="out"} 1.0' in metrics
    assert (stop.returncode, code) == (0, 0), stop.stderr
    assert state.read().state == "stopped"
