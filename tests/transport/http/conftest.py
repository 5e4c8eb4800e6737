"""Servers for the tests of the HTTP API."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from goqueue.observability import exposition
from goqueue.runtime import broker as broker_module
from goqueue.testing.clock import FakeClock
from tests.transport.http.running import Running


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    # Fifty logs take longer to make than most tests.
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


@pytest.fixture(autouse=True)
def _metrics_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    # A test looks at them before and behind what it does, both within a second.
    monkeypatch.setattr(exposition, "INTERVAL_SECONDS", 0.0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server(tmp_path: Path, clock: FakeClock) -> Iterator[Running]:
    with Running(tmp_path / "data", clock=clock) as running:
        yield running
