"""Servers for the tests of the native protocol."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from goqueue.testing.clock import FakeClock
from tests.transport.native.raw import Raw
from tests.transport.native.running import Running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path / "data", clock=FakeClock()) as running:
        yield running


@pytest.fixture
def raw(server: Running) -> Iterator[Raw]:
    """A connection that has said hello."""
    with server.connect() as connection:
        yield connection
