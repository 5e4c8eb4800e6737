"""The same program on a cluster of several processes, and through Spark Connect."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from goqueue.client.sync import Client
from goqueue.spark.java import find_java_home
from goqueue.spark.session import cache_dir
from tests.acceptance.served import Served, free_port
from tests.spark.connector import round_trip

ROOT = Path(__file__).parents[3]
BIN = Path(pyspark.__file__).parent / "bin"
SECONDS_MAX = 400
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
pytestmark = pytest.mark.slow


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(find_java_home(os.environ, cache_dir())),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
    }


@contextmanager
def running(command: list[str], log: Path, *, told: str) -> Iterator[None]:
    """A program of Spark's, from when it says it is ready to the end of the block."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env=environment(), start_new_session=True
        )
    try:
        _wait_for(told, log)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(told: str, log: Path) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    pause = threading.Event()
    while told not in log.read_text(errors="replace"):
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2_000:]
        pause.wait(0.1)


def go(place: str, broker: Served, topic: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, round_trip.__file__, place, broker.address, topic],
        env={**environment(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    counts: list[int] = json.loads(done.stdout.splitlines()[-1])
    return counts


def test_a_standalone_cluster(broker: Served, client: Client, topic: str, tmp_path: Path) -> None:
    """A master and two workers, each with executors and Python workers of its own."""
    client.create_topic(f"{topic}.out", partitions=2)
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        stack.enter_context(
            running(
                [
                    *(str(BIN / "spark-class"), "org.apache.spark.deploy.master.Master"),
                    *("--host", "127.0.0.1", "--port", str(port)),
                    *("--webui-port", str(free_port())),
                ],
                tmp_path / "master.log",
                told="New state: ALIVE",
            )
        )
        for number in range(2):
            command = [
                *(str(BIN / "spark-class"), "org.apache.spark.deploy.worker.Worker"),
                *("--host", "127.0.0.1"),
                *("--cores", "1", "--memory", "1g", "--webui-port", str(free_port())),
                *("--work-dir", str(tmp_path / f"work-{number}"), master),
            ]
            log = tmp_path / f"worker-{number}.log"
            stack.enter_context(running(command, log, told="Successfully registered"))

        assert go(master, broker, topic) == [round_trip.ROWS, round_trip.ROWS, 10]


def test_spark_connect(broker: Served, client: Client, topic: str, tmp_path: Path) -> None:
    """A client that is not in the process of the driver."""
    client.create_topic(f"{topic}.out", partitions=2)
    port = free_port()
    command = [
        str(BIN / "spark-submit"),
        *("--class", CONNECT, "--master", "local[2]"),
        *("--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--conf", "spark.ui.enabled=false", "spark-internal"),
    ]
    with running(command, tmp_path / "connect.log", told="Spark Connect server started"):
        assert go(f"sc://127.0.0.1:{port}", broker, topic) == [
            round_trip.ROWS,
            round_trip.ROWS,
            10,
        ]
        pipeline = tmp_path / "remote.yaml"
        pipeline.write_text(
            f"sources: {{a: {{topic: {topic}}}}}\n"
            f"sinks: {{b: {{from: a, topic: {topic}.copy, partitions: 1}}}}\n"
        )
        arguments = ("pipeline", "run", str(pipeline), "--state", str(tmp_path / "state"))
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "goqueue", *arguments, "-o", "json"),
                *("--remote", f"sc://127.0.0.1:{port}", "--server", broker.address),
            ],
            capture_output=True,
            timeout=SECONDS_MAX,
            check=True,
        )
        assert json.loads(ran.stdout)["queries"]["b"]["rows"] == round_trip.ROWS
