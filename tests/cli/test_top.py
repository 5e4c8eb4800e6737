"""``goqueue top``: what it counts, and how it fits on terminals of all sizes."""

import io
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl

import pytest
from rich.console import Console, ConsoleDimensions

import goqueue
from goqueue.cli.top_rates import sight_of
from goqueue.cli.top_screen import GROUP_COLUMNS, TOPIC_COLUMNS, draw, fit
from goqueue.wire.overview_calls import GroupView, Overview, TopicView
from tests.cli.running import SECONDS_MAX, BrokerProcess, Run


def overview(at_ms: int, *, topics: int = 1, messages: int = 0, name: str = "orders") -> Overview:
    return Overview(
        "node-1",
        at_ms,
        at_ms,
        [
            TopicView(f"{name}{n}", 3, 4096, messages, messages // 2, [1, 2, 30_000, 4, 5], 6, 7)
            for n in range(topics)
        ],
        [
            GroupView(f"group{n}", "Stable", 2, ["orders"], messages // 2, 12, 3_500, 4, 5, 6)
            for n in range(topics)
        ],
    )


def shown(sight_topics: int, width: int, height: int, name: str = "orders") -> list[str]:
    sight = sight_of(
        overview(1_000, topics=sight_topics, name=name),
        overview(3_000, topics=sight_topics, messages=4_000_000, name=name),
    )
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(draw(sight, ConsoleDimensions(width, height), "127.0.0.1:7070"))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_rates_come_from_two_looks() -> None:
    """What grew between two looks, by the broker's own clock; a count that fell is no rate."""
    sight = sight_of(overview(1_000, messages=100), overview(3_000, messages=500))
    anew = sight_of(overview(1_000, messages=100), overview(3_000, messages=50))
    (topic,), (group,) = sight.topics, sight.groups

    assert (topic.rate_in, topic.rate_out, group.rate_acked) == (200.0, 100.0, 100.0)
    assert (sight.rate_in, sight.rate_out) == (200.0, 100.0)
    assert topic.pending == dict(
        zip(("critical", "high", "normal", "low", "background"), (1, 2, 30_000, 4, 5), strict=True)
    )
    assert (group.lag, group.lag_seconds) == (12, 3.5)
    assert (anew.topics[0].rate_in, anew.groups[0].rate_acked) == (0.0, 0.0)


@pytest.mark.parametrize("width", [20, 40, 80, 120, 200])
@pytest.mark.parametrize("height", [8, 24, 50])
@pytest.mark.parametrize("topics", [0, 1, 100])
def test_it_fits_any_terminal(width: int, height: int, topics: int) -> None:
    """No line is wider and no screen longer than the terminal; what is left out is counted."""
    lines = shown(topics, width, height)

    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert any("more" in line for line in lines) == (topics == 100)


def test_narrow_terminals_keep_what_matters() -> None:
    """The first columns stay longest; a wide one has them all."""
    assert [one.title for one in fit(TOPIC_COLUMNS, 40)] == ["IN/S", "OUT/S", "PENDING"]
    assert [one.title for one in fit(GROUP_COLUMNS, 40)][:2] == ["LAG", "BEHIND"]
    assert fit(TOPIC_COLUMNS, 120) == TOPIC_COLUMNS


def test_hostile_names_are_only_shown() -> None:
    """Control characters and markup in a name do nothing to the terminal."""
    text = "\n".join(shown(1, 120, 24, name="\x1b[2J[red]x[/red]\n"))

    assert "\x1b[2J" not in text
    assert "[red]x[/red]" in text


def test_once_tells_everything(cli: Run, broker: BrokerProcess) -> None:
    """``--once -o json`` is for scripts: topics, groups, rates, lanes, leases, dead letters."""
    with goqueue.connect(broker.native) as client:
        client.create_topic("top.orders", partitions=1)
        with client.producer("top.orders") as producer:
            for number in range(5):
                producer.send(b"v", priority="high" if number == 0 else "normal")
        with client.consumer("top.billing", ["top.orders"]) as consumer:
            message = next(iter(consumer))
            message.ack()
    outcome = cli("top", "--once", "--interval", "100ms", "-o", "json")
    seen = json.loads(outcome.out)
    (topic,) = [one for one in seen["topics"] if one["name"] == "top.orders"]
    (group,) = [one for one in seen["groups"] if one["name"] == "top.billing"]

    assert outcome.code == 0
    assert set(seen) == {"node_id", "uptime_ms", "rate_in", "rate_out", "topics", "groups"}
    assert sum(topic["pending"].values()) == 4
    assert (group["lag"], group["in_flight"]) == (4, 0)
    assert group["lag_seconds"] >= 0
    table = cli("top", "--once", "--interval", "100ms").out
    assert "top.orders" in table
    assert "BEHIND" in table


def test_bad_intervals_are_refused(cli: Run) -> None:
    """An interval that makes no sense is told so, before anything is asked."""
    assert cli("top", "--interval", "soon").code == 2
    assert cli("top", "--interval", "1ms").code == 2


def test_it_watches_on_a_terminal_until_ctrl_c(broker: BrokerProcess) -> None:
    """On a real terminal it draws again and again; Ctrl-C ends it cleanly, with code 0."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "goqueue", "top", "-i", "100ms", "-s", broker.native],
        stdin=slave,
        stdout=slave,
        stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(slave)
    seen = b""
    deadline = time.monotonic() + SECONDS_MAX
    while seen.count(b"GROUP") < 3:
        assert time.monotonic() < deadline, seen[-2_000:]
        if select.select([master], [], [], 1)[0]:
            seen += os.read(master, 65_536)
    process.send_signal(signal.SIGINT)
    while process.poll() is None:
        assert time.monotonic() < deadline, "it goes on"
        # A terminal nobody reads keeps its program from ending.
        if select.select([master], [], [], 0.1)[0]:
            try:
                seen += os.read(master, 65_536)
            except OSError:
                break
    _, errors = process.communicate(timeout=SECONDS_MAX)
    os.close(master)

    assert b"TOPIC" in seen
    assert seen.rstrip().endswith(b"\x1b[?25h") or b"\x1b[?1049l" in seen
    assert (process.returncode, errors) == (0, b"")
