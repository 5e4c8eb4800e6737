"""The ready-made pipelines as functions: the same files, filled in and run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from goqueue.spark.pipelines.bind import Surroundings
from goqueue.spark.pipelines.lake_read import read_lake
from goqueue.spark.pipelines.load import Loaded, parse_text
from goqueue.spark.pipelines.run import RunOptions, run
from goqueue.spark.pipelines.spec import Mode, Pipeline
from goqueue.spark.pipelines.templates import fill, replay_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from goqueue.spark.pipelines.state import RunState


def pipeline_of(kind: str, blanks: Mapping[str, str], *, folder: str = ".") -> Pipeline:
    """Return a ready-made pipeline."""
    return parse_text(fill(kind, blanks), default_name=kind, folder=folder)


def archive(
    around: Surroundings,
    topics: Sequence[str],
    lake: str,
    *,
    name: str = "archive",
    options: RunOptions | None = None,
) -> "RunState":
    """Write what is new in topics to a lake, in folders by topic, day and hour."""
    blanks = {"name": name, "topics": ",".join(topics), "lake": lake}
    return _run("archive", blanks, around, options)


def materialize(
    around: Surroundings,
    topics: Sequence[str],
    table: str,
    *,
    name: str = "materialize",
    options: RunOptions | None = None,
) -> "RunState":
    """Bring a table of the latest message of each key up to date."""
    blanks = {"name": name, "topics": ",".join(topics), "table": table}
    return _run("materialize", blanks, around, options)


def backfill(
    around: Surroundings,
    path: str,
    topic: str,
    *,
    format: str = "json",  # noqa: A002 - Spark's word for it
    key: str = "",
    value: str = "",
    name: str = "backfill",
    options: RunOptions | None = None,
) -> "RunState":
    """Publish the rows of files that are new; ``key`` and ``value`` are SQL expressions."""
    blanks = {
        "name": name, "path": path, "topic": topic, "format": format, "key": key, "value": value,
    }  # fmt: skip
    return _run("backfill", blanks, around, options)


def replay(
    around: Surroundings,
    blanks: Mapping[str, str],
    *,
    rate: int = 0,
    options: RunOptions | None = None,
) -> "RunState":
    """Send messages of an archive to a topic; ``rate`` is the most of them a second, 0 for all.

    ``blanks`` are those of the template ``replay``: lake, topic, since, until, where. The same
    replay goes on where it was; another one has another name.
    """
    filled = {"name": replay_name(blanks), **blanks}
    if not rate:
        return _run("replay", filled, around, options)
    # As many as a second allows are a batch, and a batch begins every second.
    pipeline = pipeline_of("replay", {**filled, "rows_max": str(rate)})
    paced = replace(pipeline, trigger="1 second")
    chosen = replace(options or RunOptions(), mode=Mode.CONTINUOUS, is_over_when_idle=True)
    return run(Loaded(pipeline=paced), around, chosen)


def replay_rows(around: Surroundings, blanks: Mapping[str, str]) -> "DataFrame":
    """Return the messages a replay would send, as they are in the lake."""
    rows = read_lake(around.spark, str(Path(blanks["lake"]).resolve()))
    conditions = [f"({blanks.get('where') or 'true'})"]
    if blanks.get("since"):
        conditions.append(f"timestamp >= TIMESTAMP '{blanks['since']}'")
    if blanks.get("until"):
        conditions.append(f"timestamp < TIMESTAMP '{blanks['until']}'")
    return rows.where(" AND ".join(conditions))


def _run(
    kind: str, blanks: Mapping[str, str], around: Surroundings, options: RunOptions | None
) -> "RunState":
    loaded = Loaded(pipeline=pipeline_of(kind, blanks, folder=str(Path.cwd())))
    return run(loaded, around, options or RunOptions())
