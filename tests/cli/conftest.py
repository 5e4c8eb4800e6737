"""A real broker for the tests of the command line, and a way to run commands against it."""

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from goqueue.cli import checkup, consume_group, main
from tests.cli.running import SECONDS_MAX, BrokerProcess, Outcome, Run


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path_factory.mktemp("broker") / "data")
    yield running
    assert running.stop() == 0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has a home of its own and none of this machine's variables."""
    for name in list(os.environ):
        if name.startswith("GOQUEUE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Run:
    """Run a command in this process, which is quicker than a process for each."""
    del home
    # A broker on a busy machine is slow to answer, but it is there.
    monkeypatch.setattr(checkup, "PROBE_SECONDS", SECONDS_MAX)
    monkeypatch.setattr(consume_group, "IDLE_SECONDS", 6.0)

    def run_command(*arguments: str, stdin: bytes = b"", program: str = "goqueue") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main.run(list(arguments), program=program)
        captured = capfdbinary.readouterr()
        return Outcome(code=code, out=captured.out.decode(), err=captured.err.decode())

    return run_command


@pytest.fixture
def cli(run: Run, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command against the broker."""
    monkeypatch.setenv("GOQUEUE_SERVER", broker.native)
    return run
