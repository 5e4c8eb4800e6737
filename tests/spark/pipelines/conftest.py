"""What pipelines find around them in tests: the session, the broker, a folder of states."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from pyspark.sql import SparkSession

from goqueue.spark.pipelines.bind import Surroundings
from goqueue.spark.pipelines.load import Loaded, parse_text
from goqueue.spark.pipelines.run import RunOptions, run
from goqueue.spark.pipelines.spec import Mode
from goqueue.spark.pipelines.state import RunState
from tests.acceptance.served import Served
from tests.spark.pipelines.reading import Run


@pytest.fixture
def around(spark: SparkSession, broker: Served) -> Iterator[Surroundings]:
    before = dict(spark.conf.getAll)
    yield Surroundings(spark=spark, servers=broker.address)
    for name, value in before.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)


@pytest.fixture
def options(tmp_path: Path) -> RunOptions:
    return RunOptions(state_root=tmp_path / "state")


@pytest.fixture
def run_text(around: Surroundings, options: RunOptions, tmp_path: Path) -> Run:
    """Run a pipeline from its text."""

    def go(text: str, mode: Mode = Mode.AVAILABLE_NOW) -> RunState:
        pipeline = parse_text(dedent(text), folder=str(tmp_path))
        return run(Loaded(pipeline=pipeline), around, replace(options, mode=mode))

    return go
