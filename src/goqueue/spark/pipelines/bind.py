"""A pipeline in Spark: every source and step as a DataFrame, in the order of the graph.

SQL finds the parts as temporary views of their names, in the session that is given.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import cloudpickle
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import StringType, StructField, StructType

from goqueue.spark.pipelines.failure import brief
from goqueue.spark.pipelines.graph import Graph
from goqueue.spark.pipelines.lake_read import read_archive, read_lake
from goqueue.spark.pipelines.load import MODULE_PREFIX, Loaded
from goqueue.spark.pipelines.problems import PipelineError, Problem
from goqueue.spark.pipelines.rules import counts, kept
from goqueue.spark.pipelines.spec import (
    DedupStep,
    Expectation,
    FileSource,
    LakeSource,
    PythonStep,
    Source,
    SqlStep,
    Step,
    TopicSource,
    Watermark,
    WindowStep,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORRUPT: Final = "_corrupt"
REGISTRY: Final = "registry"
OBSERVED: Final = "goqueue_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a pipeline finds around it: the session and the broker."""

    spark: "SparkSession"
    servers: str = ""
    api_key: str = ""
    tls: Mapping[str, str] = field(default_factory=dict)
    """Options of the connector that say how TLS is spoken; none for connections in the clear."""

    def broker_options(self) -> dict[str, str]:
        """Return the options of the connector that say where the broker is."""
        options = {"servers": self.servers} if self.servers else {}
        return options | ({"apiKey": self.api_key} if self.api_key else {}) | dict(self.tls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """DataFrames by the names of parts: as they are read, and with their rules kept."""

    raw: Mapping[str, "DataFrame"]
    clean: Mapping[str, "DataFrame"]
    counted: Mapping[str, "DataFrame"]
    """As they are read, with the rows that break a rule counted as they pass."""
    observations: Mapping[str, Any] = field(default_factory=dict)
    """Of a batch: what is counted for each part with rules."""


def bind(
    loaded: Loaded,
    graph: Graph,
    around: Surroundings,
    problems: list[Problem],
    given: Bound | None = None,
) -> Bound:
    """Return the parts as DataFrames, and note why some are not; nothing is read but schemas.

    What is ``given`` is taken as it is, and then rows that break a rule are not counted.
    """
    raw: dict[str, DataFrame] = dict(given.raw) if given else {}
    clean: dict[str, DataFrame] = dict(given.clean) if given else {}
    counted: dict[str, DataFrame] = dict(given.counted) if given else {}
    for name, rows in clean.items():
        rows.createOrReplaceTempView(name)
    observations: dict[str, Any] = {}
    for name in graph.order:
        if name in clean or any(one not in clean for one in graph.inputs[name]):
            continue
        try:
            raw[name] = _part(loaded, graph, name, clean, around)
            is_counted = given is None
            counted[name] = (
                _counted(graph, name, raw[name], observations) if is_counted else raw[name]
            )
            clean[name] = kept(counted[name], name, graph.pipeline.expectations.get(name, ()))
            clean[name].createOrReplaceTempView(name)
        except PipelineError as error:
            problems += error.problems
        except Exception as error:  # noqa: BLE001 - Spark's, and those of the user's functions
            section = "sources" if name in graph.pipeline.sources else "transforms"
            problems.append(Problem(path=f"{section}.{name}", message=brief(error)))
    return Bound(raw=raw, clean=clean, counted=counted, observations=observations)


def _part(
    loaded: Loaded,
    graph: Graph,
    name: str,
    clean: Mapping[str, "DataFrame"],
    around: Surroundings,
) -> "DataFrame":
    part = graph.part(name)
    if isinstance(part, TopicSource | FileSource | LakeSource):
        is_stream = name in graph.streams
        rows = read_source(part, around, folder=graph.pipeline.folder, is_stream=is_stream)
        return _with_watermark(rows, part.watermark)
    inputs = [clean[one] for one in graph.inputs[name]]
    return _step(part, inputs, loaded, around, is_stream=name in graph.streams)


def _counted(
    graph: Graph, name: str, rows: "DataFrame", observations: dict[str, Any]
) -> "DataFrame":
    """Return a part with the rows that break its rules counted."""
    rules: Sequence[Expectation] = graph.pipeline.expectations.get(name, ())
    if not rules:
        return rows
    for place, rule in enumerate(rules):
        try:
            rows.where(F.expr(f"({rule.rule})").cast("boolean"))
        except Exception as error:
            raise PipelineError(
                [Problem(path=f"expectations.{name}[{place}].that", message=brief(error))]
            ) from error
    if rows.isStreaming:
        return rows.observe(f"{OBSERVED}{name}", *counts(rules))
    from pyspark.sql import Observation  # noqa: PLC0415 - only batches have them

    observations[name] = Observation(f"{OBSERVED}{name}")
    return rows.observe(observations[name], *counts(rules))


# Sources.


def read_source(
    source: Source, around: Surroundings, *, folder: str, is_stream: bool
) -> "DataFrame":
    """Return the rows of a source."""
    match source:
        case TopicSource():
            return _topic(source, around, is_stream=is_stream)
        case FileSource():
            return _files(source, around.spark, folder=folder, is_stream=is_stream)
        case LakeSource():
            path = resolve(source.path, folder)
            if is_stream:
                return read_archive(around.spark, source, path)
            return read_lake(around.spark, path)


def _topic(source: TopicSource, around: Surroundings, *, is_stream: bool) -> "DataFrame":
    spark = around.spark
    reader: Any = spark.readStream if is_stream else spark.read
    options = {**around.broker_options(), **source.options}
    if source.topics:
        options["subscribe"] = ",".join(source.topics)
    else:
        options["subscribePattern"] = source.pattern
    options["startingOffsets"] = source.start or "earliest"
    if is_stream and source.rows_max:
        options["maxOffsetsPerTrigger"] = str(source.rows_max)
    if source.schema.lower() == REGISTRY:
        options["schema"] = REGISTRY
    rows: DataFrame = reader.format("goqueue").options(**options).load()
    if source.schema and source.schema.lower() != REGISTRY:
        return parsed(rows, source.schema)
    return rows


def parsed(rows: "DataFrame", ddl: str) -> "DataFrame":
    """Return messages with the fields of their JSON values as columns.

    A field that is called like a column of the message gets a ``_`` behind its name; what is no
    such JSON is in ``_corrupt``, with all fields empty.
    """
    wanted = StructType([*_fields(ddl), StructField(CORRUPT, StringType())])
    value = F.from_json(
        F.col("value").cast("string"),
        wanted,
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT},
    )
    row = rows.withColumn("_row", value)
    taken = {*(name.lower() for name in rows.columns)}
    columns = [
        F.col("_row")[one.name].alias(f"{one.name}_" if one.name.lower() in taken else one.name)
        for one in wanted.fields
    ]
    return row.select(*rows.columns, *columns)


