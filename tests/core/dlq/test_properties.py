"""The codec of dead letters, filters and the pace, against naive models and hostile input."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from goqueue.base.ids import Offset, PartitionId, TopicName, TopicPartition
from goqueue.base.limits import HEADERS_BYTES_MAX
from goqueue.core.delivery.runs import runs_in
from goqueue.core.dlq.filter import Filter
from goqueue.core.dlq.names import dlq_of, is_dlq, origin_of, source_of
from goqueue.core.dlq.pace import Pace
from goqueue.core.dlq.record import (
    REDRIVES,
    STORY,
    Attempt,
    Story,
    bury,
    read_story,
    redrives_of,
    revive,
    write_story,
)
from goqueue.core.record.check import check_frames
from goqueue.core.record.headers import OWN_HEADERS_BYTES
from goqueue.core.record.message import Message
from goqueue.core.record.row import Row, encode_row

NOW_MS = 1_700_000_000_000
TEXTS = st.text(max_size=300)
NAMES = st.text("abcXYZ0._-", min_size=1, max_size=249)
ATTEMPTS = st.builds(
    Attempt,
    at_ms=st.integers(0, NOW_MS),
    consumer=st.text(max_size=266),
    error=st.text(max_size=1_000),
)
STORIES = st.builds(
    Story,
    original_topic=NAMES,
    original_partition=st.integers(0, 9_999),
    original_offset=st.integers(0, 2**62 - 1),
    original_timestamp_us=st.integers(0, NOW_MS * 1_000),
    delivery_attempts=st.integers(0, 2_000),
    last_consumer=st.text(max_size=266),
    last_group=NAMES,
    reason=st.sampled_from(["REJECTED", "MAX_RETRIES_EXCEEDED", "TTL_EXPIRED"]),
    last_error=st.text(max_size=1_000),
    dlq_time_ms=st.just(NOW_MS),
    receipt_log=st.lists(ATTEMPTS, max_size=32),
)


def message(headers: dict[str, bytes] | None, key: bytes | None = b"k") -> Message:
    name = TopicPartition(TopicName("orders"), PartitionId(0))
    return Message(*name, Offset(7), NOW_MS * 1_000, key, b"value", headers, 2)


@st.composite
def full_headers(draw: st.DrawFn) -> dict[str, bytes]:
    """Return headers as large as a producer may send, or a little less."""
    left = HEADERS_BYTES_MAX - OWN_HEADERS_BYTES - 2 - draw(st.integers(0, 400))
    headers: dict[str, bytes] = {}
    count = draw(st.integers(1, 20))
    for number in range(count):
        name = f"h{number}"
        size = left // (count - number) - 4 - len(name)
        headers[name] = b"x" * size
        left -= size + 4 + len(name)
    return headers


@given(STORIES, full_headers(), st.sampled_from([None, b"", b"key"]))
def test_a_letter_always_fits_and_loses_nothing_but_story(
    story: Story, headers: dict[str, bytes], key: bytes | None
) -> None:
    """However full the headers are, the log takes the letter and the message comes back whole."""
    origin = b"o" * 16
    raw = encode_row(bury(message(headers, key), story, origin=origin))
    (checked,) = check_frames(memoryview(raw), now_ms=NOW_MS, by_broker=True)
    row = Row(checked.header, checked.frame)
    kept = row.headers or {}
    told = read_story(kept)
    letter = row.message(TopicName("orders.dlq"), PartitionId(0))
    back = revive(letter, origin=origin, now_us=NOW_MS * 1_000)

    assert row.origin == origin
    assert {name: value for name, value in kept.items() if name != STORY} == headers
    assert (told.reason, told.original_offset) == (story.reason, story.original_offset)
    assert told.original_partition == story.original_partition
    assert (back.key, back.value) == (key, b"value")
    again = {name: value for name, value in (back.headers or {}).items() if name[:2] != "__"}
    assert again == {**headers, REDRIVES: b"1"}
    check_frames(memoryview(encode_row(back)), now_ms=NOW_MS, by_broker=True)


@given(STORIES, st.integers(0, 70_000))
def test_a_cut_story_is_the_end_of_the_whole(story: Story, room: int) -> None:
    """It fits, can be read, and of the attempts the latest are left."""
    text = write_story(story, bytes_max=room)
    told = read_story({STORY: text})

    assert len(text) <= room
    if text:
        whole = [attempt.at_ms for attempt in story.receipt_log]
        left = [attempt.at_ms for attempt in told.receipt_log]
        assert left == whole[len(whole) - len(left) :]
        assert story.last_error.startswith(told.last_error)
    if room == 70_000 or len(msgspec.json.encode(story)) <= room:
        assert told == msgspec.structs.replace(story, receipt_log=list(story.receipt_log))


@given(st.binary(max_size=200) | st.just(b"[" * 9_999) | st.text(max_size=99).map(str.encode))
def test_no_bytes_of_a_stranger_do_harm(text: bytes) -> None:
    """Whatever the headers hold, there is a story and a count."""
    assert isinstance(read_story({STORY: text}), Story)
    assert 0 <= redrives_of({REDRIVES: text}) < 10**9


@given(NAMES)
def test_every_name_has_its_dead_letters(name: str) -> None:
    """The name fits, is known for what it is, and leads back."""
    dlq = dlq_of(name)

    assert len(dlq) <= 249
    assert is_dlq(dlq)
    assert source_of(dlq, [name, "another"]) == name


@given(st.lists(st.tuples(NAMES, NAMES, st.integers(0, 9), st.integers(0, 9)), unique=True))
def test_identities_differ(places: list[tuple[str, str, int, int]]) -> None:
    """No two messages have the same one, whatever their names."""
    origins = {
        origin_of(group, TopicPartition(TopicName(topic), PartitionId(number)), Offset(offset))
        for group, topic, number, offset in places
    }
    assert len(origins) == len(places)


@given(st.integers(1, 100_000), st.lists(st.integers(0, 2_000), min_size=1, max_size=50))
def test_the_pace_is_never_exceeded(rate: int, pauses: list[int]) -> None:
    """In any time no more go than the rate allows, beside one burst; and nobody waits in vain."""
    now_ms = 0
    pace = Pace(rate, now_ms=now_ms)
    sent = 0
    burst = max(rate // 10, 1)
    for pause_ms in pauses:
        now_ms += pause_ms
        allowed = pace.allowed(10**9, now_ms=now_ms)
        pace.spend(allowed)
        sent += allowed
        assert sent <= burst + rate * now_ms / 1_000
        wait_ms = pace.wait_ms()
        assert 0 < wait_ms <= 1_000
        now_ms += wait_ms
        assert pace.allowed(1, now_ms=now_ms) == 1


@given(st.lists(st.sampled_from(["REJECTED", "other"]), max_size=5), st.binary(max_size=3))
def test_filters_agree_with_a_naive_reading(reasons: list[str], prefix: bytes) -> None:
    """All that is given must hold."""
    for reason in reasons:
        for key in (None, b"", b"abc", prefix + b"x"):
            one = message(None, key)
            story = Story(reason=reason)
            expected = reason == "REJECTED" and key is not None and key[: len(prefix)] == prefix
            assert Filter(reason="REJECTED", key_prefix=prefix).matches(one, story) == expected
    assert Filter().is_empty
    assert not Filter(key=b"").is_empty


@given(st.dictionaries(st.integers(0, 3), st.sets(st.integers(0, 40))), st.integers(0, 45))
def test_places_mean_just_themselves(places: dict[int, set[int]], offset: int) -> None:
    """A filter by runs matches what is in the sets, and nothing beside."""
    runs = {partition: runs_in(sorted(offsets)) for partition, offsets in places.items()}
    chosen = Filter(places=runs)

    assert chosen.is_sound
    assert chosen.named == sum(map(len, places.values()))
    for partition in range(4):
        one = Message(
            TopicName("orders"), PartitionId(partition), Offset(offset), 0, None, b"", None, 2
        )
        assert chosen.matches(one, Story()) == (offset in places.get(partition, set()))
    assert not Filter(places={0: [1]}).is_sound
    assert not Filter(places={0: [3, 3]}).is_sound
    assert not Filter(places={0: [1, 5, 4, 6]}).is_sound
