"""``goqueue produce`` and ``goqueue consume`` against a real broker."""

import json
from itertools import count
from pathlib import Path

import pytest

from goqueue.core.producers.partitioner import partition_of_key
from tests.cli.running import SECONDS_MAX, BrokerProcess, Run, lines_of, run_process, start

NAMES = count()


@pytest.fixture
def topic(cli: Run) -> str:
    """A topic of one partition, so that its order is the order of publishing."""
    name = f"topic-{next(NAMES)}"
    assert cli("topic", "create", name, "-p", "1").code == 0
    return name


def test_lines_come_back_as_they_went_in(cli: Run, topic: str) -> None:
    """A pipe in, a pipe out: values alone, byte for byte, the summary beside them."""
    lines = "".join(f"line {number}\n" for number in range(1_000))
    produced = cli("produce", topic, stdin=lines.encode())
    consumed = cli("consume", topic)

    assert produced.code == 0
    assert produced.out == ""
    assert produced.err.startswith(f"1,000 messages to {topic} in ")
    assert consumed.out == lines


def test_one_message_says_where_it_went(cli: Run, topic: str) -> None:
    """-m publishes, waits for the ack and tells what the ack means."""
    first = cli("produce", topic, "-m", "hello", "-k", "k1")
    second = cli("produce", topic, "-m", "again", "-o", "json").data

    assert first.out == f"{topic}/0 offset 0 (fsync)\n"
    assert second["offset"] == 1
    assert second["durability"] == "fsync"


def test_keys_decide_the_partition(cli: Run) -> None:
    """The command line partitions as every other client does."""
    cli("topic", "create", "spread", "-p", "5")
    lines = b"".join(b"user-%d:%d\n" % (number, number) for number in range(50))
    cli("produce", "spread", "--key-delimiter", ":", stdin=lines)
    text = cli("consume", "spread", "--format", r"%p %k %v\n").out
    rows = [line.split() for line in text.splitlines()]

    assert len(rows) == 50
    for partition, key, value in rows:
        assert int(partition) == partition_of_key(key.encode(), 5)
        assert key == f"user-{value}"


def test_json_lines_make_the_round_trip(cli: Run, topic: str) -> None:
    """What consume -o json prints, produce --json takes: keys, headers, bytes, tombstones."""
    messages = [
        {"value": "plain"},
        {"value": "full", "key": "k", "headers": {"a": "1"}, "priority": "high"},
        {"value": "/wA=", "encoding": "base64", "key": "gIA=", "key_encoding": "base64"},
        {"value": None, "key": "gone"},
        {"value": {"nested": [1, 2]}, "timestamp": "2026-01-31T12:00:00Z"},
    ]
    lines = "".join(json.dumps(message) + "\n" for message in messages).encode()
    cli("produce", topic, "--json", stdin=lines)
    first = cli("consume", topic, "-o", "json").out
    again = cli("produce", topic, "--json", stdin=first.encode())
    second = cli("consume", topic, "-o", "json", "--from", "5").out
    read = [json.loads(line) for line in first.splitlines()]
    reread = [json.loads(line) for line in second.splitlines()]

    assert again.code == 0
    assert [one["value"] for one in read] == ["plain", "full", "/wA=", None, '{"nested":[1,2]}']
    assert read[1]["headers"] == {"a": "1"}
    assert read[1]["priority"] == "high"
    assert read[2]["encoding"] == read[2]["key_encoding"] == "base64"
    assert read[4]["timestamp"] == "2026-01-31T12:00:00.000000000Z"
    assert [{**one, "offset": 0} for one in reread] == [{**one, "offset": 0} for one in read]


