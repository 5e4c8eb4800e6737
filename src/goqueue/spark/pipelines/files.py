"""Whether the files a pipeline reads are there."""

import glob
from pathlib import Path

from goqueue.spark.pipelines.graph import Graph
from goqueue.spark.pipelines.problems import Problems
from goqueue.spark.pipelines.spec import FileSource, LakeSource


def check_files(graph: Graph, problems: Problems) -> None:
    """Note the files and lakes that are not there; those elsewhere are Spark's business."""
    for source in graph.pipeline.sources.values():
        if source.name not in graph.order or not isinstance(source, FileSource | LakeSource):
            continue
        if "://" in source.path:
            continue
        path = str(Path(graph.pipeline.folder, source.path))
        if not glob.glob(path):  # noqa: PTH207 - the path itself may be a pattern
            problems.add(f"sources.{source.name}", f"there is nothing at {path}")
