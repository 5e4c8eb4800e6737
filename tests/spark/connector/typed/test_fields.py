"""Fields become columns: free names, one type for a name, and not without end."""

import pyarrow as pa
import pytest

from goqueue.base.limits import SPARK_FIELDS_MAX
from goqueue.spark.connector.options import OptionsError
from goqueue.spark.connector.typed.fields import Field, Growth, merge, name_columns


def columns(*names: str) -> list[str]:
    return [field.column for field in name_columns(dict.fromkeys(names, pa.string()))]


def field(name: str, kind: pa.DataType) -> Field:
    return Field(name=name, column=name, type=kind)


def test_a_taken_name_gets_underscores_until_it_is_free() -> None:
    """The log's own columns come first, and Spark does not tell upper from lower case."""
    assert columns("id", "key", "key_", "Offset", "ID", "", "_corrupt") == [
        "id",
        "key_",
        "key__",
        "Offset_",
        "ID_",
        "_",
        "_corrupt_",
    ]


def test_columns_of_several_topics_are_put_together() -> None:
    merged = merge(
        {
            "a": [field("id", pa.int32()), field("name", pa.string())],
            "b": [field("price", pa.float32()), field("id", pa.int64())],
            "c": [field("price", pa.float64())],
        }
    )

    assert merged == {"id": pa.int64(), "name": pa.string(), "price": pa.float64()}


@pytest.mark.parametrize("other", [field("id", pa.string()), field("ID", pa.int64())])
def test_columns_that_disagree_are_refused(other: Field) -> None:
    with pytest.raises(OptionsError, match=r"by the schema of topic a, .* by that of b; read them"):
        merge({"a": [field("id", pa.int64())], "b": [other]})


def test_fields_are_bounded() -> None:
    growth = Growth("subject wide version 1")
    growth.add(SPARK_FIELDS_MAX)

    with pytest.raises(OptionsError, match="subject wide version 1 has more than 2000 fields"):
        growth.add(1)
