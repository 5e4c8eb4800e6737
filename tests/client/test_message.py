"""Messages as readers get them: light, and still whole."""

import copy
import pickle

import pytest

import goqueue
from goqueue.base.ids import Offset, PartitionId, TopicName
from goqueue.client.protocol.message import NAMES, RUN_ROWS, ReadMessage, message_of, runs_of
from goqueue.core.record.columns import batch_of_drafts, messages_of
from goqueue.core.record.frame import read_header
from goqueue.core.record.message import Draft
from goqueue.core.record.row import Row, encode_row

TOPIC = TopicName("orders")
ONE = PartitionId(1)
FIRST = Offset(1_000)


def draft(number: int, *, is_plain: bool) -> Draft:
    if is_plain:
        return Draft(key=b"k%d" % number, value=b"v%d" % number, timestamp_us=10**15 + number)
    return Draft(
        key=None if number % 3 == 0 else b"k%d" % number,
        value=None if number % 5 == 0 else b"v%d" % number,
        timestamp_us=10**15 - number,
        headers={"n": b"%d" % number} if number % 2 else None,
        priority=number % 5,
        deliver_at_us=10**15 + number if number % 7 == 0 else None,
    )


def read(drafts: list[Draft], *, skip: int = 0) -> list[ReadMessage]:
    batch = batch_of_drafts(drafts)[0].slice(skip)
    first = Offset(FIRST + skip)
    runs = runs_of(batch, topic=TOPIC, partition=ONE, first_offset=first)
    return [message for run in runs for message in run]


@pytest.mark.parametrize("is_plain", [True, False])
@pytest.mark.parametrize("count", [1, RUN_ROWS - 1, RUN_ROWS, RUN_ROWS + 1, 3 * RUN_ROWS + 7])
@pytest.mark.parametrize("skip", [0, 1])
def test_a_batch_is_read_as_it_is(count: int, skip: int, *, is_plain: bool) -> None:
    """Every field of every row, over the borders of runs and in a batch that was cut."""
    drafts = [draft(number, is_plain=is_plain) for number in range(count)]
    batch = batch_of_drafts(drafts)[0]
    expected = list(messages_of(batch, topic=TOPIC, partition=ONE, first_offset=FIRST))[skip:]
    found = read(drafts, skip=skip)

    assert [tuple(getattr(one, name) for name in NAMES) for one in found] == [
        tuple(getattr(one, name) for name in NAMES) for one in expected
    ]
    assert [one.is_tombstone for one in found] == [one.value is None for one in expected]


def test_a_row_frame_and_a_row_of_a_batch_are_alike() -> None:
    """How a message is stored cannot be told from it."""
    drafts = [draft(number, is_plain=False) for number in range(1, 20)]
    frames = [memoryview(encode_row(one)) for one in drafts]
    rows = [
        message_of(Row(read_header(frame), frame), topic=TOPIC, partition=ONE) for frame in frames
    ]

    for row, found in zip(rows, read(drafts), strict=True):
        assert row.headers == found.headers
        assert (row.key, row.value, row.priority) == (found.key, found.value, found.priority)
        assert (row.timestamp_us, row.deliver_at_us) == (found.timestamp_us, found.deliver_at_us)


def test_messages_are_compared_by_what_they_say() -> None:
    """The same message read twice is equal to itself, and to nothing else."""
    drafts = [draft(number, is_plain=False) for number in range(10)]
    once, again = read(drafts), read(drafts)

    assert once == again
    assert len({*once, *again}) == len(drafts)
    assert once[0] != once[1]
    assert once[0] != "a message"
    assert isinstance(once[0], goqueue.Message)
    assert repr(once[1]).startswith("Message(topic='orders', partition=1, offset=1001, timestamp")


def test_a_message_goes_alone() -> None:
    """Who sends one to another process, or copies it, does not send its neighbours along."""
    messages = read([draft(number, is_plain=False) for number in range(RUN_ROWS)])
    packed = pickle.dumps(messages[77])

    assert pickle.loads(packed) == messages[77]  # noqa: S301 - packed two lines above
    assert copy.deepcopy(messages[77]) == messages[77]
    assert len(packed) < 300
