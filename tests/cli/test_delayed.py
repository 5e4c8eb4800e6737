"""``goqueue delayed`` and the delays of ``produce`` and ``consume``, against a real broker."""

from itertools import count

import pytest

from tests.cli.running import Run

NAMES = count()


@pytest.fixture
def topic(cli: Run) -> str:
    name = f"delayed-{next(NAMES)}"
    assert cli("topic", "create", name, "-p", "1").code == 0
    return name


def test_produce_delays_and_consume_says_what_it_left_out(cli: Run, topic: str) -> None:
    """Hidden from a plain consume, which says so beside its output; shown on request."""
    cli("produce", topic, "-m", "later", "--delay", "1h")
    cli("produce", topic, "-m", "then", "--deliver-at", "2093-01-31T12:00:00Z")
    cli("produce", topic, "-m", "now", "--delay", "-5s")
    plain = cli("consume", topic)
    shown = cli("consume", topic, "--delayed", "show", "--format", r"%v\n")

    assert plain.out == "now\n"
    assert "2 messages left out" in plain.err
    assert shown.out == "later\nthen\nnow\n"
    first = cli("consume", topic, "--delayed", "show", "--from", "1", "-n", "1", "-o", "json").data
    assert first["deliver_at"].startswith("2093-01-31T12:00:00")


def test_lines_bring_their_own_delays(cli: Run, topic: str) -> None:
    """A JSON line beats what the command line says of all."""
    lines = b'{"value": "a", "delay": "2h", "delay_id": "x"}\n{"value": "b"}\n'
    assert cli("produce", topic, "--json", "--delay", "1h", stdin=lines).code == 0
    found = cli("delayed", "list", topic, "-o", "json").data
    (named,) = cli("delayed", "get", topic, "--id", "x", "-o", "json").data

    assert [one["offset"] for one in found] == [0, 1]
    assert found[0]["deliver_at"] > found[1]["deliver_at"]
    assert named == found[0]


def test_list_get_cancel_and_reschedule(cli: Run, topic: str) -> None:
    """By place or by name; what no longer waits is an error with a code."""
    for number in range(3):
        cli("produce", topic, "-m", str(number), "--delay", "1h", "--delay-id", f"id-{number}")
    table = cli("delayed", "list", topic).out.splitlines()

    assert len(table) == 4
    assert table[0].split() == (
        ["PARTITION", "OFFSET", "DELIVER", "AT", "LEFT", "STATE", "DELAY", "ID", "KEY", "PREVIEW"]
    )
    assert cli("delayed", "cancel", topic, "0:0").out == f"{topic}/0 offset 0 is cancelled\n"
    again = cli("delayed", "cancel", topic, "0:0")
    assert again.code == 1
    assert "delayed_not_found" in again.err
    moved = cli("delayed", "reschedule", topic, "--id", "id-1", "--delay", "3h", "-o", "json").data
    assert moved[0]["offset"] == 1
    assert cli("delayed", "get", topic, "0:0", "-o", "json").data[0]["state"] == "canceled"
    later = cli("delayed", "reschedule", topic, "0:2", "--deliver-at", "2093-01-31T12:00:00Z")
    assert "2093-01-31T12:00:00" in later.out
    assert len(cli("delayed", "list", topic, "-n", "1", "--skip", "1", "-o", "json").data) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("delayed", "cancel", "t"), "say which message"),
        (("delayed", "cancel", "t", "0:0", "--id", "x"), "say which message"),
        (("delayed", "cancel", "t", "7"), "write it as PARTITION:OFFSET"),
        (("delayed", "reschedule", "t", "0:0"), "give --delay or --deliver-at"),
        (("delayed", "reschedule", "t", "0:0", "--deliver-at", "then"), "not a time"),
        (("produce", "t", "-m", "x", "--deliver-at", "then"), "not a time"),
    ],
)
def test_what_is_not_understood_is_usage(
    cli: Run, arguments: tuple[str, ...], message: str
) -> None:
    """Exit code 2 and what to write instead."""
    outcome = cli(*arguments)

    assert outcome.code == 2
    assert message in outcome.err


def test_a_list_is_safe_to_look_at(cli: Run, topic: str) -> None:
    """Name, key and value of a stranger are cut off and spelled out; JSON has them for programs."""
    cli(
        "produce", topic, "-m", "\x1b[2J" + "v" * 200, "--key", "k\x1b[31m", "--delay", "1h",
        "--delay-id", "id\x07",
    )  # fmt: skip
    table = cli("delayed", "list", topic).out
    (found,) = cli("delayed", "list", topic, "-o", "json").data

    assert "\x1b" not in table
    assert "\x07" not in table
    assert "id\\x07" in table
    assert "k\\x1b[31m" in table
    assert "\\x1b[2Jvvv" in table
    assert max(map(len, table.split())) <= 40
    assert (found["value_bytes"], found["delay_id"]) == (204, "id\x07")


def test_produce_replaces_what_waits(cli: Run, topic: str) -> None:
    """By an option or a field of a line; a name that is taken is an error where that is asked."""
    arguments = ("produce", topic, "--delay", "1h", "--delay-id", "n")
    cli(*arguments, "-m", "a")
    refused = cli(*arguments, "-m", "b", "--on-conflict", "error")
    replaced = cli(*arguments, "-m", "c", "--on-conflict", "replace")
    line = b'{"value": "d", "delay": "1h", "delay_id": "n", "on_conflict": "replace"}\n'
    by_line = cli("produce", topic, "--json", stdin=line)
    found = cli("delayed", "list", topic, "-o", "json").data

    assert refused.code == 1
    assert "delay_conflict" in refused.err
    assert (replaced.code, by_line.code) == (0, 0)
    assert [(one["delay_id"], one["preview"]) for one in found] == [("n", "d")]
