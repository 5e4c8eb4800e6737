"""All commands together: each works against the real broker, each speaks all three outputs."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
import yaml

from goqueue.cli.main import app
from tests.cli.running import SECONDS_MAX, BrokerProcess, Run

TOPIC = "catalogue-of-commands"
GROUP = "those-who-read-it"
PRODUCER = "billing-1"
SUBJECT = "what-they-look-like"
SCHEDULE = "every-night"

EXAMPLES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("topic", "create"): (TOPIC, "--if-not-exists"),
    ("topic", "list"): (),
    ("topic", "describe"): (TOPIC,),
    ("topic", "config"): (TOPIC, "retention_ms=1d"),
    ("topic", "add-partitions"): (TOPIC, "4"),
    ("topic", "compact"): (TOPIC, "--dry-run"),
    ("produce",): (TOPIC, "-m", "hello", "--delay", "1h", "--delay-id", "later"),
    ("consume",): (TOPIC, "-n", "1", "--delayed", "show"),
    ("delayed", "list"): (TOPIC,),
    ("delayed", "get"): (TOPIC, "--id", "later"),
    ("delayed", "reschedule"): (TOPIC, "--id", "later", "--delay", "2h"),
    ("delayed", "cancel"): (TOPIC, "--id", "later"),
    ("schedule", "create"): (SCHEDULE, "--every", "1d", "--topic", TOPIC, "--value", "x"),
    ("schedule", "list"): (),
    ("schedule", "describe"): (SCHEDULE,),
    ("schedule", "pause"): (SCHEDULE,),
    ("schedule", "resume"): (SCHEDULE,),
    ("schedule", "trigger"): (SCHEDULE,),
    ("schedule", "delete"): (SCHEDULE, "--force"),
    ("group", "list"): (),
    ("group", "describe"): (GROUP,),
    ("group", "members"): (GROUP,),
    ("group", "offsets"): (GROUP,),
    ("group", "lag"): (GROUP,),
    ("group", "reset"): (GROUP, "--topic", TOPIC, "--to", "beginning", "--force"),
    ("group", "reset-offsets"): (GROUP, "--topic", TOPIC, "--to-latest", "--dry-run"),
    ("group", "delete"): (GROUP, "--force"),
    ("dlq", "list"): (),
    ("dlq", "peek"): (TOPIC,),
    ("dlq", "redrive"): (TOPIC,),
    ("dlq", "purge"): (TOPIC, "--yes"),
    ("dlq", "history"): (TOPIC,),
    ("tx", "list"): ("--open",),
    ("tx", "describe"): (PRODUCER,),
    ("tx", "abort"): (PRODUCER, "--force"),
    ("schema", "register"): (SUBJECT, "SCHEMA"),
    ("schema", "list"): (),
    ("schema", "get"): (SUBJECT,),
    ("schema", "check"): (SUBJECT, "SCHEMA"),
    ("schema", "evolve-check"): ("SCHEMA", "SCHEMA"),
    ("schema", "validate"): (SUBJECT, "SCHEMA", "--whole"),
    ("schema", "config"): (SUBJECT, "FULL"),
    ("schema", "delete"): (SUBJECT, "--force"),
    ("trace", "list"): (),
    ("trace", "search"): ("--topic", TOPIC),
    ("trace", "stats"): (),
    ("pipeline", "list"): (),
    ("top",): ("--once", "-i", "100ms"),
    ("bench",): ("-n", "1000", "--singles", "5"),
    ("doctor",): (),
    ("topic", "delete"): (TOPIC, "--force"),
    ("config", "set-context"): ("mine", "--server", "127.0.0.1:7070"),
    ("config", "use-context"): ("mine",),
    ("config", "get-contexts"): (),
    ("config", "view"): (),
    ("config", "show"): (),
    ("config", "delete-context"): ("mine",),
    ("completion",): ("bash",),
    ("version",): (),
    ("verify",): ("DATA",),
    ("serve",): ("--data", "FILE"),
}
"""An example of every command, in an order in which they work."""

ELSEWHERE = {
    ("trace", "get"),
    ("trace", "tail"),
    *(
        ("pipeline", name)
        for name in ("plan", "run", "status", "stop", "reset", "compact", "replay", "redrive")
    ),
    ("pipeline", "new"),
    ("pipeline", "dlq-report"),
    ("pipeline", "trace-report"),
    *(("cluster", name) for name in ("info", "health", "nodes", "rebalance", "remove")),
    *(
        ("cluster", "reassign", name)
        for name in ("start", "list", "status", "pause", "resume", "cancel")
    ),
    *(("key", name) for name in ("make", "list", "rotate", "revoke")),
    *(("acl", name) for name in ("add", "list", "remove", "test")),
    ("whoami",),
    *(("tls", name) for name in ("make", "show", "check")),
}
"""What needs Spark, a message with a story, a cluster, keys or certificates: those have tests of
their own."""

SERVE = ("serve",)


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every command that does something."""
    children = getattr(command, "commands", None)
    if not children:
        yield path
        return
    for name, child in children.items():
        yield from leaves(child, (*path, name))


