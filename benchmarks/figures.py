"""The figures GoQueue has to reach, each computed from the medians of one run."""

from benchmarks.figure import Figure, against, alone, best_of, within
from benchmarks.workloads.clients import (
    HTTP,
    ONE_ASYNC,
    ONE_SYNC,
    connections_case,
    handlers_case,
)
from benchmarks.workloads.jobs import TASKS, THREADS, without_sync

PUBLISH = ("publish", "100 B", "rate")
OBJECTS = ("read", "objects", "rate")
ARROW = ("read", "arrow", "rate")
CONSUME = ("consume", "one ack per message", "rate")
DISK = ("latency", "disk", "p50")
OPEN_LARGE = ("restart", "1024 MiB", "open")
OPEN_SMALL = ("restart", "64 MiB", "open")

SPARK_READ = ("spark", "batch read", "rate")
SPARK_STREAM = ("spark", "stream read", "rate")
SPARK_WRITE = ("spark", "batch write", "rate")
SPARK_ARCHIVE = ("spark", "archive", "rate")

HTTP_RATE = ("clients", HTTP, "rate")


def jobs_figures(case: str) -> tuple[Figure, ...]:
    """Return the figures of 16 workers that take one job at a time."""
    rate = ("jobs", case, "rate")
    return (
        Figure(
            work=f"jobs, {case}, one at a time, against RabbitMQ",
            unit="x",
            at_least=1,
            compute=against(rate, rate, peer="rabbitmq"),
        ),
        Figure(
            work=f"jobs, {case}, one at a time, against Redis everysec",
            unit="x",
            at_least=0.8,
            compute=against(rate, rate, peer="redis"),
        ),
        Figure(
            work=f"jobs, {case}, one at a time: the broker's processor time",
            unit="us",
            at_most=130,
            compute=alone(("jobs", case, "broker")),
        ),
        Figure(
            work=f"jobs, {case}, one at a time, durability=os, against RabbitMQ",
            unit="x",
            at_least=1.2,
            compute=against(("jobs", without_sync(case), "rate"), rate, peer="rabbitmq"),
        ),
    )


def one_publish_figures(case: str, *, disk_ratio_max: float) -> tuple[Figure, ...]:
    """Return the figures of one caller that awaits each message."""
    p50 = ("clients", case, "p50")
    return (
        Figure(
            work=f"publish {case}: the client's processor time",
            unit="us",
            at_most=80,
            compute=alone(("clients", case, "client")),
        ),
        Figure(
            work=f"publish {case}: the broker's processor time",
            unit="us",
            at_most=90,
            compute=alone(("clients", case, "broker")),
        ),
        Figure(
            work=f"publish {case}: p50 against the disk's fdatasync",
            unit="x",
            at_most=disk_ratio_max,
            compute=against(p50, p50, peer="fdatasync"),
        ),
    )


def connections_figures(count: int) -> tuple[Figure, ...]:
    """Return the figures of connections that each await one message."""
    rate = ("clients", connections_case(count), "rate")
    return (
        Figure(
            work=f"{count} connections, one publish each, against Redis always",
            unit="x",
            at_least=0.8,
            compute=against(rate, rate, peer="redis-always"),
        ),
        Figure(
            work=f"{count} connections, one publish each, against NATS JetStream",
            unit="x",
            at_least=0.7,
            compute=against(rate, rate, peer="nats"),
        ),
    )


def handlers_figure(count: int, *, at_least: float) -> Figure:
    """Return the figure of handlers that share a client."""
    rate = ("clients", handlers_case(count), "rate")
    return Figure(
        work=f"{count} handlers that share a client, one publish each, against Redis everysec",
        unit="x",
        at_least=at_least,
        compute=against(rate, rate, peer="redis"),
    )


