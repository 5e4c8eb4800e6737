"""A session without Delta is told which one would fit its Spark."""

from goqueue.spark.delta import advice, delta_missing


def test_the_release_of_spark_decides() -> None:
    """No release is named that does not fit."""
    told = advice("4.3.0", found="4.0.1", needs="pyspark<4.1.0,>=4.0.1")

    assert "this is PySpark 4.3.0. delta-spark 4.0.1 is installed and asks for pyspark<4.1" in told
    assert "It needs a Delta for Spark 4.3, if there is one" in told
    assert "this session has no Delta" in delta_missing()
