"""Flags over environment over file over defaults, and every problem at once."""

from pathlib import Path

import pytest

from goqueue.base.errors import InvalidConfigError
from goqueue.base.units import MiB
from goqueue.config.load import Loaded, load_config


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test begins in an empty directory, so that no goqueue.yaml is found by chance."""
    monkeypatch.chdir(tmp_path)


def load(
    text: str | None = None,
    *,
    environment: dict[str, str] | None = None,
    assignments: dict[str, str] | None = None,
    **flags: str,
) -> Loaded:
    file = None
    if text is not None:
        file = Path("settings.yaml")
        file.write_text(text)
    return load_config(
        flags=flags, environment=environment or {}, file=file, assignments=assignments
    )


def problems(*args: str, **kwargs: object) -> list[str]:
    with pytest.raises(InvalidConfigError) as caught:
        load(*args, **kwargs)  # type: ignore[arg-type]
    return caught.value.message.splitlines()


def test_nothing_said_means_the_defaults() -> None:
    """The contract's defaults hold where nobody says anything else."""
    loaded = load()

    assert loaded.config.data_dir == "./data"
    assert loaded.config.node_id == "node-1"
    assert loaded.config.http_listener == "127.0.0.1:8080"
    assert loaded.config.native_listener == "127.0.0.1:7070"
    assert set(loaded.sources.values()) == {"default"}
    assert loaded.warnings == ()


def test_the_nearer_source_wins() -> None:
    """A flag beats the environment, the environment the file, the file the default."""
    text = "node_id: from-file\nlog: {level: error}\ndata_dir: from-file\n"
    environment = {"GOQUEUE_BROKER_NODEID": "from-variable", "GOQUEUE_BROKER_DATADIR": "variable"}
    loaded = load(text, environment=environment, data_dir="from-flag")

    assert loaded.config.data_dir == "from-flag"
    assert loaded.config.node_id == "from-variable"
    assert loaded.config.log_level == "error"
    assert loaded.sources["data_dir"] == "flag --data"
    assert loaded.sources["node_id"] == "environment GOQUEUE_BROKER_NODEID"
    assert loaded.sources["log_level"] == "file settings.yaml"
    assert loaded.sources["http_listener"] == "default"


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("GOQUEUE_BROKER_DATADIR", "data_dir"),
        ("GOQUEUE_BROKER_NODEID", "node_id"),
        ("GOQUEUE_LISTENERS_HTTP", "http_listener"),
        ("GOQUEUE_LISTENERS_NATIVE", "native_listener"),
    ],
)
def test_the_variables_of_the_contract_are_read(name: str, field: str) -> None:
    """The names operators know from the contract mean what they meant."""
    value = "127.0.0.9:9" if "LISTENERS" in name else "something"
    loaded = load(environment={name: value})

    assert getattr(loaded.config, field) == value


def test_a_file_is_found_in_its_three_places(tmp_path: Path) -> None:
    """--config beats GOQUEUE_CONFIG, which beats ./goqueue.yaml."""
    (tmp_path / "goqueue.yaml").write_text("node_id: here")
    (tmp_path / "named.yaml").write_text("node_id: named")

    assert load().config.node_id == "here"
    assert load(environment={"GOQUEUE_CONFIG": "named.yaml"}).config.node_id == "named"
    assert load("node_id: flag", environment={"GOQUEUE_CONFIG": "no"}).config.node_id == "flag"


def test_sizes_and_durations_are_read_as_people_write_them() -> None:
    """Units may be spelled out; plain numbers are bytes and milliseconds."""
    text = "limits: {http_body: 2MiB, http_publish_body: 4096}\nshutdown_timeout: 1m30s\n"
    loaded = load(text, assignments={"storage.maintenance_interval": "500ms"})

    assert loaded.config.http_body_bytes_max == 2 * MiB
    assert loaded.config.http_publish_body_bytes_max == 4096
    assert loaded.config.shutdown_timeout_ms == 90_000
    assert loaded.config.maintenance_interval_ms == 500
    assert loaded.sources["maintenance_interval_ms"] == "flag --set"


def test_every_problem_is_listed_at_once() -> None:
    """An operator mends the whole configuration in one go."""
    text = "limits: {connections: 0}\nlistners: {http: ':80'}\n"
    lines = problems(
        text, environment={"GOQUEUE_BROKER_NODEID": "a b", "GOQUEUE_LOG_LEVEL": "loud"}, data_dir=""
    )

    assert lines == [
        "the configuration has 5 problems:",
        "  1. listners.http: no such setting; did you mean listeners.http? (file settings.yaml)",
        "  2. data_dir: must not be empty (flag --data)",
        "  3. node_id: must not contain whitespace (environment GOQUEUE_BROKER_NODEID)",
        (
            "  4. log.level: 'loud' is not one of debug, info, warning, error"
            " (environment GOQUEUE_LOG_LEVEL)"
        ),
        "  5. limits.connections: 0 is not between 1 and 1000000 (file settings.yaml)",
    ]