def test_there_is_an_example_of_every_command() -> None:
    """A command without a test against the server cannot be added."""
    assert set(leaves(typer.main.get_command(app))) == set(EXAMPLES) | ELSEWHERE


def join(broker: BrokerProcess) -> None:
    """Make a group for the commands that want one."""
    body = {"client_id": "reader", "topics": [TOPIC]}
    httpx.post(
        f"http://{broker.http}/groups/{GROUP}/join", json=body, timeout=SECONDS_MAX
    ).raise_for_status()


def test_every_command_matches_the_server(cli: Run, broker: BrokerProcess, home: Path) -> None:
    """Each example works, in JSON and in YAML, and both say the same thing."""
    (home / "meta").mkdir()
    (home / "file").write_text("")
    (home / "schema.json").write_text('{"type": "object"}')
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        for path, arguments in EXAMPLES.items():
            if path == ("group", "list"):
                join(broker)
            if path == ("dlq", "list"):
                cli("topic", "create", f"{TOPIC}.dlq", "--if-not-exists")
            if path == ("tx", "list"):
                body = {"transactional_id": PRODUCER}
                httpx.post(
                    f"http://{broker.http}/producers/init", json=body, timeout=SECONDS_MAX
                ).raise_for_status()
            placed = [
                {"DATA": ".", "FILE": "file", "SCHEMA": "schema.json"}.get(one, one)
                for one in arguments
            ]
            outcome = cli(*path, *placed, "-o", output)

            assert outcome.code == (1 if path == SERVE else 0), f"{path}: {outcome.err}"
            if path != SERVE:
                assert read(outcome.out.removeprefix("---\n")) is not None, path
    assert broker.process.poll() is None


@pytest.mark.parametrize("path", sorted({*EXAMPLES, *ELSEWHERE}), ids=" ".join)
def test_every_command_explains_itself(run: Run, path: tuple[str, ...]) -> None:
    """--help says what it does and that -o exists."""
    outcome = run(*path, "--help")

    assert outcome.code == 0
    assert f"Usage: goqueue {' '.join(path)}" in outcome.out
    assert "--output" in outcome.out


