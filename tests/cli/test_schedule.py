"""``goqueue schedule``, against a real broker."""

import signal
from itertools import count
from pathlib import Path

import pytest

import goqueue
from tests.acceptance.served import address_of, held_port
from tests.cli.running import BrokerProcess, Run

NAMES = count()


@pytest.fixture
def topic(cli: Run) -> str:
    name = f"scheduled-{next(NAMES)}"
    assert cli("topic", "create", name, "-p", "1").code == 0
    return name


def test_a_schedule_from_its_making_to_its_end(cli: Run, topic: str) -> None:
    """Shown to people and to programs; what a stranger wrote is harmless on a terminal."""
    name = f"{topic}-s"
    made = cli(
        "schedule", "create", name, "--cron", "*/5 * * * *", "--tz", "Europe/Berlin", "--topic",
        topic, "--value", "red \x1b[31m alert", "--key", "k", "--header", "a=b", "--priority",
        "high", "--missed", "all",
    )  # fmt: skip
    listed = cli("schedule", "list")
    data = cli("schedule", "describe", name, "-o", "json").data
    entry = next(one for one in cli("schedule", "list", "-o", "json").data if one["name"] == name)

    assert made.code == 0
    assert "*/5 * * * * (Europe/Berlin)" in made.out
    assert "red \\x1b[31m alert" in made.out
    assert "\x1b" not in made.out + listed.out
    assert len(data["next_ticks"]) == 5
    assert (data["priority"], data["missed"], data["state"]) == ("high", "all", "active")
    assert entry["next_tick"][:16] == data["next_ticks"][0][:16]
    assert cli("schedule", "trigger", name).out == f"{name}: published to {topic}/0 offset 0\n"
    assert cli("schedule", "pause", name).out == f"{name} is paused\n"
    assert cli("schedule", "resume", name).out.startswith(f"{name} is active; its next tick is 2")
    assert cli("schedule", "delete", name, "-f").out == f"{name} is deleted\n"
    gone = cli("schedule", "describe", name)
    assert gone.code == 1
    assert "schedule_not_found" in gone.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give --cron or --every"),
        (("--cron", "* * * * *", "--every", "5s"), "give --cron or --every"),
        (("--cron", "0 0 30 2 *"), "bad day-of-month"),
        (("--cron", "* * * * * *"), "has 6 fields"),
        (("--every", "10ms"), "not between 1s"),
        (("--every", "367d"), "not between 1s and 366 days"),
        (("--every", "5s", "--tz", "Europe/Berlin"), "tz: is for cron"),
        (("--cron", "* * * * *", "--tz", "Nowhere"), "tz: 'Nowhere' is not known"),
        (("--every", "5s", "--header", "goqueue-delay-id=x"), "goqueue-delay-id is for delayed"),
        (("--every", "5s", "--missed", "some"), "missed: must be one of"),
    ],
)
def test_what_is_not_understood_is_usage(
    cli: Run, topic: str, arguments: tuple[str, ...], message: str
) -> None:
    """Exit code 2 and what to write instead."""
    done = cli("schedule", "create", "x", "--topic", topic, "--value", "v", *arguments)

    assert done.code == 2
    assert message in done.err


def test_ticks_over_kills_of_a_real_broker(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between ticks and within them, every tick has one message and no tick has two."""
    held = held_port()
    address = address_of(held)
    monkeypatch.setenv("GOQUEUE_SERVER", address)
    broker = BrokerProcess(tmp_path / "data", "--native", address)
    run("topic", "create", "t", "-p", "2")
    made = run(
        "schedule", "create", "s", "--every", "1s", "--topic", "t", "--value", "v", "--missed",
        "all", "-o", "json",
    )  # fmt: skip
    client = goqueue.connect(address)
    seen = 0
    for _ in range(3):
        while client.describe_schedule("s").published < seen + 2:
            pass
        broker.stop(signal.SIGKILL)
        broker = BrokerProcess(tmp_path / "data", "--native", address)
        seen = client.describe_schedule("s").published
    while client.describe_schedule("s").published < seen + 1:
        pass
    client.pause_schedule("s")
    state = client.describe_schedule("s")
    ticks = [(message.headers or {})["goqueue-tick"] for message in client.read("t")]

    assert made.code == 0
    assert len(ticks) == len(set(ticks))
    assert len(ticks) - state.published in {0, 1}
    client.close()
    assert broker.stop() == 0
    held.close()
