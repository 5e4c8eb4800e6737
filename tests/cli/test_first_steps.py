"""What somebody tries who has never used it, and gets wrong."""

import pytest

from tests.cli.running import Run


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_the_version_is_found_where_it_is_looked_for(cli: Run, word: str) -> None:
    """As with any other program."""
    assert cli(word).out == cli("version").out


@pytest.mark.parametrize("words", [("-h",), ("help",), ("topic", "-h"), ("topic", "create", "-h")])
def test_help_is_found_where_it_is_looked_for(cli: Run, words: tuple[str, ...]) -> None:
    """At every level, by each of its usual names."""
    outcome = cli(*words)

    assert outcome.code == 0
    assert "Usage: goqueue" in outcome.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("topic", "list", "-o", "xml"), "'xml' is not one of 'table', 'json', 'yaml'"),
        (("topic", "create", "a", "-p", "x"), "'-p' / '--partitions': not a number"),
        (("consume", "a", "-n", "0"), "must be greater than or equal to 1"),
    ],
)
def test_wrong_arguments_are_told_in_plain_words(
    cli: Run, words: tuple[str, ...], message: str
) -> None:
    """Not in those of the library that reads them."""
    outcome = cli(*words)

    assert outcome.code == 2
    assert message in outcome.err
    assert "Value error" not in outcome.err
    assert "Input should" not in outcome.err


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (("topic", "describe", "nope"), "topic_not_found", "`goqueue topic create` makes one"),
        (("group", "describe", "nope"), "group_not_found", "`goqueue group list`"),
        (("schema", "get", "nope"), "subject_not_found", "`goqueue schema list`"),
        (("schema", "delete", "nope"), "subject_not_found", "`goqueue schema list`"),
        (("tx", "describe", "nope"), "unknown_producer", "`goqueue tx list`"),
        (("trace", "get", "0" * 31 + "1"), "trace_not_found", "`goqueue trace list`"),
    ],
)
def test_what_is_not_there_is_told_with_where_to_look(
    cli: Run, words: tuple[str, ...], code: str, hint: str
) -> None:
    """One line with the code, one with the command that lists what there is."""
    outcome = cli(*words)
    told, advice = outcome.err.splitlines()

    assert outcome.code == 1
    assert told.startswith("error: ")
    assert told.endswith(f"({code})")
    assert hint in advice


def test_headers_have_a_short_name(cli: Run) -> None:
    """The one of curl."""
    cli("topic", "create", "headed", "-p", "1")
    cli("produce", "headed", "-m", "x", "-H", "a=b")

    assert '"headers":{"a":"b"}' in cli("consume", "headed", "-o", "json").out