def test_no_arguments_show_the_help(run: Run) -> None:
    """Bare goqueue lists the commands and the exit codes."""
    outcome = run()

    assert outcome.code == 2
    assert outcome.err == ""
    assert "Exit codes: 0 done" in outcome.out
    assert "serve" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("topi", "list"), "no such command 'topi'. Did you mean 'topic', 'top'?"),
        (("topic", "create"), "missing argument 'name'"),
        (("topic", "list", "--colour"), "no such option: --colour"),
        (("topic", "list", "-o", "xml"), "xml"),
        (("topic", "list", "--timeout", "soon"), "--timeout: 'soon' is not a duration"),
        (("topic", "list", "--timeout", "0"), "--timeout: 0 is not longer than nothing"),
        (("topic", "list", "-s", "http://localhost:8080"), "is an HTTP address"),
        (("topic", "list", "-s", "a b:1"), "is not an address"),
        (("serve", "--set", "x"), "write it as key=value"),
    ],
)
def test_what_is_not_understood_is_usage(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    """Exit code 2, one line, and the way to the help."""
    outcome = run(*arguments)

    assert outcome.code == 2
    assert outcome.out == ""
    assert message in outcome.err
    assert outcome.err.startswith("error: ")
    assert "(usage)" in outcome.err


def test_usage_errors_are_json_too(run: Run) -> None:
    """A script that asked for JSON gets JSON, whatever went wrong."""
    outcome = run("topic", "creat", "-o", "json")

    assert outcome.error["code"] == "usage"
    assert outcome.error["hint"] == "--help shows what there is"


def test_nobody_there_is_exit_code_three(run: Run) -> None:
    """At once, not after a timeout, and with the address that was tried."""
    outcome = run("topic", "list", "-s", "127.0.0.1:1")

    assert outcome.code == 3
    assert outcome.err == (
        "error: cannot reach a broker at 127.0.0.1:1: connection refused (connection_lost)\n"
        "hint: is it running? `goqueue serve` starts a broker, --server names another one\n"
    )


def test_bench_measures_a_broker_of_its_own(run: Run) -> None:
    """--embedded needs no broker and leaves nothing behind."""
    report = run("bench", "--embedded", "-n", "2000", "--singles", "10", "-o", "json").data

    assert [rate["work"].partition(",")[0] for rate in report["rates"]] == [
        "publish",
        "read",
        "read",
    ]
    assert all(rate["messages_per_second"] > 0 for rate in report["rates"])
    assert list(report["publish_latency_ms"]) == ["p50", "p90", "p99", "max"]


def test_verify_prints_what_it_found(run: Run, home: Path) -> None:
    """A table of problems and exit code 1; a directory that is none is an error."""
    (home / "data/logs/stranger/0").mkdir(parents=True)
    found = run("verify", "data")
    nothing = run("verify", "nowhere")
    empty = run("verify", ".")

    assert found.code == 1
    assert found.out.splitlines()[0].split() == ["KIND", "FILE", "FINDING"]
    assert "meta/catalog.journal  is missing, so no topic below logs is known" in found.out
    assert "data: 1 problem; checked 0 messages" in found.err
    assert nothing.err == "error: nowhere is not a directory (not_a_data_dir)\n"
    assert "neither meta nor logs" in empty.err


def test_doctor_looks_at_everything(cli: Run, broker: BrokerProcess) -> None:
    """Each check has a state; a missing broker is a warning, not a failure."""
    checks = {one["check"]: one for one in cli("doctor", "-o", "json").data}
    without = {one["check"]: one for one in cli("doctor", "-o", "json", "-s", "127.0.0.1:1").data}

    assert set(checks) >= {"python", "packages", "fdatasync", "free space", "open files", "clock"}
    assert checks["broker"]["state"] == "ok"
    assert broker.native in checks["broker"]["found"]
    assert without["broker"]["state"] == "warn"
    assert "`goqueue serve`" in without["broker"]["advice"]
    assert "fdatasync" in cli("doctor").out


BRACKETS = re.compile(r"\\?\[[^\[\]]*\]")


def commands_below(
    command: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from commands_below(one, (*path, name))


def test_help_keeps_its_brackets(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in brackets in a help text is shown, not taken for the name of a style."""
    monkeypatch.setenv("COLUMNS", "400")
    seen = []
    for path, command in commands_below(typer.main.get_command(app)):
        texts = [command.help or "", *(getattr(one, "help", "") or "" for one in command.params)]
        pieces = [piece.lstrip("\\") for text in texts for piece in BRACKETS.findall(text)]
        shown = run(*path, "--help").out if pieces else ""
        seen += pieces

        assert [piece for piece in pieces if piece not in shown] == []
    assert {"[spark]", "[./pipelines-state]", "[4]"} <= set(seen)
