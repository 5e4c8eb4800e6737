"""How long a message takes through a running Spark query, and what a worker needs meanwhile."""

import threading
import time
from functools import partial

import psutil
from pyspark.sql import SparkSession

import goqueue
from benchmarks.pace import Pace
from benchmarks.peers.peer import PARTITIONS
from benchmarks.percentiles import latency_summary
from benchmarks.results import Better
from benchmarks.trial import P50, P99, Bench, Measured, Metric, Trial, Workload
from goqueue.spark.session import session

RATE_PER_SECOND = 1_000
SECONDS = 15
SECONDS_QUICK = 3
VALUE_BYTES = 1_000
VOLUME_BYTES = 2 << 30
VOLUME_BYTES_QUICK = 64 << 20
LOOK_SECONDS = 0.05
RESIDENT = Metric(name="resident", unit="MB", better=Better.LOWER)


def trials(bench: Bench) -> list[Trial]:
    """Answer both questions with one session."""
    spark = session("benchmarks", master="local[2]")
    name = bench.goqueue.name
    return [
        Trial(case="publish to sink", peer=name, measure=partial(latency, bench, spark)),
        Trial(case="worker reading 2 GiB", peer=name, measure=partial(memory, bench, spark)),
    ]


def latency(bench: Bench, spark: SparkSession) -> Measured:
    """Publish at a steady rate and read the sink; each message carries when it was sent."""
    address = bench.goqueue.client().address
    entry, exit_ = bench.fresh_topic(), bench.fresh_topic()
    count = RATE_PER_SECOND * (SECONDS_QUICK if bench.options.quick else SECONDS)
    with goqueue.connect(address) as client:
        for topic in (entry, exit_):
            client.create_topic(topic, partitions=PARTITIONS)
        source = spark.readStream.format("goqueue").options(servers=address, subscribe=entry)
        query = (
            source.option("startingOffsets", "earliest")
            .load()
            .select("key", "value")
            .writeStream.format("goqueue")
            .options(servers=address, topic=exit_)
            .option("checkpointLocation", str(bench.scratch / f"checkpoint-{entry}"))
            .start()
        )
        try:
            return _watch(client, entry, exit_, count)
        finally:
            query.stop()


def _watch(client: goqueue.Client, entry: str, exit_: str, count: int) -> Measured:
    # The first batch compiles; it is waited for and not counted.
    with client.producer(entry) as producer:
        producer.send(b"%d" % time.time_ns()).result()
        waits: list[float] = []
        messages = client.read(exit_, follow=True)
        next(messages)
        publisher = threading.Thread(target=_publish, args=(producer, count))
        publisher.start()
        for _ in range(count):
            message = next(messages)
            waits.append((time.time_ns() - int(message.value or b"0")) / 1e9)
        publisher.join()
        messages.close()
    summary = latency_summary(waits)
    return {P50: summary["p50"], P99: summary["p99"]}


def _publish(producer: goqueue.Producer, count: int) -> None:
    for _ in Pace(rate_hz=RATE_PER_SECOND, count=count).ticks():
        producer.send(b"%d" % time.time_ns())


def memory(bench: Bench, spark: SparkSession) -> Measured:
    """Read a large topic and watch the largest of the Python workers."""
    address, topic = bench.goqueue.client().address, bench.fresh_topic()
    volume = VOLUME_BYTES_QUICK if bench.options.quick else VOLUME_BYTES
    with goqueue.connect(address) as client:
        client.create_topic(topic, partitions=PARTITIONS)
        rows = spark.range(volume // VALUE_BYTES).selectExpr(
            "CAST(id AS STRING) AS key", f"repeat('x', {VALUE_BYTES}) AS value"
        )
        writer = rows.write.format("goqueue").options(servers=address, topic=topic)
        writer.mode("append").save()
        is_over = threading.Event()
        peaks: list[int] = [0]
        watcher = threading.Thread(target=_look, args=(is_over, peaks))
        watcher.start()
        frame = spark.read.format("goqueue").options(servers=address, subscribe=topic).load()
        frame.write.format("noop").mode("overwrite").save()
        is_over.set()
        watcher.join()
        client.delete_topic(topic)
    return {RESIDENT: peaks[0] / 1e6}


def _look(is_over: threading.Event, peaks: list[int]) -> None:
    while not is_over.wait(LOOK_SECONDS):
        for process in psutil.Process().children(recursive=True):
            try:
                if "pyspark.daemon" in process.cmdline():
                    peaks[0] = max(peaks[0], process.memory_info().rss)
            except psutil.Error:
                continue


WORKLOAD = Workload(
    name="spark-stream",
    title="Spark, local[2]: from publish to a row in the sink topic, and a worker's memory",
    trials=trials,
    rounds_max=1,
)
