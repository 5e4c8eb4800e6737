"""``goqueue consume --group`` and the offsets of groups, against a real broker."""

import signal
from itertools import count

import pytest

from tests.cli.running import SECONDS_MAX, BrokerProcess, Run, lines_of, start

NAMES = count()


@pytest.fixture
def topic(cli: Run) -> str:
    name = f"grouped-{next(NAMES)}"
    assert cli("topic", "create", name, "-p", "1").code == 0
    assert cli("produce", name, stdin=b"".join(b"%d\n" % n for n in range(20))).code == 0
    return name


def test_what_was_printed_does_not_come_again(cli: Run, topic: str) -> None:
    """Each run goes on where the last one ended; the group's lag says how much is left."""
    first = cli("consume", topic, "--group", topic, "-n", "5")
    second = cli("consume", topic, "--group", topic, "--count", "5")
    lag = cli("group", "lag", topic, "-o", "json").data
    rest = cli("consume", topic, "--group", topic)

    assert first.out.split() == ["0", "1", "2", "3", "4"]
    assert second.out.split() == ["5", "6", "7", "8", "9"]
    assert [(one["topic"], one["lag"]) for one in lag] == [(topic, 10)]
    assert rest.out.split() == [str(number) for number in range(10, 20)]


def test_looking_only(cli: Run, topic: str) -> None:
    """With --no-ack everything stays, and no attempt is counted."""
    first = cli("consume", topic, "-g", topic, "--no-ack", "-n", "3")
    second = cli("consume", topic, "-g", topic, "-n", "3")

    assert first.out == second.out == "0\n1\n2\n"


def test_beginning_anew(cli: Run, topic: str) -> None:
    """``reset`` shows where it was and will be; a dry run changes nothing."""
    cli("consume", topic, "-g", topic, "--auto-ack")
    dry = cli("group", "reset", topic, "-t", topic, "--to", "5", "--dry-run", "-o", "json").data
    before = cli("group", "offsets", topic, "-o", "json").data
    done = cli("group", "reset-offsets", topic, "--topic", topic, "--to", "5", "-f", "-o", "json")
    again = cli("consume", topic, "-g", topic, "-n", "1")

    assert [(one["partition"], one["new_offset"]) for one in dry] == [(0, 5)]
    assert before[0]["committed_offset"] >= 19
    assert done.data == dry
    assert again.out == "5\n"


def test_following_ends_with_ctrl_c(broker: BrokerProcess, cli: Run, topic: str) -> None:
    """An interrupt is the way to end it: what was printed is acked, the exit code is 0."""
    process = start("consume", topic, "-g", topic, "--follow", "-s", broker.native)
    lines = lines_of(process, "stdout")
    found = [next(lines) for _ in range(20)]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=SECONDS_MAX)

    assert process.returncode == 0
    assert found == [b"%d" % number for number in range(20)]
    assert cli("group", "lag", topic, "-o", "json").data[0]["lag"] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--group", "g", "--to", "5"],
        ["--group", "g", "--no-ack", "--auto-ack"],
        ["--group", "g", "--from", "7"],
        ["--ordering", "key"],
        ["other"],
    ],
)
def test_contradictions(cli: Run, topic: str, arguments: list[str]) -> None:
    """What does not go together is refused before a group is touched."""
    outcome = cli("consume", topic, *arguments)

    assert outcome.code == 2
    assert cli("group", "describe", "g").code != 0
