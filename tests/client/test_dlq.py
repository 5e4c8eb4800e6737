"""Dead letters in the SDK, against a real broker."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import goqueue
from goqueue import aio
from goqueue.base.errors import (
    InvalidRequestError,
    RedriveActiveError,
    RedriveNotFoundError,
    TopicNotFoundError,
)
from goqueue.core.dlq.record import STORY, Story, write_story
from goqueue.wire.dlq_calls import RedriveState


def bury(client: goqueue.Client, topic: str, count: int) -> None:
    """Make dead letters as the broker does."""
    client.create_topic(f"{topic}.dlq", partitions=3)
    producer = client.producer(f"{topic}.dlq")
    for number in range(count):
        story = Story(
            original_topic=topic,
            original_partition=number % 3,
            original_offset=number,
            reason="REJECTED" if number % 2 else "MAX_RETRIES_EXCEEDED",
            last_error=f"error {number}",
            last_group="billing",
        )
        producer.send(
            b"%d" % number,
            key=b"key-%d" % number,
            headers={STORY: write_story(story, bytes_max=9_999), "color": "blue"},
            partition=number % 3,
        )
    producer.flush()


def test_letters_are_looked_at_and_sent_back(client: goqueue.Client, topic: str) -> None:
    """The whole way: list, peek, try, redrive, history."""
    bury(client, topic, 20)
    (summary,) = [one for one in client.dlq_list() if one.source == topic]
    page = client.dlq_peek(topic, limit=4, reason="REJECTED")
    trial = client.dlq_preview(topic, key_prefix="key-1")
    seen: list[RedriveState] = []
    state = client.dlq_redrive(topic, key_prefix="key-1", by="ann", on_progress=seen.append)
    back = list(client.read(topic))

    assert (summary.topic, summary.depth) == (f"{topic}.dlq", 20)
    assert summary.oldest_us > 0
    assert page.depth == 20
    assert page.is_cut
    assert [letter.story.reason for letter in page.letters] == ["REJECTED"] * 4
    assert page.letters[0].message.headers == {"color": b"blue"}
    assert (trial.matched, trial.unmatched, len(trial.sample)) == (11, 9, 10)
    assert (state.state, state.moved, state.unmatched, state.by) == ("done", 11, 9, "ann")
    assert seen[-1] == state
    assert sorted(int(message.value or b"") for message in back) == [1, *range(10, 20)]
    for message in back:
        assert message.partition == int(message.value or b"") % 3
        assert (message.headers or {})["goqueue-redrives"] == b"1"
    assert client.dlq_history(topic) == [state]
    assert client.dlq_progress(topic, state.id) == state
    assert client.dlq_peek(f"{topic}.dlq").depth == 9


def test_letters_are_thrown_away(client: goqueue.Client, topic: str) -> None:
    """Only those that are meant, also by time, header and text."""
    bury(client, topic, 6)
    hour = timedelta(hours=1)
    now = datetime.now(UTC)

    assert client.dlq_purge(topic, until=now - hour).moved == 0
    assert client.dlq_purge(topic, since=now - hour, header="color=blue", text="ERROR 3").moved == 1
    assert client.dlq_purge(topic, header="color").moved == 5
    assert client.dlq_peek(topic).letters == []


def test_the_largest_letter_can_be_looked_at(client: goqueue.Client, topic: str) -> None:
    """A page ends before it grows too large, and one letter always comes."""
    client.create_topic(f"{topic}.dlq", partitions=1)
    producer = client.producer(f"{topic}.dlq")
    values = [b"%d" % number * (15 << 20) for number in range(3)]
    for value in values:
        producer.send(value)
    producer.flush()
    pages = [client.dlq_peek(topic, skip=skip) for skip in range(3)]

    assert [page.letters[0].message.value for page in pages] == values
    assert [page.is_cut for page in pages] == [True, True, False]


def test_jobs_can_be_cancelled(client: goqueue.Client, topic: str) -> None:
    """A slow one is ended; a second one is refused while it runs."""
    bury(client, topic, 50)
    state = client.dlq_redrive(topic, rate=1, wait=False)
    with pytest.raises(RedriveActiveError):
        client.dlq_purge(topic)
    cancelled = client.dlq_cancel(topic, state.id)

    assert state.is_running
    assert cancelled.state == "cancelled"
    assert client.dlq_peek(topic).depth == 50 - cancelled.moved


def test_what_is_wrong_is_said(client: goqueue.Client, topic: str) -> None:
    """The errors of the broker are those of the client."""
    bury(client, topic, 1)
    with pytest.raises(TopicNotFoundError):
        client.dlq_peek("nowhere")
    with pytest.raises(TopicNotFoundError):
        client.dlq_redrive(topic, target="nowhere")
    with pytest.raises(RedriveNotFoundError):
        client.dlq_cancel(topic, 7)
    with pytest.raises(InvalidRequestError):
        client.dlq_redrive(topic, rate=-1)
    with pytest.raises(InvalidRequestError):
        client.dlq_peek(topic, limit=100_000)
    with pytest.raises(InvalidRequestError):
        client.dlq_preview(topic, kind="burn")


def test_the_same_with_asyncio(address: str, client: goqueue.Client, topic: str) -> None:
    """The asynchronous client has the same calls."""
    bury(client, topic, 3)

    async def main() -> None:
        async with await aio.connect(address) as asynchronous:
            page = await asynchronous.dlq_peek(topic)
            state = await asynchronous.dlq_redrive(topic)
            assert len(page.letters) == state.moved == 3

    asyncio.run(main())


def test_letters_are_named_by_their_places(client: goqueue.Client, topic: str) -> None:
    """Just those go; what went before, or is not there, does not matter."""
    bury(client, topic, 12)
    places = {0: [0, 2, 3], 2: [1, 99]}
    trial = client.dlq_preview(topic, places=places)
    state = client.dlq_redrive(topic, places=places)
    again = client.dlq_redrive(topic, places={**places, 1: [0]})
    (_, first) = client.dlq_history(topic)

    assert (trial.matched, trial.unmatched) == (4, 8)
    assert (state.moved, state.unmatched) == (4, 8)
    assert again.moved == 1
    assert first.filter.places == {0: [0, 1, 2, 4], 2: [1, 2, 99, 100]}
    values = sorted(int(message.value or b"") for message in client.read(topic))
    assert values == [0, 1, 5, 6, 9]
    with pytest.raises(InvalidRequestError, match="places"):
        client.dlq_redrive(topic, places={0: range(0, 16_000, 2)})
    with pytest.raises(InvalidRequestError, match="places"):
        client.dlq_redrive(topic, places={one: range(0, 4_000, 2) for one in range(3)})
