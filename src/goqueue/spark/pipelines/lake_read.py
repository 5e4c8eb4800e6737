"""Lakes and tables as DataFrames."""

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from goqueue.spark.pipelines.lake import Lake, LakeError
from goqueue.spark.pipelines.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from goqueue.spark.pipelines.spec import LakeSource


def read_lake(spark: "SparkSession", path: str) -> "DataFrame":
    """Return the rows of a lake or table as of now; other folders are read as plain Parquet."""
    if "://" in path:
        return spark.read.parquet(path)
    table = Table(Path(path))
    current = table.current()
    if current is not None:
        return spark.read.parquet(str(current))
    lake = Lake(Path(path))
    layout = lake.layout()
    if layout is None:
        if not Path(path).is_dir():
            raise LakeError(f"there is no lake at {path}")
        return spark.read.parquet(path)
    schema = StructType.fromJson(layout.columns)
    files = [str(file) for file in lake.files()]
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", path).parquet(*files)


def read_archive(spark: "SparkSession", source: "LakeSource", path: str) -> "DataFrame":
    """Return an archive of messages as a stream in the order of offsets."""
    from goqueue.spark.pipelines.archive_stream import ArchiveSource  # noqa: PLC0415 - PySpark's API

    spark.dataSource.register(ArchiveSource)
    options = {"lake": path, "since": source.since, "until": source.until}
    if source.rows_max:
        options["maxRowsPerTrigger"] = str(source.rows_max)
    return spark.readStream.format(ArchiveSource.name()).options(**options).load()