def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """The broker says so before it tries."""
    (tmp_path / "taken").write_text("")

    assert problems(data_dir="taken")[1:] == [
        '  1. data_dir: "taken" exists but is not a directory (flag --data)'
    ]
    assert "cannot be made" in problems(data_dir="taken/below")[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n- b", "must hold settings such as data_dir: ./data"),
        ("a: [", "is not YAML: line 1"),
        ("node_id: [x]", "node_id: expected text, got a list"),
        ("node_id: true", "node_id: expected text, got true or false"),
        ("node_id:", "node_id: expected text, got nothing"),
        ("listeners: {http: 8080}", "'8080' is not an address"),
        ("listeners: {http: 'a:99999'}", "'a:99999' is not an address"),
        ("shutdown_timeout: soon", "'soon' is not a duration"),
        ("shutdown_timeout: 2h", "2h0m0s is not between 0s and 1h0m0s"),
        ("limits: {http_body: 12}", "12 B is not between 1.0 KiB and 64.0 MiB"),
        ("storage: {sync_threads: many}", "'many' is not a whole number"),
        ('node_id: "a\\x1b[2J"', "must not contain control characters"),
    ],
)
def test_a_bad_file_is_described(text: str, expected: str) -> None:
    """What is wrong is said with the name of the setting and what was expected."""
    assert expected in "\n".join(problems(text))


def test_a_missing_file_is_a_problem_only_if_it_was_named() -> None:
    """A file that was asked for must be there."""
    lines = problems(environment={"GOQUEUE_CONFIG": "nowhere.yaml"})

    assert lines[1] == "  1. file nowhere.yaml: cannot be read: No such file or directory"


def test_two_listeners_cannot_share_an_address() -> None:
    """Port 0 is no address yet, so there it is fine."""
    lines = problems(native_listener="127.0.0.1:9", http_listener="127.0.0.1:9")

    assert lines[1:] == ["  1. listeners.http: 127.0.0.1:9 is also listeners.native (flag --http)"]
    assert load(native_listener="127.0.0.1:0", http_listener="127.0.0.1:0").warnings == ()


def test_strange_variables_are_pointed_out() -> None:
    """What would surprise somebody later is said at once, and stops nobody."""
    environment = {
        "GOQUEUE_BROKER_DATA_DIR": "x",
        "GOQUEUE_LISTENERS_GRPC": "127.0.0.1:9000",
        "GOQUEUE_CLUSTER_ENABLE": "true",
        "GOQUEUE_SERVER": "elsewhere:7070",
    }
    loaded = load(environment=environment)

    assert loaded.warnings == (
        (
            "GOQUEUE_BROKER_DATA_DIR is set, but there is no such setting;"
            " did you mean GOQUEUE_BROKER_DATADIR?"
        ),
        (
            "GOQUEUE_CLUSTER_ENABLE is set, but there is no such setting;"
            " did you mean GOQUEUE_CLUSTER_ENABLED?"
        ),
        "GOQUEUE_LISTENERS_GRPC is set, but has no effect in this version",
    )


@pytest.mark.parametrize(
    "listener",
    [
        ":8080",
        "0.0.0.0:8080",
        "[::]:8080",
        "10.0.0.1:8080",
        "broker.example:8080",
        "127.0.0.1.example.com:8080",
        "[::ffff:10.0.0.1]:8080",
    ],
)
def test_a_listener_beyond_loopback_is_refused(listener: str) -> None:
    """P12: nobody is asked who they are, so nobody else can be let in; nothing overrides that."""
    for key, flag in (("native", "native_listener"), ("http", "http_listener")):
        lines = problems(**{flag: listener})

        assert len(lines) == 2
        assert f"listeners.{key}: {listener} can be reached from other machines" in lines[1]
        assert f"(flag --{key})" in lines[1]


def test_both_listeners_are_among_the_other_problems() -> None:
    """An operator sees all of it at once, with the source of each."""
    lines = problems(
        "listeners: {http: '0.0.0.0:80'}\nnode_id: a b\n",
        environment={"GOQUEUE_LISTENERS_NATIVE": ":7070"},
    )

    assert lines[0] == "the configuration has 3 problems:"
    assert "environment GOQUEUE_LISTENERS_NATIVE" in lines[2]
    assert "file settings.yaml" in lines[3]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GOQUEUE_AUTH_JWT_JWKS", "https://issuer.example/keys"),
        ("GOQUEUE_AUDIT_ENABLED", "on"),
        ("GOQUEUE_ENCRYPTION_KEY_FILE", "/etc/broker.key"),
    ],
)
def test_who_asks_for_a_lock_does_not_get_a_door(name: str, value: str) -> None:
    """P12: protection that this version does not have is a problem, also on loopback."""
    lines = problems(environment={name: value})

    assert lines[1].startswith(f"  1. {name} is set, but this version has no such protection")


def test_a_lock_that_is_switched_off_is_not_asked_for() -> None:
    """Nothing is missing where nothing was wanted."""
    environment = {"GOQUEUE_AUTH_ENABLED": "false", "GOQUEUE_TLS_ENABLED": "", "GOQUEUE_ACL_X": "0"}

    assert load(environment=environment).warnings == ()