def test_a_file_mixes_messages_comments_and_values(cli: Run, topic: str, home: Path) -> None:
    """--file reads what the contract says; --lines and --json say otherwise."""
    path = home / "messages.txt"
    path.write_text('# a comment\n{"key": "k", "value": "v"}\n\nplain\n{"id": 7}\n')
    mixed = cli("produce", topic, "-f", str(path))
    mixed_lines = cli("consume", topic, "--format", r"%k|%v\n").out
    cli("produce", topic, "-f", str(path), "--lines")
    raw_lines = cli("consume", topic, "--from", "3").out
    strict = cli("produce", topic, "-f", str(path), "--json")

    assert mixed.err.startswith(f"3 messages to {topic}")
    assert "2 lines skipped" in mixed.err
    assert mixed_lines == 'k|v\n|plain\n|{"id": 7}\n'
    assert raw_lines == path.read_text()
    assert strict.code == 1
    assert "line 4: not JSON" in strict.err
    assert "1 message before it published" in strict.err


def test_where_to_begin_and_end(cli: Run, topic: str) -> None:
    """Words, offsets, counts from the end and times, and the older spellings of them."""
    cli("produce", topic, stdin=b"0\n1\n2\n3\n4\n")

    def values(*arguments: str) -> str:
        return cli("consume", topic, *arguments).out.replace("\n", "")

    assert values("--from", "beginning") == values("--from-beginning") == "01234"
    assert values("--from", "end") == values("--from-latest") == ""
    assert values("--from", "2") == values("--offset", "2") == "234"
    assert values("--from", "-2") == "34"
    assert values("--from", "-1") == "4"
    assert values("--from", "1", "--to", "3") == "12"
    assert values("-n", "2") == values("--limit", "2") == values("--count", "2") == "01"
    assert values("--from", "@-1h") == "01234"
    assert values("--from", "-1h") == "01234"
    assert values("--from", "2026-01-31") == "01234"
    assert values("--from", "2026-01-31T12:00", "--to", "now") == "01234"
    assert values("--from", "@2099-01-01T00:00:00Z") == ""
    assert values("--from", "@0", "--to", "@2020-01-01") == ""
    assert values("-p", "0") == "01234"


def test_following_shows_messages_as_they_come(cli: Run, broker: BrokerProcess, topic: str) -> None:
    """--follow waits, prints at once, and ends on Ctrl-C without calling it a failure."""
    cli("produce", topic, "-m", "before")
    process = start("consume", topic, "--follow", "-s", broker.native)
    lines = lines_of(process, "stdout")
    first = next(lines)
    cli("produce", topic, "-m", "after")
    second = next(lines)
    process.send_signal(2)

    assert (first, second) == (b"before", b"after")
    assert process.wait(timeout=SECONDS_MAX) == 0
    assert process.communicate() == (b"", b"")


def test_a_reader_that_has_seen_enough_is_no_failure(
    cli: Run, broker: BrokerProcess, topic: str
) -> None:
    """consume | head ends quietly."""
    cli("produce", topic, stdin=b"some line\n" * 50_000)
    process = start("consume", topic, "-s", broker.native)
    first = next(lines_of(process, "stdout"))
    assert process.stdout is not None
    process.stdout.close()

    assert first == b"some line"
    assert process.wait(timeout=SECONDS_MAX) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_what_people_see_cannot_command_their_terminal(cli: Run, topic: str) -> None:
    """Control characters in keys, values and headers are spelled out."""
    evil = json.dumps({"key": "k\x1b[2J", "value": "a\u202eb\x07", "headers": {"h": "\x9b31m"}})
    cli("produce", topic, "--json", stdin=evil.encode())
    shown = cli("consume", topic, "-o", "table").out

    assert shown.endswith("  k\\x1b[2J  a\\u202eb\\x07  {h=\\x9b31m}\n")
    assert cli("consume", topic).out == "a\u202eb\x07\n"


