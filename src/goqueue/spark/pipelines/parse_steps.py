"""The transforms of a pipeline file."""

from collections.abc import Collection
from typing import Final

from goqueue.spark.pipelines.fields import IDENTIFIER, Fields
from goqueue.spark.pipelines.parse_sources import one_of, parse_watermark
from goqueue.spark.pipelines.spec import DedupStep, PythonStep, SqlStep, Step, WindowStep
from goqueue.spark.pipelines.sql import tables_in

KINDS: Final = ("sql", "python", "window", "dedup")


def parse_step(fields: Fields, name: str, known: Collection[str]) -> Step | None:
    """Return a step; ``known`` are the names a query may read from."""
    kind = one_of(fields, KINDS, noun="a transform")
    if kind is None:
        return None
    inputs = fields.texts("from", required=kind in {"window", "dedup"})
    step: Step
    if kind == "sql":
        step = _sql(fields, name, inputs, known)
    elif kind == "python":
        step = _python(fields, name, inputs)
    elif kind == "window":
        step = _window(fields, name, inputs)
    else:
        step = _dedup(fields, name, inputs)
    if kind in {"window", "dedup"} and len(inputs) > 1:
        fields.problems.add(fields.at("from"), f"a {kind} has one input", "join in a sql before it")
    fields.finish(KINDS)
    return step


def _sql(fields: Fields, name: str, inputs: tuple[str, ...], known: Collection[str]) -> SqlStep:
    sql = fields.sql("sql", required=True)
    # A query may hide a part of its own name, as in WITH orders AS (… FROM orders).
    found = inputs or tables_in(sql, [one for one in known if one != name])
    if sql and not found:
        fields.problems.add(
            fields.at("sql"), "reads from no source or transform", "or name its inputs with from:"
        )
    return SqlStep(name=name, sql=sql, inputs=found, watermark=parse_watermark(fields))


def _python(fields: Fields, name: str, inputs: tuple[str, ...]) -> PythonStep:
    function = fields.text("python", required=True)
    if not inputs:
        fields.problems.add(fields.at("from"), "is required")
    called = function.rpartition(":")[2]
    if function and IDENTIFIER.fullmatch(called) is None:
        fields.problems.add(
            fields.at("python"), "must name a function", "for example steps.py:enrich"
        )
    return PythonStep(
        name=name, function=function, inputs=inputs, watermark=parse_watermark(fields)
    )


def _window(fields: Fields, name: str, inputs: tuple[str, ...]) -> WindowStep:
    inner = Fields(fields.raw("window"), fields.at("window"), fields.problems)
    aggregate = inner.mapping("aggregate")
    if inner.is_usable and not aggregate:
        inner.problems.add(inner.at("aggregate"), "is required", "for example {orders: count(*)}")
    for column in aggregate:
        if IDENTIFIER.fullmatch(column) is None:
            inner.problems.add(inner.at(f"aggregate.{column[:40]}"), "is no name of a column")
    step = WindowStep(
        name=name,
        inputs=inputs,
        column=inner.text("column", required=inner.is_usable),
        size=inner.interval("size", required=inner.is_usable),
        slide=inner.interval("slide"),
        by=inner.texts("by"),
        aggregate=aggregate,
        watermark=parse_watermark(fields),
    )
    inner.finish()
    return step


def _dedup(fields: Fields, name: str, inputs: tuple[str, ...]) -> DedupStep:
    inner = Fields(fields.raw("dedup"), fields.at("dedup"), fields.problems)
    step = DedupStep(
        name=name,
        inputs=inputs,
        by=inner.texts("by", required=inner.is_usable),
        watermark=parse_watermark(fields),
    )
    inner.finish()
    return step