FIGURES: tuple[Figure, ...] = (
    Figure(
        work="publish 100 B against Redis Streams",
        unit="x",
        at_least=8,
        compute=against(PUBLISH, PUBLISH, peer="redis"),
    ),
    Figure(
        work="publish 100 B against Redis Streams, its client without hiredis",
        unit="x",
        at_least=8,
        compute=against(PUBLISH, PUBLISH, peer="redis-plain"),
    ),
    Figure(
        work="publish 100 B against Kafka",
        unit="x",
        at_least=1,
        compute=against(PUBLISH, PUBLISH, peer="kafka"),
    ),
    Figure(
        work="read objects against Redis XREAD",
        unit="x",
        at_least=8,
        compute=against(OBJECTS, OBJECTS, peer="redis"),
    ),
    Figure(
        work="read Arrow batches against Redis XREAD",
        unit="x",
        at_least=40,
        compute=against(ARROW, OBJECTS, peer="redis"),
    ),
    Figure(
        work="read objects against Redis XREAD, its client without hiredis",
        unit="x",
        at_least=8,
        compute=against(OBJECTS, OBJECTS, peer="redis-plain"),
    ),
    Figure(
        work="read Arrow batches against Redis XREAD, its client without hiredis",
        unit="x",
        at_least=40,
        compute=against(ARROW, OBJECTS, peer="redis-plain"),
    ),
    Figure(
        work="consume, one ack per message, against Redis XREADGROUP and batched XACK",
        unit="x",
        at_least=2.5,
        compute=against(CONSUME, CONSUME, peer="redis"),
    ),
    Figure(
        work="consume, one ack per message, against NATS JetStream",
        unit="x",
        at_least=8,
        compute=against(CONSUME, CONSUME, peer="nats"),
    ),
    Figure(
        work="consume, one ack per message, against RabbitMQ",
        unit="x",
        at_least=20,
        compute=against(CONSUME, CONSUME, peer="rabbitmq"),
    ),
    Figure(
        work="consume in the order of 10,000 keys against without, same settings",
        unit="x",
        at_least=0.35,
        compute=within(
            ("consume", "in the order of 10,000 keys", "rate"),
            ("consume", "without an order, same settings", "rate"),
        ),
    ),
    Figure(
        work="consume in the order of 10,000 keys against without, each as suits it",
        unit="x",
        at_least=0.35,
        compute=within(("consume", "in the order of 10,000 keys", "rate"), CONSUME),
    ),
    Figure(
        work="HTTP batch of 1000, in",
        unit="k/s",
        at_least=150,
        compute=alone(("http", "in", "rate"), scale=1e-3),
    ),
    Figure(
        work="HTTP reads of 1000, out",
        unit="k/s",
        at_least=60,
        compute=alone(("http", "out", "rate"), scale=1e-3),
    ),
    Figure(
        work="HTTP poll of 100 and batch ack",
        unit="k/s",
        at_least=36,
        compute=alone(("http-consume", "poll of 100, batch ack", "rate"), scale=1e-3),
    ),
    Figure(
        work="one publish at a time, p50 against the disk's fdatasync",
        unit="x",
        at_most=2.5,
        compute=against(("latency", "one at a time", "p50"), DISK, peer="fdatasync"),
    ),
    Figure(
        work="one publish at a time, p99",
        unit="ms",
        at_most=10,
        compute=alone(("latency", "one at a time", "p99")),
    ),
    Figure(
        work="async publish, p50 against the disk's fdatasync",
        unit="x",
        at_most=2.5,
        compute=against(("latency", "async", "p50"), DISK, peer="fdatasync"),
    ),
    Figure(
        work="async publish, p99",
        unit="ms",
        at_most=10,
        compute=alone(("latency", "async", "p99")),
    ),
    Figure(
        work="open a partition of 1 GiB",
        unit="s",
        at_most=1,
        compute=alone(OPEN_LARGE, scale=1e-3),
    ),
    Figure(
        work="start a broker on a partition of 1 GiB",
        unit="s",
        at_most=1,
        compute=alone(("restart", "1024 MiB", "serve"), scale=1e-3),
    ),
    Figure(
        work="open 1 GiB against 64 MiB",
        unit="x",
        at_most=2,
        compute=within(OPEN_LARGE, OPEN_SMALL),
    ),
    Figure(
        work="broker memory after 1 GiB published and read",
        unit="MB",
        at_most=250,
        compute=alone(("memory", "1024 MiB", "resident")),
    ),
    Figure(
        work="publish with 300 partitions against 3",
        unit="x",
        at_least=0.5,
        compute=within(("partitions", "300", "rate"), ("partitions", "3", "rate")),
    ),
    Figure(
        work="ack with 10 M against 10 k unacked behind",
        unit="x",
        at_most=1.5,
        compute=within(("ack-cost", "10 M unacked", "ack"), ("ack-cost", "10 k unacked", "ack")),
    ),
    Figure(
        work="delayed messages scheduled",
        unit="k/s",
        at_least=100,
        compute=alone(("delays", "schedule", "rate"), scale=1e-3),
    ),
    Figure(
        work="delayed messages due at 10 k/s, p99 lateness",
        unit="ms",
        at_most=50,
        compute=alone(("delays", "due at 10 k/s", "p99")),
    ),
    Figure(
        work="broker memory with a million delayed messages",
        unit="MB",
        at_most=150,
        compute=alone(("delays", "schedule", "resident")),
    ),
    Figure(
        work="start a broker with a million delayed messages",
        unit="s",
        at_most=5,
        compute=alone(("delays", "schedule", "serve"), scale=1e-3),
    ),
    Figure(
        work="publish with a JSON schema of ten fields enforced",
        unit="k/s",
        at_least=150,
        compute=alone(("schema", "enforced", "rate"), scale=1e-3),
    ),
    Figure(
        work="the same against a check of each message with jsonschema",
        unit="x",
        at_least=5,
        compute=against(
            ("schema", "enforced", "rate"), ("schema", "enforced", "rate"), peer="jsonschema"
        ),
    ),
    Figure(
        work="publish with tracing at 1 % against untraced",
        unit="x",
        at_least=0.97,
        compute=within(("tracing", "at 1 %", "rate"), ("tracing", "untraced", "rate")),
    ),
    Figure(
        work="publish with tracing at 100 % against untraced",
        unit="x",
        at_least=0.6,
        compute=within(("tracing", "at 100 %", "rate"), ("tracing", "untraced", "rate")),
    ),
    Figure(
        work="partitions that move to a new member stand still",
        unit="ms",
        at_most=1_000,
        compute=alone(("rebalance", "a fourth joins", "moved pause")),
    ),
    Figure(
        work="p99 of those that do not move, after against before",
        unit="x",
        at_most=1.5,
        compute=within(
            ("rebalance", "a fourth joins", "others p99 after"),
            ("rebalance", "a fourth joins", "others p99 before"),
        ),
    ),
    Figure(
        work="publish in transactions of 1000 against plain, 8 producers",
        unit="x",
        at_least=0.7,
        compute=within(
            ("tx", "in transactions, 8 producers", "rate"), ("tx", "plain, 8 producers", "rate")
        ),
    ),
    Figure(
        work="read committed with 10 % aborted against uncommitted",
        unit="x",
        at_least=0.9,
        compute=within(("tx", "read_committed", "rate"), ("tx", "read_uncommitted", "rate")),
    ),
    Figure(
        work="begin, one message, commit, p99",
        unit="ms",
        at_most=15,
        compute=alone(("tx", "begin, one message, commit", "p99")),
    ),
    Figure(
        work="start a broker with 100,000 aborted transactions",
        unit="s",
        at_most=3,
        compute=alone(("tx", "restart", "serve"), scale=1e-3),
    ),
    Figure(
        work="Spark: batch read against Parquet",
        unit="x",
        at_least=0.5,
        compute=against(SPARK_READ, SPARK_READ, peer="parquet"),
    ),
    Figure(
        work="Spark: batch read against a source of tuples",
        unit="x",
        at_least=10,
        compute=against(SPARK_READ, SPARK_READ, peer="tuples"),
    ),
    Figure(
        work="Spark: a pushed filter on the last 5 % against all",
        unit="x",
        at_least=5,
        compute=within(("spark", "the last 5 % by offset", "rate"), SPARK_READ),
    ),
    Figure(
        work="Spark: stream read against batch read",
        unit="x",
        at_least=0.45,
        compute=within(SPARK_STREAM, SPARK_READ),
    ),
    Figure(
        work="Spark: stream read against a source of tuples",
        unit="x",
        at_least=6,
        compute=against(SPARK_STREAM, SPARK_READ, peer="tuples"),
    ),
    Figure(
        work="Spark: batch write against Parquet",
        unit="x",
        at_least=0.6,
        compute=against(SPARK_WRITE, SPARK_WRITE, peer="parquet"),
    ),
    Figure(
        work="Spark: exactly-once stream write against batch write",
        unit="x",
        at_least=0.6,
        compute=within(("spark", "stream write, exactly once", "rate"), SPARK_WRITE),
    ),
    Figure(
        work="Spark: topic to Parquet against Parquet to Parquet",
        unit="x",
        at_least=0.7,
        compute=against(SPARK_ARCHIVE, SPARK_ARCHIVE, peer="parquet"),
    ),
    Figure(
        work="Spark: from publish to a row in the sink at 1000/s, p50",
        unit="ms",
        at_most=1_000,
        compute=alone(("spark-stream", "publish to sink", "p50")),
    ),
    Figure(
        work="Spark: a worker reading 2 GiB",
        unit="MB",
        at_most=300,
        compute=alone(("spark-stream", "worker reading 2 GiB", "resident")),
    ),
    *jobs_figures(THREADS),
    *jobs_figures(TASKS),
    *one_publish_figures(ONE_SYNC, disk_ratio_max=2.2),
    *one_publish_figures(ONE_ASYNC, disk_ratio_max=3),
    *connections_figures(64),
    *connections_figures(256),
    handlers_figure(64, at_least=1.3),
    handlers_figure(8, at_least=1),
    Figure(
        work="HTTP, 64 connections, one publish each: of 20 k/s or of 0.6 x Redis everysec",
        unit="x",
        at_least=1,
        compute=best_of(
            (alone(HTTP_RATE), 20_000),
            (against(HTTP_RATE, ("clients", connections_case(64), "rate"), peer="redis"), 0.6),
        ),
    ),
)
