"""``format("goqueue")``: the door through which Spark comes in.

Spark starts a process for each step of its planning, so each loads no more than it needs.
"""
# ruff: noqa: PLC0415 - that is why the parts are imported where they are used

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from goqueue.spark.connector.columns import check_schema, full_schema
from goqueue.spark.connector.options import (
    OptionsError,
    ReadOptions,
    check_source,
    read_options,
    write_options,
)

if TYPE_CHECKING:
    from goqueue.spark.connector.typed.columns import TypedColumns


class GoQueueDataSource(DataSource):
    """Topics of a GoQueue broker."""

    options: MutableMapping[str, str]
    _typed: "TypedColumns | None" = None

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` is given."""
        return "goqueue"

    def schema(self) -> StructType:
        """Return every column there is; where nothing is to be read, say so already now."""
        check_source(self.options)
        has_headers = self.options.get("includeheaders", "true") != "false"
        return full_schema(has_headers=has_headers, typed=self._typed_columns())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a batch."""
        from goqueue.spark.connector.reader import Reader

        options = self._read_options(schema, is_stream=False)
        return Reader(options, schema, self._typed_columns())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what reads a stream."""
        from goqueue.spark.connector.stream import StreamReader

        options = self._read_options(schema, is_stream=True)
        return StreamReader(options, schema, self._typed_columns())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's
        """Return what writes a batch."""
        from goqueue.spark.connector.writer import BatchWriter

        if overwrite:
            raise OptionsError("a log is only appended to: write with mode('append')")
        return BatchWriter(write_options(self.options, is_stream=False), schema)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> DataSourceStreamWriter:
        """Return what writes a stream."""
        from goqueue.spark.connector.writer import StreamWriter

        if overwrite:
            raise OptionsError("a log is only appended to: use the output mode append or update")
        return StreamWriter(write_options(self.options, is_stream=True), schema)

    def _read_options(self, schema: StructType, *, is_stream: bool) -> ReadOptions:
        options = read_options(self.options, is_stream=is_stream)
        check_schema(schema, known=self.schema())
        return options

    def _typed_columns(self) -> "TypedColumns | None":
        """Return the typed columns, if they are asked for; found out once for a DataFrame."""
        if "schema" in self.options and self._typed is None:
            from goqueue.spark.connector.broker import Broker
            from goqueue.spark.connector.typed.columns import typed_columns

            options = read_options(self.options, is_stream=None)
            if options.is_typed:
                self._typed = typed_columns(Broker(options.connection), options)
        return self._typed
