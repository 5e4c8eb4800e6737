"""Lets Spark find ``format("goqueue")`` by itself: it looks into packages named ``pyspark_…``."""

from goqueue.spark.connector.source import GoQueueDataSource as DefaultSource

__all__ = ["DefaultSource"]
