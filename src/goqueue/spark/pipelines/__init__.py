"""Pipelines on Spark: what is read, what becomes of it, what must hold, and where it goes."""

from goqueue.spark.pipelines.definition import Definition

__all__ = ["Definition"]
