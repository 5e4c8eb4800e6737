"""What the attack stands on: plans from seeds, histories of topics, copies compared."""

import shutil
from pathlib import Path

import pytest

import goqueue
from goqueue.testing.linearizability import NEVER, TimedOperation
from tests.chaos.faults import KINDS, plan
from tests.chaos.metadata import ABSENT, Asked, violations
from tests.chaos.replicas import differences

NAMES = ("n1", "n2", "n3")


def asked(
    verb: str, output: str | int | None, called: int, returned: int = NEVER, partitions: int = 2
) -> TimedOperation[Asked, str | int]:
    return TimedOperation(
        client="c",
        input=(verb, "t", partitions),
        output=output,
        called=called,
        returned=returned,
    )


def test_a_seed_gives_one_plan() -> None:
    """A failure can be repeated, as far as real processes allow."""
    plans = [[str(one) for one in plan(7, 40, kinds=list(KINDS), names=NAMES)] for _ in range(2)]

    assert plans[0] == plans[1]
    assert plans[0] != [str(one) for one in plan(8, 40, kinds=list(KINDS), names=NAMES)]


def test_a_topic_that_is_made_described_and_deleted_is_fine() -> None:
    history = [
        asked("create", "made", 0, 1),
        asked("describe", 2, 2, 3),
        asked("delete", "gone", 4, 5),
        asked("describe", ABSENT, 6, 7),
        asked("delete", "missing", 8, 9),
    ]

    assert violations(history) == []


@pytest.mark.parametrize(
    "late",
    [
        asked("describe", ABSENT, 2, 3),
        asked("describe", 3, 2, 3),
        asked("create", "made", 2, 3),
        asked("delete", "missing", 2, 3),
    ],
)
def test_an_answer_from_the_past_is_found(late: TimedOperation[Asked, str | int]) -> None:
    """Whoever asks after a topic was made is told of it, on any node."""
    assert violations([asked("create", "made", 0, 1), late])


def test_what_was_not_answered_may_have_happened_or_not() -> None:
    lost = asked("create", None, 0)

    assert violations([lost, asked("describe", 2, 5, 6)]) == []
    assert violations([lost, asked("describe", ABSENT, 5, 6)]) == []
    assert violations([lost, asked("describe", 2, 5, 6), asked("describe", ABSENT, 7, 8)])


def test_copies_that_differ_or_end_early_are_found(tmp_path: Path) -> None:
    """Byte for byte, up to what was relied upon."""
    with goqueue.open(tmp_path / "a") as client:
        client.create_topic("orders", partitions=1)
        with client.producer("orders") as producer:
            for number in range(20):
                producer.publish(b"%d" % number)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    both = {name: tmp_path / name for name in ("a", "b")}

    assert differences(both, ends={"orders/0": 20}) == []
    assert differences(both, ends={"orders/0": 21})

    with goqueue.open(tmp_path / "a") as client, client.producer("orders") as producer:
        producer.publish(b"here")
    with goqueue.open(tmp_path / "b") as client, client.producer("orders") as producer:
        producer.publish(b"there")

    assert differences(both, ends={"orders/0": 20})
