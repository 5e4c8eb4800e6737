"""Dead letters as a table: what died, where it came from, why, and in whose hands."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from goqueue.core.dlq.record import REDRIVES, STORY
from goqueue.spark.pipelines.bind import Surroundings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VIEW: Final = "letters"
_STORY: Final = (
    "original_topic STRING, original_partition INT, original_offset BIGINT,"
    " original_timestamp_us BIGINT, delivery_attempts BIGINT, first_delivery_ms BIGINT,"
    " last_consumer STRING, last_group STRING, reason STRING, last_error STRING"
)


def letters(around: Surroundings, dlqs: Sequence[str]) -> "DataFrame":
    """Return the dead letters in the log, those that went back or were purged among them."""
    rows = (
        around.spark.read.format("goqueue")
        .options(**around.broker_options())
        .option("subscribe", ",".join(dlqs))
        .load()
    )
    story = F.from_json(F.element_at("headers", F.lit(STORY)).cast("string"), _STORY)
    told = rows.withColumn("_story", story)
    redrives = F.element_at("headers", F.lit(REDRIVES)).cast("string")
    return told.select(
        F.col("topic").alias("dlq"),
        "partition",
        "offset",
        F.col("timestamp").alias("died_at"),
        F.coalesce(
            F.nullif(F.col("_story.original_topic"), F.lit("")),
            F.regexp_replace("topic", r"\.dlq$", ""),
        ).alias("source"),
        F.col("_story.original_partition").alias("source_partition"),
        F.col("_story.original_offset").alias("source_offset"),
        F.timestamp_micros("_story.original_timestamp_us").alias("sent_at"),
        F.coalesce(F.col("_story.reason"), F.lit("UNKNOWN")).alias("reason"),
        F.coalesce(F.col("_story.last_error"), F.lit("")).alias("error"),
        F.coalesce(F.col("_story.last_group"), F.lit("")).alias("group"),
        F.coalesce(F.col("_story.last_consumer"), F.lit("")).alias("consumer"),
        F.coalesce(F.col("_story.delivery_attempts"), F.lit(0)).alias("attempts"),
        F.coalesce(redrives.try_cast("int"), F.lit(0)).alias("redrives"),
        F.col("key").cast("string").alias("key"),
        F.col("value").cast("string").alias("value"),
        F.col("key").alias("key_bytes"),
        F.col("value").alias("value_bytes"),
        "headers",
        "priority",
    )
