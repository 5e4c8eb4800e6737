"""One Spark session for all tests that need one, and a broker process for those that need one."""

import warnings
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import goqueue
from goqueue.client.sync import Client
from goqueue.spark import session
from tests.acceptance.served import Served

warnings.filterwarnings("ignore", category=DeprecationWarning, module="pyspark")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores, with three tries for a task; it takes seconds to start."""
    conf = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    made = session("tests", master="local[2,3]", conf=conf)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker nobody kills."""
    with Served(tmp_path_factory.mktemp("broker") / "data") as served:
        yield served


@pytest.fixture(scope="session")
def client(broker: Served) -> Iterator[Client]:
    with goqueue.connect(broker.address) as connected:
        yield connected


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    name = request.node.name.replace("[", "-").rstrip("]")
    # Messages of some tests are old; retention would delete them as they look on.
    client.create_topic(name, partitions=3, retention_ms=0)
    return str(name)


@pytest.fixture
def publish(client: Client, topic: str) -> Callable[..., None]:
    """Publishes numbered messages to the topic of the test."""

    def run(
        count: int,
        *,
        first: int = 0,
        keys: int = 7,
        to: str | None = None,
        timestamp: datetime | None = None,
    ) -> None:
        with client.producer(to or topic) as producer:
            for number in range(first, first + count):
                key = b"k%d" % (number % keys)
                producer.send(b"%d" % number, key=key, timestamp=timestamp)

    return run


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