def _fields(ddl: str) -> list[StructField]:
    made = StructType.fromDDL(ddl)
    assert isinstance(made, StructType), "columns make a struct"
    return made.fields


def _files(
    source: FileSource, spark: "SparkSession", *, folder: str, is_stream: bool
) -> "DataFrame":
    path = resolve(source.path, folder)
    reader = spark.read.format(source.format).options(**source.options)
    if source.schema:
        reader = reader.schema(source.schema)
    if not is_stream:
        return reader.load(path)
    schema: Any = source.schema or reader.load(path).schema
    stream = spark.readStream.format(source.format).options(**source.options).schema(schema)
    if source.files_max:
        stream = stream.option("maxFilesPerTrigger", source.files_max)
    return stream.load(path)


def resolve(path: str, folder: str) -> str:
    """Return a path that does not depend on where the program was started."""
    return path if "://" in path else str(Path(folder, path).resolve())


# Steps.


def _step(
    step: Step,
    inputs: Sequence["DataFrame"],
    loaded: Loaded,
    around: Surroundings,
    *,
    is_stream: bool,
) -> "DataFrame":
    match step:
        case SqlStep():
            return _with_watermark(around.spark.sql(step.sql), step.watermark)
        case PythonStep():
            return _with_watermark(_python(step, inputs, loaded), step.watermark)
        case WindowStep():
            rows = _with_watermark(inputs[0], step.watermark)
            window = F.window(step.column, step.size, step.slide or None)
            aggregates = [F.expr(one).alias(name) for name, one in step.aggregate.items()]
            return rows.groupBy(window, *step.by).agg(*aggregates)
        case DedupStep():
            rows = _with_watermark(inputs[0], step.watermark)
            by = list(step.by)
            return rows.dropDuplicatesWithinWatermark(by) if is_stream else rows.dropDuplicates(by)


def _python(step: PythonStep, inputs: Sequence["DataFrame"], loaded: Loaded) -> "DataFrame":
    function = loaded.functions[step.name]
    module = sys.modules.get(function.__module__)
    if module is not None and module.__name__.startswith(MODULE_PREFIX):
        # Workers cannot import a pipeline file, so its functions travel whole.
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    made = function(*inputs)
    if not hasattr(made, "createOrReplaceTempView"):
        raise TypeError(f"{step.function} returned {type(made).__name__}, not a DataFrame")
    rows: DataFrame = made
    return rows


def _with_watermark(rows: "DataFrame", watermark: Watermark | None) -> "DataFrame":
    return rows if watermark is None else rows.withWatermark(watermark.column, watermark.delay)
