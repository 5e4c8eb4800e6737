"""The folder of the demonstration: emptied where it is ours, refused where it is not."""

from pathlib import Path

import pytest

from examples.demo.folder import FolderError, fresh_folder
from examples.demo.spark_run import is_behind, offsets_of, write_files
from goqueue.spark.pipelines.graph import plan
from goqueue.spark.pipelines.load import load
from goqueue.spark.pipelines.spec import Mode


def test_what_a_run_left_behind_is_removed(tmp_path: Path) -> None:
    """The next run begins with an empty folder."""
    with fresh_folder(tmp_path / "demo") as first:
        (first / "lake").mkdir()
        (first / "lake" / "file").touch()
    with fresh_folder(tmp_path / "demo") as second:
        left = [one.name for one in second.iterdir()]

    assert left == [".goqueue-demo"]


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    """A folder without our mark is not touched."""
    (tmp_path / "thesis.txt").write_text("years of work")

    with pytest.raises(FolderError), fresh_folder(tmp_path):
        pass

    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    """The second one is told that the first one is there."""
    with (
        fresh_folder(tmp_path / "demo"),
        pytest.raises(FolderError, match="another"),
        fresh_folder(tmp_path / "demo"),
    ):
        pass


def test_the_pipeline_is_sound(tmp_path: Path) -> None:
    """The pipeline that is shipped can be planned as a stream."""
    write_files(tmp_path)

    graph = plan(load(tmp_path / "pipeline.yaml").pipeline, Mode.CONTINUOUS)

    assert graph.unused == ()
    assert {"orders", "clean", "unique", "enriched"} <= graph.streams
    assert (tmp_path / "products.csv").read_text().startswith("product,name,category,price_cents")


def test_how_far_a_query_is_follows_from_its_report() -> None:
    """A query is behind until each partition is read up to its end."""
    report = {"sources": [{"endOffset": '{"orders": {"0": 5, "1": 7}}'}, {"endOffset": None}]}
    reached = {"orders.lake": offsets_of(report)}

    assert not is_behind(reached, "orders.lake", "orders", {0: 5, 1: 6})
    assert is_behind(reached, "orders.lake", "orders", {0: 5, 1: 7, 2: 1})
    assert is_behind(reached, "orders.totals", "orders", {0: 1})
    assert not is_behind({}, "orders.totals", "orders", {0: 0})
