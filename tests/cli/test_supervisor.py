"""``goqueue serve --processes``: how the processes are started; one that ends is started again."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

import goqueue
from goqueue.cli.failure import Failure
from goqueue.cli.supervisor import NodeCommand, node_commands
from goqueue.config.model import BrokerConfig

SECONDS_MAX = 120


def option(command: NodeCommand, name: str) -> str:
    """Return the value of an option of a process."""
    return command.arguments[list(command.arguments).index(name) + 1]


def settings(command: NodeCommand) -> dict[str, str]:
    """Return what is set by ``--set``."""
    pairs = zip(command.arguments, command.arguments[1:], strict=False)
    texts = [value for name, value in pairs if name == "--set"]
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


def test_every_process_has_its_name_directory_and_ports() -> None:
    config = BrokerConfig(data_dir="/data", node_id="box")
    first, second = node_commands(config, 2, ["log.level=debug"])

    assert (first.node, second.node) == ("box-1", "box-2")
    assert (first.native, second.native) == ("127.0.0.1:7070", "127.0.0.1:7071")
    assert (first.http, second.http) == ("127.0.0.1:8080", "127.0.0.1:8081")
    assert option(second, "--data") == "/data/box-2"
    assert settings(second) == {
        "log.level": "debug",
        "cluster.enabled": "true",
        "cluster.peers": "box-1@127.0.0.1:7000,box-2@127.0.0.1:7001",
        "listeners.internal": "127.0.0.1:7001",
        "cluster.replication_factor": "1",
    }


def test_replicas_that_are_asked_for_are_kept() -> None:
    commands = node_commands(BrokerConfig(cluster_replication_factor=2), 3)

    assert [settings(one)["cluster.replication_factor"] for one in commands] == ["2"] * 3


def test_ports_are_given() -> None:
    with pytest.raises(Failure, match="count up"):
        node_commands(BrokerConfig(native_listener="127.0.0.1:0"), 2)


def free_ports(count: int) -> int:
    """Return the first of some ports in a row that are free."""
    for first in range(20_000 + os.getpid() % 20_000, 60_000, count):
        probes = [socket.socket() for _ in range(count)]
        try:
            for place, probe in enumerate(probes):
                probe.bind(("127.0.0.1", first + place))
        except OSError:
            continue
        else:
            return first
        finally:
            for probe in probes:
                probe.close()
    raise AssertionError("no ports are free")


@pytest.mark.slow
def test_a_process_that_is_killed_is_started_again(tmp_path: Path) -> None:
    """Messages of both processes are there again, and a signal stops all of them."""
    first = free_ports(6)
    native = [f"127.0.0.1:{first}", f"127.0.0.1:{first + 1}"]
    arguments = ["serve", "--processes", "2", "--data", str(tmp_path), "--log-format", "json"]
    arguments += ["--native", native[0], "--http", f"127.0.0.1:{first + 2}"]
    arguments += ["--set", f"listeners.internal=127.0.0.1:{first + 4}"]
    with (tmp_path / "log").open("wb") as log:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "goqueue", *arguments], stdout=log, stderr=log
        )
    try:
        publish_and_kill(native, supervisor.pid)
        supervisor.send_signal(signal.SIGTERM)

        assert supervisor.wait(SECONDS_MAX) == 0
    finally:
        supervisor.kill()
        supervisor.wait(SECONDS_MAX)


def connected(native: list[str]) -> goqueue.Client:
    """Return a client as soon as a process serves."""
    pause = threading.Event()
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return goqueue.connect(",".join(native), timeout=60)
        except goqueue.GoQueueError:
            assert time.monotonic() < deadline
            pause.wait(0.1)


def publish_and_kill(native: list[str], supervisor: int) -> None:
    """Publish to partitions of both processes, kill one, and read everything."""
    with connected(native) as client:
        client.create_topic("orders", partitions=4)
        with client.producer("orders") as producer:
            for number in range(40):
                producer.send(b"%d" % number, partition=number % 4)
        children = psutil.Process(supervisor).children()
        assert len(children) == 2
        children[0].kill()
        with client.producer("orders", delivery_timeout_ms=SECONDS_MAX * 1_000) as producer:
            for number in range(40, 80):
                producer.send(b"%d" % number, partition=number % 4)
        values = sorted(int(one.value or b"") for one in client.read("orders"))
    assert values == list(range(80))
