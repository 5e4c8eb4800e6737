"""The typed columns of a reader: found out by the driver, carried to the tasks."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StringType, StructField

from goqueue.spark.connector.broker import Broker
from goqueue.spark.connector.options import OptionsError, ReadOptions
from goqueue.spark.connector.positions import chosen_topics
from goqueue.spark.connector.typed.fields import CORRUPT, merge
from goqueue.spark.connector.typed.readings import fields_of
from goqueue.spark.connector.typed.subjects import Registered, Subjects


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedColumns:
    """The columns there are, and the schema of each topic."""

    types: Mapping[str, pa.DataType]
    topics: Mapping[str, Registered]

    def spark_fields(self) -> list[StructField]:
        """Return the columns as Spark has them, the one for what cannot be read last."""
        fields = [StructField(name, from_arrow_type(kind)) for name, kind in self.types.items()]
        return [*fields, StructField(CORRUPT, StringType())]


def typed_columns(broker: Broker, options: ReadOptions) -> TypedColumns:
    """Ask for the schemas of the topics to be read and put their columns together."""
    subjects = Subjects(broker)
    topics: dict[str, Registered] = {}
    for topic in chosen_topics(broker, options):
        found = subjects.latest(topic)
        if found is None:
            raise OptionsError(
                f"schema: topic {topic} has none; register one as subject {topic} or {topic}-value"
            )
        topics[topic] = found
    types = merge({topic: fields_of(registered) for topic, registered in topics.items()})
    return TypedColumns(types=types, topics=topics)
