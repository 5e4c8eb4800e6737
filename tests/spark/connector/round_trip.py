"""A program of its own: writes a topic, streams it into another, counts both. Prints JSON."""

import json
import sys
import tempfile

from goqueue.spark import session

ROWS = 3_000


def main(place: str, address: str, topic: str) -> None:
    """Run at a master (``spark://…``, ``local[2]``) or a Connect server (``sc://…``)."""
    where = {"remote": place} if place.startswith("sc:") else {"master": place}
    spark = session("round-trip", **where)  # type: ignore[arg-type]
    common = {"servers": address}
    rows = spark.range(0, ROWS, 1, 4).selectExpr(
        "CAST(id % 10 AS STRING) AS key", "CAST(id AS STRING) AS value"
    )
    rows.write.format("goqueue").options(**common, topic=topic).mode("append").save()
    reader = spark.readStream.format("goqueue").options(**common, subscribe=topic)
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            reader.option("startingOffsets", "earliest")
            .load()
            .select("key", "value")
            .writeStream.format("goqueue")
            .options(**common, topic=f"{topic}.out")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    found = spark.read.format("goqueue").options(**common, subscribe=f"{topic}.out").load()
    counted = found.selectExpr("count(*)", "count(DISTINCT value)", "count(DISTINCT key)").collect()
    print(json.dumps(list(counted[0])))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
