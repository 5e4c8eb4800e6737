"""A session brings every message once, says only what changed, and begins again when in doubt."""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from goqueue.base.cluster_limits import REPLICA_PARTS_MAX, REPLICA_SHARE_BYTES_MIN
from goqueue.base.ids import NO_EPOCH, Epoch, Offset, PartitionId, TopicName, TopicPartition
from goqueue.core.replication.epochs import EpochStart
from goqueue.core.replication.feed import FeedSession, FeedShare, RequestFate, unknown_session
from goqueue.core.replication.replica import (
    DATA_LOG,
    FetchAnswer,
    FetchOutcome,
    FetchPosition,
    LogKey,
)
from goqueue.core.replication.session import (
    ANSWER_TIMEOUT_MS,
    REFUSED_RETRY_MS,
    REQUESTS_MAX,
    FetchSession,
    SessionAnswer,
    SessionRequest,
)
from goqueue.core.replication.throttle import TokenBucket

WAIT_MS = 500
FRAME_BYTES = 1_000


def key_of(number: int) -> LogKey:
    return LogKey(TopicPartition(TopicName("t"), PartitionId(number)), DATA_LOG)


@dataclass
class Log:
    """A log at both ends of the story: how far the leader's goes, and the follower's."""

    end_offset: Offset = Offset(0)  # noqa: RUF009 - a NewType is the value itself
    start_offset: Offset = Offset(0)  # noqa: RUF009
    copied: int = 0
    durable: int = 0
    epoch: Epoch = Epoch(1)  # noqa: RUF009
    is_throttled: bool = False
    received: list[tuple[int, int]] = field(default_factory=list)

    def last_epoch(self, offset: Offset) -> Epoch:
        return Epoch(1) if offset else NO_EPOCH

    def answer(self, *, offset: Offset, last_epoch: Epoch, end_offset: Offset) -> FetchAnswer:
        is_there = offset >= self.start_offset
        return FetchAnswer(
            outcome=FetchOutcome.OK if is_there else FetchOutcome.OUT_OF_RANGE,
            epoch=self.epoch,
            offset=offset,
            last_epoch=last_epoch,
            end_offset=end_offset if is_there else offset,
            high_watermark=Offset(0),
            start_offset=self.start_offset,
            epochs=(EpochStart(Epoch(1), offset),) if is_there and end_offset > offset else (),
        )


