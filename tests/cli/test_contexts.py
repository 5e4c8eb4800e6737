"""Which broker a command asks: flag, environment, context, default."""

import socket
from pathlib import Path

import pytest
import yaml

from goqueue.base.errors import ConnectionLostError
from goqueue.cli.contexts import load_contexts
from goqueue.cli.session import Common, Session, knock, native_address, native_addresses
from tests.cli.running import Run


def session(program: str = "goqueue", *, environment: dict[str, str], **given: str) -> Session:
    return Session(Common(**given), environment, program)  # type: ignore[arg-type]


@pytest.fixture
def _contexts(run: Run) -> None:
    run("config", "set-context", "prod", "--server", "prod:1", "--timeout", "5s")
    run("config", "set-context", "test", "--server", "test:2", "--api-key", "secret")
    run("config", "use-context", "test")


@pytest.mark.usefixtures("_contexts")
def test_the_nearer_choice_wins() -> None:
    """Flag over environment over context over default, and -c is a flag."""
    server = {"GOQUEUE_SERVER": "variable:3"}
    context = {"GOQUEUE_CONTEXT": "prod"}

    assert session(environment=server, server="flag:4").address == "flag:4"
    assert session(environment=server, context="prod").address == "prod:1"
    assert session(environment=server | context).address == "variable:3"
    assert session(environment=context).address == "prod:1"
    assert session(environment={}).address == "test:2"
    assert session(environment=context).timeout_ms == 5_000
    assert session(environment=context, timeout="2").timeout_ms == 2_000
    assert session(environment={}).timeout_ms == 30_000


@pytest.mark.usefixtures("home")
def test_without_a_file_there_is_the_local_broker() -> None:
    """A newcomer configures nothing."""
    assert session(environment={}).address == "127.0.0.1:7070"


@pytest.mark.usefixtures("home")
def test_the_administrators_tool_has_variables_of_its_own() -> None:
    """GOQUEUE_ADMIN_SERVER counts under that name only."""
    environment = {"GOQUEUE_ADMIN_SERVER": "admin:1", "GOQUEUE_SERVER": "user:2"}

    assert session("goqueue-admin", environment=environment).address == "admin:1"
    assert session("goqueue-cli", environment=environment).address == "user:2"


@pytest.mark.usefixtures("_contexts")
def test_the_file_is_what_the_contract_says(home: Path, run: Run) -> None:
    """current-context and contexts, for the owner's eyes only, and keys hidden when shown."""
    path = home / ".goqueue/config.yaml"
    content = yaml.safe_load(path.read_text())
    view = run("config", "view").out
    listed = run("config", "get-contexts")

    assert content["current-context"] == "test"
    assert content["contexts"]["test"] == {"server": "test:2", "api-key": "secret"}
    assert content["contexts"]["prod"] == {"server": "prod:1", "timeout": "5s"}
    assert path.stat().st_mode & 0o077 == 0
    assert "secret" not in view
    assert "secret" not in listed.out
    assert "*        test   test:2" in listed.out


@pytest.mark.usefixtures("_contexts")
def test_contexts_change_and_go(run: Run) -> None:
    """Changing one thing keeps the others; deleting the current one falls back."""
    run("config", "set-context", "prod", "--timeout", "9")
    changed = load_contexts().targets["prod"]
    run("config", "delete-context", "test")
    left = load_contexts()
    missing = run("config", "use-context", "test")

    assert (changed.server, changed.timeout) == ("prod:1", "9")
    assert set(left.targets) == {"local", "prod"}
    assert left.current == "local"
    assert missing.code == 1
    assert "there is no context 'test'; there are: local, prod" in missing.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("set-context", "x"), "nothing to set"),
        (("set-context", "x", "--server", "http://localhost:8080"), "is an HTTP address"),
        (("set-context", "x", "--server", "::"), "is not an address"),
        (("set-context", "x", "--timeout", "soon"), "is not a duration"),
    ],
)
def test_a_context_that_could_not_work_is_refused(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    """Nothing is saved that fails later."""
    outcome = run("config", *arguments)

    assert outcome.code == 2
    assert message in outcome.err
    assert "x" not in load_contexts().targets


@pytest.mark.parametrize("text", ["- a", "contexts: 7", "contexts: {a: 7}", "a: ["])
def test_a_broken_file_is_named(run: Run, home: Path, text: str) -> None:
    """The person is told which file to mend."""
    (home / ".goqueue").mkdir()
    (home / ".goqueue/config.yaml").write_text(text)
    outcome = run("topic", "list")

    assert outcome.code == 1
    assert ".goqueue/config.yaml cannot be used" in outcome.err


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("host", "host:7070"),
        ("host:1", "host:1"),
        ("goqueue://host:1/", "host:1"),
        ("[::1]:5", "[::1]:5"),
        (":9", "127.0.0.1:9"),
    ],
)
def test_servers_are_read_as_people_write_them(server: str, address: str) -> None:
    """With or without scheme, host or port."""
    assert native_address(server) == address


def test_several_nodes_of_a_cluster_are_named_with_commas() -> None:
    """As ``goqueue.connect`` takes them; each as one is written."""
    assert native_addresses("a, goqueue://b:7171/,:7272") == "a:7070,b:7171,127.0.0.1:7272"


def test_one_node_that_listens_is_enough() -> None:
    """Where none does, all are named."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        knock(f"127.0.0.1:1,127.0.0.1:{listener.getsockname()[1]}", 5)
    with pytest.raises(ConnectionLostError, match=r"127.0.0.1:1.*127.0.0.1:2"):
        knock("127.0.0.1:1,127.0.0.1:2", 5)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "given",
    [("--api-key-file", "key.txt"), ("--api-key-file", "-"), ("--api-key", "-")],
    ids=["file", "standard input", "instead of the key"],
)
def test_a_key_need_not_be_on_the_command_line(
    run: Run, given: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes from a file or a pipe; what is around it does not belong to it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key.txt").write_text("gq_secret\n")
    command = ("config", "set-context", "prod", "--server", "prod:1", *given)
    done = run(*command, stdin=b" gq_secret\n")

    assert (done.code, done.err) == (0, "")
    assert load_contexts().targets["prod"].api_key == "gq_secret"


@pytest.mark.usefixtures("home")
def test_a_key_on_the_command_line_is_warned_of(run: Run) -> None:
    """It is taken, and never shown again."""
    done = run("config", "set-context", "prod", "--api-key", "gq_secret")

    assert done.code == 0
    assert done.err.startswith("warning: a key on the command line is in the history of the shell")
    assert "gq_secret" not in done.err + done.out


@pytest.mark.usefixtures("home")
def test_what_holds_no_key_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty or missing file, a book, two places at once: nothing is saved."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "book").write_text("x" * 100_000)
    (tmp_path / "lines").write_text("one\ntwo\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    tried = [
        run("config", "set-context", "prod", "--api-key-file", name)
        for name in ("empty", "book", "lines", "bytes", "missing")
    ]
    tried.append(run("config", "set-context", "prod", "--api-key-file", "x", "--api-key", "y"))

    assert [one.code for one in tried] == [2] * 6
    assert "prod" not in load_contexts().targets
