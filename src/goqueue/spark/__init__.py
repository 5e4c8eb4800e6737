"""GoQueue in Spark: topics as DataFrames, read and written in batches and streams.

    from goqueue.spark import session

    spark = session()
    orders = spark.read.format("goqueue").option("subscribe", "orders").load()

Needs the extra ``spark``: ``pip install 'goqueue[spark]'``.
"""

from goqueue.spark.queries import progress
from goqueue.spark.session import register, session

__all__ = ["progress", "register", "session"]
