"""Reports of queries say which topics they read and how far behind they are."""

from typing import Any

from goqueue.spark.queries import measured

SOURCE = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1f"


def report(description: str, end: Any, latest: Any) -> dict[str, Any]:
    source = {"description": description, "endOffset": end, "latestOffset": latest}
    late = [{"numRowsDroppedByWatermark": 3}, {"numRowsDroppedByWatermark": 4}, {}]
    return {"batchId": 7, "sources": [source], "stateOperators": late}


def test_a_source_has_the_names_of_its_topics_and_its_lag() -> None:
    """As Spark's Kafka source has them; offsets may come as text."""
    end, latest = {"b": {"0": 5}, "a": {"0": 1, "1": 9}}, '{"b": {"0": 8}, "a": {"0": 1, "1": 18}}'

    found = measured(report(SOURCE, end, latest))

    assert found["batchId"] == 7
    assert found["numRowsDroppedByWatermark"] == 7
    assert found["sources"][0]["description"] == "GoQueue[a, b]"
    assert found["sources"][0]["metrics"] == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "9",
        "avgOffsetsBehindLatest": "4.0",
    }


def test_other_sources_stay_as_they_are() -> None:
    for description, end in (
        ("KafkaV2[Subscribe[a]]", {"a": {"0": 1}}),
        ("FileStreamSource[/x]", {"logOffset": 3}),
        (SOURCE, {"offset": 3}),
        (SOURCE, "x"),
        (SOURCE, None),
    ):
        given = report(description, end, end)

        assert measured(given)["sources"] == given["sources"]
