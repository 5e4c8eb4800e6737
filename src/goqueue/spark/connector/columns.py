"""The columns of a topic as Spark types, and what a narrower schema may ask for."""

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    BinaryType,
    ByteType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from goqueue.spark.connector.options import OptionsError

if TYPE_CHECKING:
    from goqueue.spark.connector.typed.columns import TypedColumns

SPARK_SCHEMA: Final = StructType(
    [
        StructField("topic", StringType(), nullable=False),
        StructField("partition", IntegerType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("timestamp", TimestampType(), nullable=False),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", MapType(StringType(), BinaryType())),
        StructField("priority", ByteType(), nullable=False),
        StructField("deliver_at", TimestampType()),
    ]
)
"""What Spark sees of a topic; the types are those of the stored batches."""


def full_schema(*, has_headers: bool, typed: "TypedColumns | None" = None) -> StructType:
    """Return every column there is."""
    base = [one for one in SPARK_SCHEMA if has_headers or one.name != "headers"]
    return StructType(base if typed is None else [*base, *typed.spark_fields()])


def check_schema(asked: StructType, *, known: StructType) -> None:
    """Refuse columns that are not there, or of another type."""
    kinds = {one.name: one.dataType for one in known}
    for one in asked:
        if one.name not in kinds:
            raise OptionsError(
                f"schema: there is no column {one.name!a}; pick some of {list(kinds)}"
            )
        if one.dataType != kinds[one.name]:
            raise OptionsError(
                f"schema: column {one.name} is {kinds[one.name].simpleString()},"
                f" not {one.dataType.simpleString()}"
            )