class Ends:
    """Both ends of a session and the logs; the test is the network between them."""

    def __init__(self, logs: int = 1, *, bytes_max: int = 1 << 20) -> None:
        self.now_ms = 1_000
        self.logs = {key_of(number): Log() for number in range(logs)}
        self.refused: dict[LogKey, FetchOutcome] = {}
        self.fetch = FetchSession(number=7, bytes_max=bytes_max, wait_ms=WAIT_MS)
        self.feed = FeedSession(7)
        for key in self.logs:
            self.fetch.add(key)

    # A Feeder.

    def judge(self, key: LogKey, position: FetchPosition) -> FetchAnswer | None:
        outcome = self.refused.get(key)
        if outcome is None:
            return None
        answer = self.logs[key].answer(
            offset=position.offset, last_epoch=position.last_epoch, end_offset=position.offset
        )
        return FetchAnswer(
            outcome=outcome,
            epoch=position.epoch,
            offset=answer.offset,
            last_epoch=answer.last_epoch,
            end_offset=answer.offset,
            high_watermark=Offset(0),
            start_offset=Offset(0),
        )

    def find(self, key: LogKey) -> Log | None:
        return self.logs.get(key)

    # The follower.

    def position(self, key: LogKey) -> FetchPosition:
        log = self.logs[key]
        return FetchPosition(
            epoch=log.epoch,
            offset=Offset(log.copied),
            last_epoch=log.last_epoch(Offset(log.copied)),
            durable_offset=Offset(log.durable),
        )

    def request(self) -> SessionRequest | None:
        return self.fetch.next_request(self.position, now_ms=self.now_ms)

    def sent(self) -> SessionRequest:
        request = self.request()
        assert request is not None
        return request

    def receive(self, answer: SessionAnswer) -> None:
        for key, part in self.fetch.take(answer, now_ms=self.now_ms):
            log = self.logs[key]
            if part.offset == log.copied and part.end_offset > part.offset:
                log.received.append((part.offset, part.end_offset))
                log.copied = part.end_offset

    # The leader.

    def arrive(self, request: SessionRequest) -> RequestFate:
        return self.feed.take(request, self, now_ms=self.now_ms)

    def append(self, key: LogKey, count: int = 1) -> None:
        self.logs[key].end_offset = Offset(self.logs[key].end_offset + count)
        self.feed.appended(key)

    def answers(self, throttle: TokenBucket | None = None) -> list[SessionAnswer]:
        found = []
        while self.feed.is_due(now_ms=self.now_ms, throttle=throttle):
            plan = self.feed.plan(self, now_ms=self.now_ms, throttle=throttle)
            assert plan is not None
            read = {share.key: self._read(share) for share in plan.shares}
            found.append(self.feed.finish(plan, read, self))
        return found

    def _read(self, share: FeedShare) -> Offset:
        count = max(share.bytes_max // FRAME_BYTES, 1)
        return Offset(min(share.offset + count, self.logs[share.key].end_offset))

    def exchange(self) -> list[SessionAnswer]:
        """Carry everything back and forth until both ends wait."""
        seen = []
        for _ in range(1_000):
            request = self.request()
            if request is not None:
                assert self.arrive(request) is RequestFate.TAKEN
            answers = self.answers()
            for answer in answers:
                self.receive(answer)
            seen += answers
            if request is None and not answers:
                return seen
        pytest.fail("they never stop")


def test_only_what_changed_is_said() -> None:
    """Both ways: an idle log is named by nobody."""
    ends = Ends(100)
    ends.exchange()
    ends.append(key_of(3), 2)
    (answer,) = ends.answers()
    assert [key for key, _ in answer.parts if _.end_offset > _.offset] == [key_of(3)]
    ends.receive(answer)
    wait = ends.sent()
    ends.arrive(wait)
    ends.logs[key_of(3)].durable = 2
    ends.fetch.touch(key_of(3))

    report = ends.sent()
    assert wait.parts == (), "the leader knows what it has sent"
    assert [(key, position.durable_offset) for key, position in report.parts] == [(key_of(3), 2)]


def test_an_idle_pair_says_one_thing_for_each_wait() -> None:
    """Whatever the number of logs."""
    ends = Ends(1_000)
    ends.exchange()
    ends.now_ms += WAIT_MS - 1
    assert ends.answers() == []
    assert ends.request() is None
    ends.now_ms += 1
    first, *_ = ends.exchange()

    ends.now_ms += WAIT_MS
    (second,) = ends.answers()
    assert second.parts == ()
    assert first.sequence + 1 == second.sequence


def test_reports_of_syncs_wait_for_messages_like_any_request() -> None:
    """Where as many are under way as may be, the first is released: there is always one more."""
    ends = Ends()
    ends.exchange()
    answered: list[int] = []
    for durable in range(1, 2 * REQUESTS_MAX):
        ends.logs[key_of(0)].durable = durable
        ends.fetch.touch(key_of(0))
        request = ends.sent()
        assert [position.durable_offset for _, position in request.parts] == [durable]
        ends.arrive(request)
        for answer in ends.answers():
            answered.append(durable)
            ends.receive(answer)

    assert answered == list(range(REQUESTS_MAX - 1, 2 * REQUESTS_MAX))


def test_a_message_costs_one_answer_and_one_report() -> None:
    """What the leader sent is where it takes the log to be; only a sync is news to it."""
    ends = Ends()
    log, requests, answers = ends.logs[key_of(0)], 0, 0
    ends.arrive(ends.sent())
    for number in range(1, 21):
        ends.append(key_of(0))
        for answer in ends.answers():
            ends.receive(answer)
            answers += 1
        log.durable = number
        ends.fetch.touch(key_of(0))
        while request := ends.request():
            ends.arrive(request)
            requests += 1

    assert log.copied == 20
    assert (requests, answers) == (20, 20)


def test_an_older_follower_is_answered_at_its_second_request() -> None:
    """It lets two be under way, and could report nothing more."""
    ends = Ends()
    first, second = ends.sent(), None
    ends.arrive(replace(first, requests_max=2))
    ends.fetch.touch(key_of(0))
    ends.logs[key_of(0)].durable = 1
    second = ends.sent()
    assert not ends.answers()
    ends.arrive(replace(second, requests_max=2))

    assert [answer.sequence for answer in ends.answers()] == [first.sequence]


def test_two_requests_under_way_bring_no_message_twice() -> None:
    """The leader remembers what it has sent; the follower says what it has taken."""
    ends = Ends(bytes_max=2 * FRAME_BYTES)
    ends.arrive(ends.sent())
    ends.fetch.touch(key_of(0))
    ends.logs[key_of(0)].durable = 1
    ends.arrive(ends.sent())
    ends.answers()
    ends = Ends(bytes_max=REPLICA_SHARE_BYTES_MIN)
    ends.append(key_of(0), 100)
    ends.exchange()

    received = ends.logs[key_of(0)].received
    assert received[0][0] == 0
    assert received[-1][1] == 100
    assert all(a[1] == b[0] for a, b in pairwise(received))


def test_what_was_not_taken_is_sent_again() -> None:
    """The follower's disk was full: it names the log, and the leader believes it."""
    ends = Ends()
    ends.append(key_of(0), 3)
    ends.arrive(ends.sent())
    (answer,) = ends.answers()
    ends.fetch.take(answer, now_ms=ends.now_ms)
    ends.exchange()

    assert ends.logs[key_of(0)].received == [(0, 3)]


def test_answers_out_of_order_are_mended() -> None:
    """The second one does not fit before the first, and is sent again."""
    ends = Ends(bytes_max=REPLICA_SHARE_BYTES_MIN)
    ends.arrive(ends.sent())
    ends.append(key_of(0), 100)
    (first,) = ends.answers()
    ends.fetch.touch(key_of(0))
    ends.logs[key_of(0)].durable = 1
    ends.arrive(ends.sent())
    (second,) = ends.answers()
    ends.receive(second)
    ends.receive(first)
    ends.exchange()

    assert ends.logs[key_of(0)].copied == 100


def test_a_repeated_request_is_answered_once() -> None:
    """And a repeated answer is taken once."""
    ends = Ends()
    request = ends.sent()
    assert ends.arrive(request) is RequestFate.TAKEN
    assert ends.arrive(request) is RequestFate.REPEATED
    ends.append(key_of(0))
    (answer,) = ends.answers()
    ends.receive(answer)

    assert ends.fetch.take(answer, now_ms=ends.now_ms) == ()


def test_a_gap_ends_the_session() -> None:
    """A request was lost: the next session names every log."""
    ends = Ends(3)
    ends.sent()
    ends.logs[key_of(1)].durable = 1
    ends.fetch.touch(key_of(1))
    request = ends.sent()
    assert ends.arrive(request) is RequestFate.UNKNOWN
    ends.receive(unknown_session(request))
    assert ends.request() is None
    ends.now_ms += REFUSED_RETRY_MS

    again = ends.sent()
    assert again.session > request.session
    assert again.sequence == 0
    assert len(again.parts) == 3


def test_an_answer_that_never_comes_ends_the_session() -> None:
    """After its wait and some more."""
    ends = Ends(2)
    first = ends.sent()
    ends.fetch.tick(now_ms=ends.now_ms + WAIT_MS + ANSWER_TIMEOUT_MS - 1)
    assert ends.request() is None
    ends.fetch.tick(now_ms=ends.now_ms + WAIT_MS + ANSWER_TIMEOUT_MS)

    assert ends.sent().session == first.session + 1


def test_many_logs_are_named_in_several_requests() -> None:
    """A request is bounded, whatever a node follows."""
    ends = Ends(REPLICA_PARTS_MAX + 10)
    first, second = ends.sent(), ends.sent()

    assert len(first.parts) == REPLICA_PARTS_MAX
    assert len(second.parts) == 10


def test_a_refused_log_is_asked_for_again_after_a_pause() -> None:
    """The node may lead it by then; the others go on meanwhile."""
    ends = Ends(2)
    ends.refused[key_of(0)] = FetchOutcome.UNKNOWN
    ends.exchange()
    ends.append(key_of(1))
    ends.exchange()
    assert ends.logs[key_of(1)].copied == 1
    ends.refused.clear()
    ends.append(key_of(0))
    ends.exchange()
    assert ends.logs[key_of(0)].copied == 0
    ends.now_ms += REFUSED_RETRY_MS
    ends.fetch.tick(now_ms=ends.now_ms)
    ends.exchange()

    assert ends.logs[key_of(0)].copied == 1


def test_a_forgotten_log_is_not_sent() -> None:
    """It is followed elsewhere."""
    ends = Ends(2)
    ends.exchange()
    ends.fetch.forget(key_of(0))
    request = ends.sent()
    assert request.forgotten == (key_of(0),)
    ends.arrive(request)
    for answer in ends.answers():
        ends.receive(answer)
    ends.append(key_of(0))

    assert not ends.feed.is_due(now_ms=ends.now_ms)


def test_a_log_that_is_not_led_any_more_drops_out() -> None:
    """Also between the plan of an answer and its end."""
    ends = Ends(2)
    ends.arrive(ends.sent())
    ends.append(key_of(0))
    ends.append(key_of(1))
    plan = ends.feed.plan(ends, now_ms=ends.now_ms)
    assert plan is not None
    del ends.logs[key_of(0)]
    answer = ends.feed.finish(plan, {key_of(0): Offset(1), key_of(1): Offset(1)}, ends)

    assert [key for key, _ in answer.parts] == [key_of(1)]


def test_retention_that_passes_a_follower_is_told() -> None:
    """Instead of messages that are not there."""
    ends = Ends()
    ends.arrive(ends.sent())
    ends.append(key_of(0), 10)
    ends.logs[key_of(0)].start_offset = Offset(5)
    (answer,) = ends.answers()

    ((_, part),) = answer.parts
    assert part.outcome is FetchOutcome.OUT_OF_RANGE
    assert part.end_offset == part.offset


def test_logs_share_the_bytes_of_an_answer() -> None:
    """A busy one does not keep the others waiting, and all of them get on in turn."""
    ends = Ends(40, bytes_max=10 * REPLICA_SHARE_BYTES_MIN)
    ends.arrive(ends.sent())
    for number in range(40):
        ends.append(key_of(number), 10_000)
    served: list[LogKey] = []
    while len(served) < 40:
        (answer,) = ends.answers()
        news = [key for key, part in answer.parts if part.end_offset > part.offset]
        assert len(news) == 10
        served += news
        ends.receive(answer)
        ends.arrive(ends.sent())

    assert set(served) == set(ends.logs)


def test_a_log_alone_gets_all_the_bytes() -> None:
    """Catching up takes as few answers as possible."""
    ends = Ends(bytes_max=1 << 20)
    ends.arrive(ends.sent())
    ends.append(key_of(0), 10_000)
    (answer,) = ends.answers()
    ends.receive(answer)

    assert ends.logs[key_of(0)].copied == (1 << 20) // FRAME_BYTES


def test_catching_up_is_throttled_and_being_in_sync_is_not() -> None:
    """The rate is kept, and the others do not notice."""
    ends = Ends(2)
    throttle = TokenBucket(bytes_per_second=100_000, burst_bytes=10_000, now_ms=ends.now_ms)
    ends.logs[key_of(0)].is_throttled = True
    ends.append(key_of(0), 1_000)
    for _ in range(200):
        ends.append(key_of(1))
        for _ in range(3):
            request = ends.request()
            if request is not None:
                ends.arrive(request)
            for answer in ends.answers(throttle):
                ends.receive(answer)
        ends.now_ms += 10

    assert ends.logs[key_of(1)].copied >= 199
    assert 180 <= ends.logs[key_of(0)].copied <= 420
