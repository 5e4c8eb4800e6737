"""A real broker process for the SDK's tests, one for all of a module."""

from collections.abc import Iterator
from itertools import count

import pytest

import goqueue
from tests.acceptance.served import Served
from tests.cli.running import BrokerProcess
from tests.client.proxy import Proxy

_numbers = count()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "data")
    yield broker.native
    assert broker.stop() == 0


@pytest.fixture
def proxy(address: str) -> Iterator[Proxy]:
    """Give a bad network before the broker."""
    with Proxy(address) as between:
        yield between


@pytest.fixture
def client(address: str) -> Iterator[goqueue.Client]:
    with goqueue.connect(address) as connected:
        yield connected


@pytest.fixture
def topic(client: goqueue.Client) -> str:
    name = f"topic-{next(_numbers)}"
    # Some tests send messages that are years old; retention would delete them as they look on.
    client.create_topic(name, partitions=3, retention_ms=0)
    return name


@pytest.fixture(scope="module", params=["process", "embedded"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[goqueue.Client]:
    """Give a client of a real process, and one of a broker beside it."""
    data_dir = tmp_path_factory.mktemp("broker") / "data"
    if request.param == "embedded":
        with goqueue.open(data_dir) as client:
            yield client
    else:
        with Served(data_dir) as served, goqueue.connect(served.address) as client:
            yield client


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


@pytest.fixture
def orders(broker: goqueue.Client, group: str) -> str:
    broker.create_topic(f"orders-{group}", partitions=3, retention_ms=0)
    return f"orders-{group}"
