"""A pipeline written in Python: functions from DataFrames to DataFrames, and what surrounds them.

    from goqueue.spark.pipelines import Definition

    pipeline = Definition("orders", trigger="5s")
    pipeline.source("orders", topic="orders", schema="id BIGINT, amount DOUBLE")
    pipeline.expect("orders", "amount > 0", otherwise="quarantine")

    @pipeline.transform
    def large(orders):
        return orders.where("amount > 100")

    pipeline.sink("large_orders", source="large", topic="large-orders", partitions=3)

The fields are those of a pipeline file, and so are the checks.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from goqueue.spark.pipelines.parse import Parsed, parse, read
from goqueue.spark.pipelines.spec import Pipeline

Function = TypeVar("Function", bound=Callable[..., Any])


class Definition:
    """Collects the parts of a pipeline in the order they are written."""

    def __init__(self, name: str = "", **fields: object) -> None:
        self._raw: dict[str, Any] = {**fields}
        if name:
            self._raw["name"] = name
        self.functions: dict[str, Callable[..., Any]] = {}
        """The Python steps by their names."""

    def __repr__(self) -> str:
        return f"<Definition of pipeline {self._raw.get('name', 'without a name')}>"

    def source(self, name: str, **fields: object) -> None:
        """Add a source."""
        self._add("sources", name, fields)

    def sql(self, name: str, query: str, **fields: object) -> None:
        """Add a transform by SQL."""
        self._add("transforms", name, {"sql": query, **fields})

    def step(self, name: str, *, source: str | list[str] | None = None, **fields: object) -> None:
        """Add any other transform: a window or a dedup."""
        self._add("transforms", name, {**_from(source), **fields})

    def transform(
        self, function: Function | None = None, **fields: object
    ) -> Callable[[Function], Function] | Function:
        """Add a function as a transform; its parameters are the names of its inputs.

        Works with and without parentheses; ``name`` and ``inputs`` say otherwise.
        """

        def add(given: Function) -> Function:
            called = str(fields.pop("name", given.__name__))
            inputs = fields.pop("inputs", None) or list(inspect.signature(given).parameters)
            self.functions[called] = given
            self._add("transforms", called, {"python": called, "from": inputs, **fields})
            return given

        return add if function is None else add(function)

    def expect(
        self, part: str, rule: str, *, name: str = "", otherwise: str = "drop", topic: str = ""
    ) -> None:
        """Add a rule about a source or transform."""
        raw = {"that": rule, "else": otherwise}
        raw |= {"name": name} if name else {}
        raw |= {"topic": topic} if topic else {}
        self._raw.setdefault("expectations", {}).setdefault(part, []).append(raw)

    def sink(self, name: str, *, source: str, **fields: object) -> None:
        """Add a sink."""
        self._add("sinks", name, {"from": source, **fields})

    def parse(self, *, default_name: str = "pipeline", folder: str = ".") -> Pipeline:
        """Return the pipeline, or raise PipelineError with all that is wrong with it."""
        return parse(self._raw, default_name=default_name, folder=folder)

    def read(self, *, default_name: str = "pipeline", folder: str = ".") -> Parsed:
        """Return the pipeline as far as it can be read, with what is wrong so far."""
        return read(self._raw, default_name=default_name, folder=folder)

    def _add(self, section: str, name: str, fields: dict[str, Any]) -> None:
        parts = self._raw.setdefault(section, {})
        if name in parts:
            raise ValueError(f"{section}.{name} is there twice")
        parts[name] = fields


def _from(source: str | list[str] | None) -> dict[str, Any]:
    return {} if source is None else {"from": source}
