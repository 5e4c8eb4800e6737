"""The documents that use Spark, followed from top to end in the session all tests share.

Python with Spark in it, and ``goqueue pipeline`` where it ends by itself, run in this process: each
would start a JVM of its own otherwise.
"""

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from goqueue.cli import main
from tests.acceptance.served import Served
from tests.docs.snippets import Reader, Snippet, words_of

ROOT = Path(__file__).parents[2]
PAGES = ["docs/spark.md", "docs/pipelines.md"]
WITH_JVM = {"plan", "run", "replay", "redrive"}


@pytest.fixture
def page_broker(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "broker").mkdir()
    with Served(tmp_path / "broker" / "data") as served:
        yield served


@pytest.fixture
def shared(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """A session that outlives those who stop it, with its settings as they were before."""
    before = dict(spark.conf.getAll)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    spark.streams.resetTerminated()
    yield spark
    for name, value in before.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_with_spark_runs_as_it_stands(
    name: str,
    tmp_path: Path,
    page_broker: Served,
    shared: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who follows a page from top to end, with a broker that has just been started, succeeds."""
    folder = tmp_path / "reader"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GOQUEUE_SERVER", page_broker.address)
    python: dict[str, object] = {"__name__": "__main__"}

    def here(snippet: Snippet) -> bool:
        if snippet.language == "python" and "spark" in snippet.text:
            text = aimed_at(page_broker, snippet.text)
            exec(compile(text, snippet.place, "exec"), python)  # noqa: S102 - our own page
            if "writeStream" in snippet.text:
                finish_streams(shared)
            return True
        words = words_of(snippet.text) if snippet.text.count("\n") == 1 else []
        if words[:2] != ["goqueue", "pipeline"] or words[2] not in WITH_JVM or snippet.mark:
            return False
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"yes\n")))

        assert main.run(words[1:]) == 0, f"{snippet.place}: {snippet.text}"
        return True

    Reader(folder, page_broker, here=here).follow(ROOT / name)


def aimed_at(broker: Served, text: str) -> str:
    """Return Python that means this broker where it names none."""
    if '"logdir"' in text:
        return text
    named = f'format("goqueue").option("servers", "{broker.address}")'
    in_sql = f"USING goqueue OPTIONS (servers '{broker.address}', "
    return text.replace('format("goqueue")', named).replace("USING goqueue OPTIONS (", in_sql)


def finish_streams(spark: SparkSession) -> None:
    """Let the streams read all there is; raise what one of them failed with, also before that."""
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()
    # One that is over already: the failure of any of them is raised.
    spark.streams.awaitAnyTermination(1)
    spark.streams.resetTerminated()
