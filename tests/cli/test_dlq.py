"""``goqueue dlq`` against a real broker."""

import pytest

import goqueue
from goqueue.core.dlq.record import STORY, Story, write_story
from tests.cli.running import BrokerProcess, Run


@pytest.fixture
def letters(broker: BrokerProcess) -> str:
    """Three dead letters of a topic of its own; one of them would like to paint the terminal."""
    with goqueue.connect(broker.native) as client:
        name = f"orders-{len(client.list_topics())}"
        client.create_topic(name, partitions=1)
        client.create_topic(f"{name}.dlq", partitions=1)
        producer = client.producer(f"{name}.dlq")
        for number, reason in enumerate(["REJECTED", "MAX_RETRIES_EXCEEDED", "REJECTED"]):
            story = Story(
                original_topic=name,
                original_offset=number,
                reason=reason,
                last_error="\x1b[31mno",
                last_group="billing",
                delivery_attempts=4,
            )
            headers = {STORY: write_story(story, bytes_max=9_999)}
            producer.send(b"value-%d" % number, key=b"key-%d" % number, headers=headers)
        producer.flush()
    return name


def test_letters_are_listed_and_looked_at(cli: Run, letters: str) -> None:
    """As a table that cannot harm, and as data."""
    listed = {one["source"]: one for one in cli("dlq", "list", "-o", "json").data}
    table = cli("dlq", "peek", letters)
    data = cli("dlq", "peek", letters, "--reason", "REJECTED", "-o", "json").data

    assert (listed[letters]["topic"], listed[letters]["depth"]) == (f"{letters}.dlq", 3)
    assert letters in cli("dlq", "list").out
    assert "AT   DIED" in table.out
    assert table.out.count("billing") == 3
    assert "\x1b[31m" not in table.out
    assert r"\x1b[31mno" in table.out
    assert [one["value"] for one in data["messages"]] == ["value-0", "value-2"]
    assert data["messages"][0]["original_topic"] == letters
    more = cli("dlq", "peek", letters, "-n", "1")
    assert more.err == "there are 3 dead letters; --skip 1 shows more\n"


def test_a_topic_without_dead_letters_is_no_error(cli: Run) -> None:
    """Its dead letters are none; a topic that does not exist is named."""
    cli("topic", "create", "healthy", "-p", "1")

    assert cli("dlq", "peek", "healthy").err == "no dead letters\n"
    assert cli("dlq", "peek", "healthy", "-o", "json").data == {
        "depth": 0,
        "more": False,
        "messages": [],
    }
    assert cli("dlq", "redrive", "healthy").out == "healthy has no dead letters\n"
    assert cli("dlq", "redrive", "healthy", "-o", "json").data["id"] is None
    assert cli("dlq", "redrive", "healthy", "--dry-run").out == "0 dead letters would go back\n"
    assert cli("dlq", "purge", "healthy").out == "healthy has no dead letters\n"
    assert cli("dlq", "purge", "healthy", "--yes").out == "healthy has no dead letters\n"
    assert cli("dlq", "history", "healthy").err == "nothing was redriven or purged yet\n"
    assert cli("dlq", "history", "healthy", "-o", "json").data == []
    assert cli("dlq", "list", "-o", "json").out.count("healthy") == 0
    cancelled = cli("dlq", "history", "healthy", "--cancel", "1")
    assert cancelled.code == 1
    assert cancelled.err.startswith("error: there is no redrive 1 (redrive_not_found)\nhint: ")
    for arguments in (["peek"], ["redrive"], ["redrive", "--dry-run"], ["purge"], ["history"]):
        missing = cli("dlq", arguments[0], "nowhere", *arguments[1:])
        assert missing.code == 1
        assert missing.err.startswith("error: topic not found: nowhere (topic_not_found)\nhint: ")


def test_letters_go_back(cli: Run, letters: str) -> None:
    """A dry run tells, a redrive does, the history knows who."""
    dry = cli("dlq", "redrive", letters, "--dry-run", "--key", "key-1")
    dry_data = cli("dlq", "redrive", letters, "--dry-run", "-o", "json").data
    done = cli("dlq", "redrive", letters, "--key", "key-1")
    done_data = cli("dlq", "redrive", letters, "--rate", "1000", "-o", "json").data
    history = cli("dlq", "history", letters, "-o", "json").data

    assert dry.out.startswith("1 dead letter would go back\n")
    assert dry_data["matched"] == 3
    assert done.out == f"redrive 1 done: 1 dead letter of {letters} went back\n"
    assert (done_data["state"], done_data["moved"]) == ("done", 2)
    assert [job["id"] for job in history] == [2, 1]
    assert "@" in history[0]["by"]
    assert cli("dlq", "history", letters).out.startswith("ID  KIND     STATE")
    consumed = cli("consume", letters, "-o", "json").out
    assert consumed.count("goqueue-redrives") == 3


def test_purging_asks_first(cli: Run, letters: str) -> None:
    """Only the word yes, or --yes, throws away."""
    refused = cli("dlq", "purge", letters, stdin=b"y\n")
    dry = cli("dlq", "purge", letters, "--dry-run")
    some = cli("dlq", "purge", letters, "--since", "-1h", "--reason", "REJECTED", "--yes")
    none = cli("dlq", "purge", letters, "--reason", "REJECTED")
    asked = cli("dlq", "purge", letters, stdin=b"yes\n")

    assert refused.code == 1
    assert f"3 dead letters of {letters} will be gone" in refused.err
    assert dry.out.startswith("3 dead letters would be gone")
    assert some.out == f"purge 1 done: 2 dead letters of {letters} thrown away\n"
    assert none.out == f"{letters} has no dead letters that fit; nothing was done\n"
    assert asked.out == f"purge 2 done: 1 dead letter of {letters} thrown away\n"
    assert cli("dlq", "peek", letters).err == "no dead letters\n"


def test_a_slow_redrive_is_left_alone_and_ended(cli: Run, letters: str) -> None:
    """--detach does not wait; the history ends a job."""
    begun = cli("dlq", "redrive", letters, "--rate", "1", "--detach", "-o", "json").data
    ended = cli("dlq", "history", letters, "--cancel", str(begun["id"]), "-o", "json").data

    assert begun["state"] == "running"
    assert ended["state"] == "cancelled"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("peek", "nowhere"), "topic_not_found"),
        (("redrive", "nowhere"), "topic_not_found"),
        (("purge", "nowhere", "--yes"), "topic_not_found"),
        (("history", "nowhere"), "topic_not_found"),
        (("peek", "nowhere", "--since", "soon"), "usage"),
    ],
)
def test_what_is_wrong_is_said(cli: Run, arguments: tuple[str, ...], code: str) -> None:
    """An error in a line, with its code."""
    refused = cli("dlq", *arguments, "-o", "json")

    assert refused.code != 0
    assert refused.error["code"] == code
