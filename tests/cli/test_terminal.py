"""The small parts: escaping, format strings, positions, lines."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.base.ids import Offset, PartitionId, TopicName
from goqueue.cli.bench import percentile
from goqueue.cli.failure import Failure
from goqueue.cli.message_format import compile_format, for_people, plain_message
from goqueue.cli.message_input import MessageLines, Outgoing, Style, parse_message
from goqueue.cli.position import read_position
from goqueue.cli.terminal import escape
from goqueue.core.record.message import Message

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def message(
    key: bytes | None = b"k", value: bytes | None = b"v", headers: dict[str, bytes] | None = None
) -> Message:
    return Message(
        TopicName("orders"),
        PartitionId(1),
        Offset(42),
        1_769_860_800_123_456,
        key,
        value,
        headers,
        2,
    )


@given(st.text())
def test_escaped_text_has_nothing_to_obey(text: str) -> None:
    """Whatever comes in, no control or reordering character goes out."""
    shown = escape(text)

    assert not any(ord(one) < 0x20 or 0x7F <= ord(one) < 0xA0 for one in shown)
    assert not set(shown) & set("\u202a\u202e\u2066\u2069\u2028")


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_what_people_see_is_one_safe_line(key: bytes, value: bytes) -> None:
    """A message is a line, whatever is in it."""
    shown = for_people(message(key, value, {"h": value})).decode()

    assert shown.count("\n") == 1
    assert "\x1b" not in shown


@given(
    st.none() | st.binary(max_size=50),
    st.none() | st.binary(max_size=50),
    st.dictionaries(st.text(max_size=5), st.binary(max_size=20), max_size=3),
)
def test_a_message_survives_json(
    key: bytes | None, value: bytes | None, headers: dict[str, bytes]
) -> None:
    """What consume prints as JSON, produce reads as the same bytes."""
    line = json.dumps(plain_message(message(key, value, headers or None))).encode()
    read = parse_message(line)
    stored = {
        name: one.encode() if isinstance(one, str) else one
        for name, one in (read.headers or {}).items()
    }

    assert (read.key, read.value, stored) == (key, value, headers)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"%v\n", b"v\n"),
        (r"%t/%p@%o", b"orders/1@42"),
        (r"%k=%v %h", b"k=v a=1,b=2"),
        (r"%T %s", b"2026-01-31T12:00:00.123456Z 1769860800123"),
        (r"%P %K %V 100%%", b"normal 1 1 100%"),
        (r"\t\\\x41\0", b"\t\\A\0"),
        ("plain ü", "plain ü".encode()),
        ("", b""),
    ],
)
def test_format_strings(text: str, expected: bytes) -> None:
    """Each letter stands for what the help says."""
    write = compile_format(text, is_terminal=False)

    assert write(message(headers={"a": b"1", "b": b"2"})) == expected


@pytest.mark.parametrize("text", ["%", "%z", "\\", r"\q", r"\x4"])
def test_format_strings_that_mean_nothing(text: str) -> None:
    """A typo is not printed a million times."""
    with pytest.raises(Failure, match="--format"):
        compile_format(text, is_terminal=False)


def test_a_format_string_on_a_terminal_is_safe() -> None:
    """What the person wrote is obeyed, what the message holds is not."""
    write = compile_format("\\x1b[1m%v\\x1b[0m\\n", is_terminal=True)

    assert write(message(value=b"\x1b[2J\xff")) == b"\x1b[1m\\x1b[2J\\xff\x1b[0m\n"


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", "earliest"),
        ("end", "latest"),
        ("17", 17),
        ("-10", -10),
        ("@-1h", NOW - timedelta(hours=1)),
        ("@+30s", NOW + timedelta(seconds=30)),
        ("@2026-01-31T12:00:00Z", NOW),
        ("@2026-01-31T13:00:00.5+01:00", NOW + timedelta(seconds=0.5)),
        ("@1769860800", NOW),
        ("@1769860800123", NOW + timedelta(milliseconds=123)),
        ("@2026-01-31", datetime(2026, 1, 31).astimezone()),
        ("2026-01-31", datetime(2026, 1, 31).astimezone()),
        ("2026-01-31T12:00:00Z", NOW),
        ("2026-01-31 12:00:00Z", NOW),
        ("2026-01-31T12:00", datetime(2026, 1, 31, 12).astimezone()),
        ("-1h", NOW - timedelta(hours=1)),
        ("now", NOW),
        ("@yesterday", datetime(2026, 1, 30).astimezone()),
    ],
)
def test_positions(text: str, position: object) -> None:
    """Words, offsets and times."""
    assert read_position(text, name="--from", now=NOW) == position


@pytest.mark.parametrize(
    "text", ["", "first", "1.5", "@", "@soon", "@-1", "-1x", "@99999999999999999999", "2026-13-01"]
)
def test_what_is_no_position(text: str) -> None:
    """The error has an example of each kind."""
    with pytest.raises(Failure, match="--from") as caught:
        read_position(text, name="--from", now=NOW)

    assert "-1h" in caught.value.hint


def test_what_the_command_line_says_completes_each_message() -> None:
    """The message's own key and headers come first; the command line's partition is an order."""
    reader = MessageLines(
        style=Style.JSON, key=b"all", headers={"a": "1", "b": "2"}, priority="low", partition=3
    )
    own, bare = reader.read(
        [
            b'{"value": "x", "key": "k", "headers": {"a": "9"}, "partition": 0}',
            b'{"value": "y"}\r\n',
        ]
    )

    assert own == Outgoing(
        value=b"x", key=b"k", headers={"a": b"9", "b": "2"}, priority="low", partition=3
    )
    assert bare == Outgoing(
        value=b"y", key=b"all", headers={"a": "1", "b": "2"}, priority="low", partition=3
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"[1]", "not a JSON object"),
        (b"{", "not JSON"),
        (b"{}", "no value"),
        (b'{"value": "v", "partition": true}', "partition must be a number"),
        (b'{"value": "v", "headers": []}', "headers must be an object"),
        (b'{"value": "%%", "encoding": "base64"}', "value is not base64"),
        (b'{"value": 7, "encoding": "base64"}', "value must be base64 text"),
        (b'{"value": "v", "encoding": "rot13"}', 'the encoding must be "base64" or "text"'),
        (b'{"value": "v", "timestamp": "now"}', "is not a time"),
        (b'{"value": "v", "dedup_id": 7}', "dedup_id must be text"),
        (b'{"value": "v", "delay": 1}', "delay must be text"),
        (b'{"value": "v", "deliver_at": "then"}', "is not a time"),
        (b'{"value": "v", "delai": "1s"}', "unknown field 'delai'; did you mean 'delay'?"),
    ],
)
def test_bad_messages_are_described(line: bytes, expected: str) -> None:
    """The field at fault is named."""
    with pytest.raises(ValueError, match=r".*") as caught:
        parse_message(line)

    assert expected in str(caught.value)


def test_percentiles() -> None:
    """So many percent of the values are not above it."""
    values = [float(number) for number in range(1, 101)]

    assert [percentile(values, percent) for percent in (1, 50, 99, 100)] == [1, 50, 99, 100]
    assert percentile([7.0], 50) == 7
