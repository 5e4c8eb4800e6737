"""By their epochs two logs find where they part: the cases of KIP-101 and KIP-279, and others."""

from random import Random

import pytest

from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import NO_EPOCH, Epoch, Offset
from goqueue.core.replication.epochs import (
    EpochEnd,
    EpochHistory,
    EpochStart,
    decode_history,
    encode_history,
)


def history(*starts: tuple[int, int]) -> EpochHistory:
    return EpochHistory([EpochStart(Epoch(epoch), Offset(offset)) for epoch, offset in starts])


def history_of(epochs: list[int]) -> EpochHistory:
    """Return the history of a log whose messages have these epochs."""
    found = EpochHistory()
    for offset, epoch in enumerate(epochs):
        if epoch != found.last_epoch(Offset(offset)):
            found.begin(EpochStart(Epoch(epoch), Offset(offset)))
    return found


def meet(leader: list[int], follower: list[int]) -> tuple[int, int]:
    """Cut a follower's log as its leader says; return what is left and how many answers it took."""
    theirs, own = history_of(leader), history_of(follower)
    end, rounds = Offset(len(follower)), 0
    while True:
        diverging = theirs.divergence(
            offset=end, last_epoch=own.last_epoch(end), end_offset=Offset(len(leader))
        )
        if diverging is None:
            return end, rounds
        rounds += 1
        cut = own.common_end(diverging, end_offset=end)
        assert cut < end, "every answer brings them nearer"
        own.truncate(cut)
        end = cut


def test_an_epoch_without_messages_is_replaced() -> None:
    """Two quick elections leave one entry."""
    found = history((1, 0), (2, 10), (3, 10))

    assert list(found) == [(1, 0), (3, 10)]
    assert found.epoch_at(9) == 1
    assert found.epoch_at(10) == 3


def test_epochs_only_grow() -> None:
    """An answer that names an older epoch behind a newer one is refused."""
    with pytest.raises(CorruptFrameError):
        history((2, 0), (1, 5))


def test_a_log_is_led_once_in_an_epoch() -> None:
    """Even if nothing of that epoch is left: followers may have what was lost here."""
    found = history((1, 0), (4, 10))
    found.truncate(Offset(7))

    assert list(found) == [(1, 0)]
    assert not found.may_lead(Epoch(4))
    assert found.may_lead(Epoch(5))
    assert not decode_history(encode_history(found)).may_lead(Epoch(4))


def test_retention_keeps_the_epoch_before_the_start() -> None:
    """A follower that ends exactly there is still judged by its last message."""
    found = history((1, 0), (2, 10), (3, 20))
    found.trim(Offset(20))

    assert list(found) == [(2, 10), (3, 20)]
    end = Offset(30)
    assert found.divergence(offset=Offset(20), last_epoch=Epoch(2), end_offset=end) is None
    diverging = found.divergence(offset=Offset(20), last_epoch=Epoch(1), end_offset=end)
    assert diverging == EpochEnd(NO_EPOCH, Offset(10))


def test_an_empty_log_agrees_with_every_log_that_reaches_it() -> None:
    """Nothing can differ; a log that ends before it cannot go on from there."""
    found = history((1, 0))

    assert found.divergence(offset=Offset(5), last_epoch=NO_EPOCH, end_offset=Offset(5)) is None
    assert found.divergence(offset=Offset(6), last_epoch=NO_EPOCH, end_offset=Offset(5)) is not None


@pytest.mark.parametrize(
    ("leader", "follower", "left"),
    [
        pytest.param([0, 0], [0, 0], 2, id="equal"),
        pytest.param([0, 0, 1], [0, 0], 2, id="behind"),
        pytest.param([0, 1], [0, 0], 1, id="KIP-101: the same length, another message"),
        pytest.param([0, 0], [0, 0, 0], 2, id="a tail that never was committed"),
        pytest.param([0, 2], [0, 1, 1], 1, id="KIP-279: an epoch the leader never saw"),
        pytest.param([0, 1, 3], [0, 1, 1, 2], 2, id="KIP-279: two epochs, one of them common"),
        pytest.param([0, 0, 0, 3], [0, 1, 2], 1, id="KIP-279: two quick failovers"),
        pytest.param([0, 2, 2, 4], [0, 1, 1, 3], 1, id="KIP-279: epochs in turn"),
        pytest.param([1, 1], [0, 0], 0, id="nothing in common"),
    ],
)
def test_a_follower_is_cut_to_what_it_shares(
    leader: list[int], follower: list[int], left: int
) -> None:
    """Never less than was equal, never more."""
    assert meet(leader, follower)[0] == left


def test_any_two_logs_meet_where_they_part() -> None:
    """Logs of any leaders, against a comparison message by message."""
    random = Random(7)
    for _ in range(3_000):
        logs = [[0] * random.randint(0, 3) for _ in range(3)]
        for epoch in range(1, 8):
            # A leader goes on from its own log; some others copy a part of what it wrote.
            first, *others = random.sample(logs, 3)
            first += [epoch] * random.randint(0, 3)
            for other in others:
                if random.random() < 0.5:
                    other[:] = first[: random.randint(meet(first, other)[0], len(first))]
        leader, follower, _ = random.sample(logs, 3)
        left, rounds = meet(leader, follower)
        common = 0
        while common < min(len(leader), len(follower)) and leader[common] == follower[common]:
            common += 1

        assert left == common
        assert rounds <= 8


def test_a_range_names_its_epochs() -> None:
    """The first one is cut to where the range starts."""
    found = history((1, 0), (2, 10), (4, 20))

    assert found.between(start_offset=Offset(5), end_offset=Offset(20)) == ((1, 5), (2, 10))
    assert found.between(start_offset=Offset(10), end_offset=Offset(11)) == ((2, 10),)
    assert found.between(start_offset=Offset(30), end_offset=Offset(31)) == ((4, 30),)
    assert found.between(start_offset=Offset(5), end_offset=Offset(5)) == ()


def test_a_history_comes_back_from_its_bytes() -> None:
    """And anything else is refused."""
    found = history((1, 0), (2, 10), (4, 20))
    again = decode_history(encode_history(found))

    assert list(again) == list(found)
    assert again.latest == found.latest
    for raw in (
        b"",
        b"\x90",
        b"\xc0",
        b"\x93\x01\x01",
        b"\x92\x01\x01",
        b"\x95\x05\x02\x00\x01\x09",
    ):
        with pytest.raises(CorruptFrameError):
            decode_history(raw)
