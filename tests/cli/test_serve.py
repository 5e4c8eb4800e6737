"""``goqueue serve`` from outside: how it starts, what it refuses, how it stops."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import SECONDS_MAX, BrokerProcess, run_process


@pytest.fixture(autouse=True)
def _at_home(home: Path) -> None:
    del home


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """Everything is given back and the exit code is 0."""
    broker = BrokerProcess(tmp_path / "data")

    assert broker.stop(number) == 0
    assert [line["event"] for line in broker.lines] == [
        "broker started",
        "listening",
        "stopping",
        "broker stopped",
    ]


def test_being_told_often_to_terminate_is_like_once(tmp_path: Path) -> None:
    """Supervisors repeat themselves up to the end; the broker still stops cleanly."""
    broker = BrokerProcess(tmp_path / "data")
    while broker.process.poll() is None:
        broker.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            broker.process.wait(timeout=0.001)

    assert broker.stop() == 0
    assert broker.lines[-1]["event"] == "broker stopped"


def test_a_restart_finds_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    """After kill -9 and after a clean stop: the same messages, no demo of our own."""
    contents = []
    broker = BrokerProcess(tmp_path / "data")
    run_process("topic", "create", "kept", "-p", "1", "-s", broker.native)
    run_process("produce", "kept", "-s", broker.native, stdin=b"one\ntwo\n")
    broker.process.kill()
    broker.process.communicate(timeout=SECONDS_MAX)
    for _ in range(2):
        broker = BrokerProcess(tmp_path / "data")
        contents.append(run_process("consume", "kept", "-s", broker.native).out)
        assert len(run_process("topic", "list", "-s", broker.native).out.splitlines()) == 2
        assert broker.stop() == 0

    assert contents == ["one\ntwo\n"] * 2
    assert run_process("verify", str(tmp_path / "data")).code == 0


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    """Which listener, which address, what to do; and the data directory is free again."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        outcome = run_process(
            "serve", "--data", str(tmp_path / "d"), "--native", "127.0.0.1:0", "--http", address
        )
    broker = BrokerProcess(tmp_path / "d")

    assert outcome.code == 1
    assert f"error: cannot listen on {address} (listeners.http): the port is in use" in outcome.err
    assert "hint: is another broker running? --http 127.0.0.1:0 takes a free port" in outcome.err
    assert "Traceback" not in outcome.err
    assert outcome.out == ""
    assert "broker started" not in outcome.err
    assert broker.stop() == 0


def test_a_taken_port_leaves_the_data_alone(tmp_path: Path) -> None:
    """The ports are taken before the data is read: nothing is made, nothing is said to start."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        outcome = run_process("serve", "--data", str(tmp_path / "d"), "--native", address)

    assert outcome.code == 1
    assert outcome.err.startswith(f"error: cannot listen on {address} (listeners.native): ")
    assert not (tmp_path / "d").exists()


def test_a_bad_data_directory_is_no_matter_of_ports(tmp_path: Path) -> None:
    """What is wrong is told with its path, not as something about listening."""
    (tmp_path / "file").write_text("")
    listeners = ["--native", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    outcome = run_process("serve", "--data", str(tmp_path / "file" / "d"), *listeners)

    assert outcome.code != 0
    assert "listen" not in outcome.err
    assert str(tmp_path / "file") in outcome.err
    assert len(outcome.err.splitlines()) <= 2


def test_a_data_directory_has_one_broker(tmp_path: Path) -> None:
    """The second one is told which process holds it; so is a check."""
    broker = BrokerProcess(tmp_path / "data")
    data = str(tmp_path / "data")
    second = run_process("serve", "-d", data, "--native", "127.0.0.1:0", "--http", "127.0.0.1:0")
    check = run_process("verify", data)

    assert second.code == check.code == 1
    assert f"in use by process {broker.process.pid}" in second.err
    assert f"in use by process {broker.process.pid}" in check.err
    assert "(data_dir_locked)" in second.err
    assert broker.stop() == 0


def test_it_does_not_run_without_its_checks(tmp_path: Path) -> None:
    """Under -O the assertions that guard messages would be gone."""
    outcome = run_process("serve", "--data", str(tmp_path / "data"), python=("-O",))

    assert outcome.code == 1
    assert "error: the broker does not run under python -O" in outcome.err
    assert not (tmp_path / "data").exists()


def test_a_wrong_configuration_is_listed_whole(tmp_path: Path) -> None:
    """Flags, variables and file together, before anything is touched."""
    (tmp_path / "goqueue.yaml").write_text("nod_id: x\n")
    outcome = run_process("serve", "--data", "", "-o", "json", GOQUEUE_BROKER_NODEID="a b")

    assert outcome.code == 1
    assert outcome.error["code"] == "invalid_config"
    assert outcome.error["message"].splitlines() == [
        "the configuration has 3 problems:",
        "  1. nod_id: no such setting; did you mean node_id? (file goqueue.yaml)",
        "  2. data_dir: must not be empty (flag --data)",
        "  3. node_id: must not contain whitespace (environment GOQUEUE_BROKER_NODEID)",
    ]


def test_settings_reach_the_broker(tmp_path: Path) -> None:
    """A file, a variable and a flag each set something; a strange variable is remarked upon."""
    (tmp_path / "settings.yaml").write_text("limits: {connections: 1}\n")
    broker = BrokerProcess(
        tmp_path / "data",
        "--config",
        str(tmp_path / "settings.yaml"),
        GOQUEUE_BROKER_NODEID="node-7",
        GOQUEUE_LISTENERS_GRPC="127.0.0.1:9000",
    )
    first = socket.create_connection(parse(broker.native))
    with socket.create_connection(parse(broker.native)) as second:
        second.settimeout(SECONDS_MAX)
        refusal = second.recv(4096)
    first.close()

    assert broker.stop() == 0
    assert broker.lines[0]["event"] == "configuration"
    assert "GOQUEUE_LISTENERS_GRPC is set, but has no effect" in broker.lines[0]["warning"]
    assert {line.get("node_id") for line in broker.lines} >= {"node-7"}
    assert b"overloaded" in refusal


def test_it_may_open_as_many_files_as_the_system_allows(tmp_path: Path) -> None:
    """The soft limit is raised to the hard one; partitions and clients need them."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    broker = BrokerProcess(tmp_path / "data")
    limits = Path(f"/proc/{broker.process.pid}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]

    assert broker.stop() == 0
    assert line.split()[3:5] == [str(hard), str(hard)]


def test_a_terminal_is_told_what_to_try(tmp_path: Path) -> None:
    """On a terminal there is a panel with addresses and commands, in words, not in JSON."""
    leader, follower = os.openpty()
    arguments = ["serve", "-d", str(tmp_path / "d"), "--native", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "goqueue", *arguments, "--http", "127.0.0.1:0"],
        stderr=follower,
        env={**os.environ, "COLUMNS": "100", "TERM": "xterm"},
    )
    os.close(follower)
    shown = b""
    while b"Ctrl-C stops the broker" not in shown:
        shown += os.read(leader, 4096)
    process.terminate()

    assert process.wait(timeout=SECONDS_MAX) == 0
    assert b"topic create orders -s 127.0.0.1:" in shown
    assert b"/docs" in shown
    os.close(leader)


def parse(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
