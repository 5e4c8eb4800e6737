"""A real broker process for the SDK's tests, one for all of a module."""

from collections.abc import Iterator
from itertools import count

import pytest

import goqueue
from tests.cli.running import BrokerProcess

_numbers = count()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "data")
    yield broker.native
    assert broker.stop() == 0


@pytest.fixture
def client(address: str) -> Iterator[goqueue.Client]:
    with goqueue.connect(address) as connected:
        yield connected


@pytest.fixture
def topic(client: goqueue.Client) -> str:
    name = f"topic-{next(_numbers)}"
    client.create_topic(name, partitions=3)
    return name
