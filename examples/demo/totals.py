"""Totals of orders by window and category, as a stream of updates into a topic.

A window is written again whenever it grows: the last message of a key is how it stands. Spark gives
data sources in Python no output mode but append, so batches are written one by one, each with the
number that makes it count once.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from goqueue.spark.pipelines.bind import parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WINDOW: Final = "10 seconds"
LATE: Final = "20 minutes"
COLUMNS: Final = "category STRING, amount_cents BIGINT, ordered_at TIMESTAMP"
APP_ID: Final = "demo-totals"


def totals(clean: "DataFrame") -> "DataFrame":
    """Return how many orders there are in each window and category, and what they are worth."""
    return (
        parsed(clean, COLUMNS)
        .withWatermark("ordered_at", LATE)
        .groupBy(F.window("ordered_at", WINDOW), "category")
        .agg(F.count(F.lit(1)).alias("orders"), F.sum("amount_cents").alias("amount_cents"))
        .select(
            F.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss'Z'").alias("since"),
            "category",
            "orders",
            "amount_cents",
        )
    )


def messages(rows: "DataFrame") -> "DataFrame":
    """Return totals as messages, with a key for each window and category."""
    key = F.concat_ws(" ", "since", "category")
    value = F.to_json(F.struct("since", "category", "orders", "amount_cents"))
    return rows.select(key.cast("binary").alias("key"), value.cast("binary").alias("value"))


def start_totals(
    spark: "SparkSession", *, name: str, servers: str, source: str, target: str, checkpoint: Path
) -> "StreamingQuery":
    """Start the query that keeps the totals up to date."""
    clean = (
        spark.readStream.format("goqueue")
        .options(servers=servers, subscribe=source, startingOffsets="earliest")
        .load()
    )
    return (
        messages(totals(clean))
        .writeStream.queryName(name)
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="1 second")
        .foreachBatch(_written_once(servers, target))
        .start()
    )


def _written_once(servers: str, topic: str) -> Callable[["DataFrame", int], None]:
    def write(rows: "DataFrame", batch: int) -> None:
        options = {"servers": servers, "topic": topic, "txnAppId": APP_ID, "txnVersion": str(batch)}
        rows.write.format("goqueue").mode("append").options(**options).save()

    return write