def test_yaml_and_tables(cli: Run, topic: str) -> None:
    """A message in every shape."""
    cli("produce", topic, "-m", "v", "-k", "k", "--header", "a=1", "--priority", "low")
    table = cli("consume", topic, "-o", "table").out
    document = cli("consume", topic, "-o", "yaml").out

    assert table.startswith("0:0  20")
    assert table.endswith("Z  k  v  {a=1}\n")
    assert document.startswith(f"---\ntopic: {topic}\npartition: 0\noffset: 0\n")
    assert document.endswith("key: k\nvalue: v\npriority: low\nheaders:\n  a: '1'\n")


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_batches_read_back(cli: Run, topic: str, compression: str) -> None:
    """Compression changes nothing that a reader sees."""
    lines = b"the same line again and again\n" * 2_000
    cli("produce", topic, "--compression", compression, stdin=lines)

    assert cli("consume", topic).out.encode() == lines
    assert cli("topic", "describe", topic, "-o", "json").data["size_bytes"] < len(lines)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("consume", "nope"), "topic_not_found", "topic not found: nope"),
        (("produce", "nope", "-m", "x"), "topic_not_found", "topic not found: nope"),
        (("consume", "TOPIC", "-p", "7"), "partition_not_found", "invalid partition 7"),
        (("produce", "TOPIC", "-m", "x", "-p", "7"), "partition_not_found", "invalid partition 7"),
        (("produce", "TOPIC", "-m", "x", "--priority", "urgent"), "invalid_request", "priority"),
        (("consume", "TOPIC", "--from", "99", "-f"), "offset_out_of_range", "99"),
        (("consume", "TOPIC", "--from", "soon"), "usage", "--from soon: not a position"),
        (("consume", "TOPIC", "--from", "@never"), "usage", "--from @never: not a time"),
        (("consume", "TOPIC", "--offset", "-1"), "usage", "must be greater than or equal to 0"),
        (("consume", "TOPIC", "--from", "1", "--offset", "1"), "usage", "exclude each other"),
        (("consume", "TOPIC", "--follow", "--to", "5"), "usage", "exclude each other"),
        (("consume", "TOPIC", "--format", "%z"), "usage", "there is no %z"),
        (("consume", "TOPIC", "--format", "%"), "usage", "lone %"),
        (("produce", "TOPIC", "-m", "x", "--file", "y"), "usage", "exclude each other"),
        (("produce", "TOPIC", "--file", "nowhere"), "no_file", "no such file"),
        (("produce", "TOPIC", "-m", "x", "--header", "y"), "usage", "name=value"),
        (("produce", "TOPIC", "-m", "x", "--key-delimiter", ":"), "usage", "no ':' between"),
    ],
)
def test_what_cannot_be_done_is_told(
    cli: Run, topic: str, arguments: tuple[str, ...], code: str, message: str
) -> None:
    """One line, one code, nothing on stdout."""
    placed = [topic if one == "TOPIC" else one for one in arguments]
    outcome = cli(*placed, "-o", "json") if "--format" not in placed else cli(*placed)

    assert outcome.code == (2 if code == "usage" else 1)
    assert outcome.out == ""
    assert f"({code})" in outcome.err or outcome.error["code"] == code
    assert message in outcome.err


def test_a_bad_line_is_named_and_the_lines_before_it_are_kept(cli: Run, topic: str) -> None:
    """Somebody can go on from there."""
    lines = b'{"value": 1}\n{"vlaue": 2}\n'
    outcome = cli("produce", topic, "--json", stdin=lines)

    assert outcome.code == 1
    assert outcome.err == (
        "error: line 2: unknown field 'vlaue'; did you mean 'value'?;"
        " 1 message before it published (bad_line)\n"
    )
    assert cli("consume", topic).out == "1\n"


def test_a_process_of_its_own_does_the_same(broker: BrokerProcess, topic: str) -> None:
    """The installed program from outside: stdin in, stdout out, exit code."""
    produced = run_process("produce", topic, "-s", f"goqueue://{broker.native}", stdin=b"one\ntwo")
    consumed = run_process("consume", topic, "-s", broker.native)

    assert produced.code == 0
    assert consumed.code == 0
    assert consumed.out == "one\ntwo\n"
