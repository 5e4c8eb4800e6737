"""``goqueue topic`` against a real broker."""

import pytest
import yaml

from tests.cli.running import Run


def test_a_new_broker_has_no_topics(cli: Run) -> None:
    """Nothing is there that nobody made: no demo topics, no demo messages."""
    assert cli("topic", "list", "-o", "json").data == []
    assert cli("topic", "list").err == "no topics yet; `goqueue topic create orders` makes one\n"


def test_a_topic_lives_and_dies(cli: Run) -> None:
    """Create, list, describe, delete: each sees what the others did."""
    created = cli("topic", "create", "orders", "-p", "2")
    listed = cli("topic", "list")
    described = cli("topic", "describe", "orders", "-o", "json").data
    deleted = cli("topic", "delete", "orders", "--force")

    assert created.out == "topic orders created with 2 partitions\n"
    assert listed.out == (
        "NAME    PARTITIONS  MESSAGES  SIZE\norders           2         0   0 B\n"
    )
    assert described["name"] == "orders"
    assert described["messages"] == 0
    assert described["settings"]["retention_ms"] == 7 * 24 * 3_600_000
    assert described["partitions"] == [
        {"partition": number, "start_offset": 0, "end_offset": 0, "size_bytes": 0}
        for number in (0, 1)
    ]
    assert deleted.out == "topic orders deleted\n"
    assert cli("topic", "describe", "orders").code == 1


def test_settings_are_given_at_birth_and_changed_later(cli: Run) -> None:
    """-r takes hours as it always did, or a duration; config shows and changes every setting."""
    arguments = ("--retention-size", "1GiB", "--durability", "os", "--set", "segment_bytes=1MiB")
    cli("topic", "create", "kept", "-r", "24", *arguments)
    before = cli("topic", "config", "kept", "-o", "json").data["settings"]
    changed = cli("topic", "config", "kept", "retention_ms=7d", "durability=interval:1s")
    after = cli("topic", "config", "kept", "-o", "json").data["settings"]
    set_so = cli("topic", "config", "kept", "--set", "retention_ms=8d", "--set=durability=os")
    last = cli("topic", "config", "kept", "-o", "json").data["settings"]
    twice = cli("topic", "config", "kept", "retention_ms=1d", "--set", "retention_ms=2d")

    assert before["retention_ms"] == 24 * 3_600_000
    assert before["retention_bytes"] == 1024**3
    assert before["segment_bytes"] == 1024**2
    assert before["durability"] == "os"
    assert "retention_ms            7d\n" in changed.out
    assert changed.err == "topic kept changed\n"
    assert after == {**before, "retention_ms": 7 * 24 * 3_600_000, "durability": "interval:1s"}
    assert set_so.err == "topic kept changed\n"
    assert last == {**before, "retention_ms": 8 * 24 * 3_600_000}
    assert (twice.code, twice.err) == (
        2,
        "error: retention_ms is given twice, as 1d and as 2d (usage)\n",
    )


def test_creating_twice_is_an_error_unless_it_does_not_matter(cli: Run) -> None:
    """Scripts may insist on a topic being there."""
    cli("topic", "create", "twice")
    again = cli("topic", "create", "twice")
    quiet = cli("topic", "create", "twice", "--if-not-exists", "-o", "json")

    assert again.code == 1
    assert again.err.startswith("error: topic already exists (topic_exists)\nhint: ")
    assert quiet.code == 0
    assert quiet.data["created"] is False


def test_deleting_asks_first(cli: Run) -> None:
    """Only the word yes deletes."""
    cli("topic", "create", "precious")
    refused = cli("topic", "delete", "precious", stdin=b"y\n")
    there = cli("topic", "describe", "precious")
    accepted = cli("topic", "delete", "precious", stdin=b"yes\n")

    assert refused.code == 1
    assert "precious and its 0 messages will be gone" in refused.err
    assert "nothing was done (not_confirmed)" in refused.err
    assert there.code == 0
    assert accepted.code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("topic", "describe", "nope"), "topic_not_found", "topic not found: nope"),
        (("topic", "delete", "nope", "-f"), "topic_not_found", "topic not found: nope"),
        (("topic", "create", "../x"), "invalid_name", "may only contain letters"),
        (("topic", "create", "__own"), "invalid_name", "belong to the broker"),
        (("topic", "create", "p", "-p", "0"), "invalid_request", "partitions: 0 is not between"),
        (("topic", "create", "r", "-r", "soon"), "invalid_config", "retention_ms: 'soon' is not"),
        (("topic", "create", "s", "--set", "a=1"), "invalid_config", "a: no such setting"),
    ],
)
def test_what_the_broker_refuses_is_told_with_its_code(
    cli: Run, arguments: tuple[str, ...], code: str, message: str
) -> None:
    """The broker's own code reaches the script, its words the person."""
    outcome = cli(*arguments, "-o", "json")

    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.error["code"] == code
    assert message in outcome.error["message"]


def test_the_common_options_are_taken_everywhere(cli: Run) -> None:
    """Before the group, before the command, behind the command; the last one wins."""
    cli("topic", "create", "common", "--if-not-exists")
    shapes = [
        cli("-o", "yaml", "topic", "list").out,
        cli("topic", "-o", "yaml", "list").out,
        cli("topic", "list", "-o", "yaml").out,
        cli("-o", "json", "topic", "list", "-o", "yaml").out,
    ]

    assert len(set(shapes)) == 1
    assert "common" in [topic["name"] for topic in yaml.safe_load(shapes[0])]


def test_a_topic_is_compacted(cli: Run) -> None:
    """A dry run tells what goes, the command makes it go; some requests make no sense."""
    cli("topic", "create", "state", "-p", "2", "--cleanup-policy", "compact")
    cli("topic", "create", "plain", "-p", "1")
    for value in ("1", "2", "3"):
        cli("produce", "state", "-k", "k", "-m", value, "--partition", "1")
    dry = cli("topic", "compact", "state", "--dry-run")
    done = cli("topic", "compact", "state", "--partition", "1", "-o", "json")
    plain = cli("topic", "compact", "plain")
    beyond = cli("topic", "compact", "state", "--partition", "2")

    assert " ".join(dry.out.split()) == "PARTITION MESSAGES WOULD GO ERROR 0 0 0 1 3 2"
    assert done.data == {
        "success": True,
        "topic": "state",
        "dry_run": False,
        "results": [
            {
                "partition": 1,
                "records_before": 3,
                "records_after": 1,
                "records_removed": 2,
                "dirty_ratio": 1.0,
            }
        ],
    }
    assert cli("consume", "state", "--from", "earliest", "-o", "json").out.count("offset") == 1
    assert (plain.code, beyond.code) == (1, 1)
    assert "cleanup_policy is delete" in plain.err
    assert "invalid partition 2" in beyond.err


def test_partitions_are_added(cli: Run) -> None:
    """The new total is given; it can only grow."""
    cli("topic", "create", "grows", "-p", "2")
    told = cli("topic", "add-partitions", "grows", "4")
    data = cli("topic", "add-partitions", "grows", "5", "-o", "json").data
    refused = cli("topic", "add-partitions", "grows", "5")

    assert told.out == "topic grows has 4 partitions, 2 before\n"
    assert data == {
        "topic_name": "grows",
        "old_partition_count": 4,
        "new_partition_count": 5,
        "partitions_added": [4],
    }
    assert refused.code == 1
    assert "can only grow" in refused.err
