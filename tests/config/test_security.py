"""A broker that others can reach and that asks nobody who they are does not start."""

from pathlib import Path
from typing import Any

import pytest

from goqueue.base.errors import InvalidConfigError
from goqueue.base.secret import Secret
from goqueue.config.explain import explain
from goqueue.config.load import Loaded, load_config

KEY = "gq_" + "c0ffee00" * 8
AUTH: dict[str, Any] = {"GOQUEUE_AUTH_ENABLED": "true"}


def load(assignments: dict[str, str] | None = None, **environment: Any) -> Loaded:
    return load_config(flags={}, environment=environment, assignments=assignments)


def problem(assignments: dict[str, str] | None = None, **environment: Any) -> str:
    with pytest.raises(InvalidConfigError) as caught:
        load(assignments, **environment)
    assert KEY not in str(caught.value)
    return str(caught.value)


def key_file(directory: Path, content: str = KEY + "\n", mode: int = 0o600) -> str:
    path = directory / "root.key"
    path.write_text(content)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("name", ["GOQUEUE_LISTENERS_NATIVE", "GOQUEUE_LISTENERS_HTTP"])
def test_a_listener_for_others_needs_auth_and_a_proxy_that_speaks_tls(name: str) -> None:
    """P12: neither is optional, and nothing overrides that."""
    door: dict[str, Any] = {name: "0.0.0.0:9999"}

    assert "without auth.enabled the broker asks nobody" in problem(**door)
    assert "without auth.enabled" in problem(**door, GOQUEUE_TLS_BEHIND_PROXY="true")
    assert "keys would travel in the clear" in problem(**door, **AUTH)
    assert load(**door, **AUTH, GOQUEUE_TLS_BEHIND_PROXY="true").config.auth_enabled


def test_auth_is_off_by_default_on_loopback_and_may_be_on() -> None:
    """A developer is asked for nothing; who wants it may have it on one machine, too."""
    assert not load().config.auth_enabled
    assert load(**AUTH).config.auth_enabled


@pytest.mark.parametrize("given", [{"GOQUEUE_API_ROOT_KEY": KEY}, {"GOQUEUE_ACL_ENABLED": "true"}])
def test_a_lock_without_a_door_is_a_problem(given: dict[str, Any]) -> None:
    """Who sets a key or asks for rules believes that they count."""
    assert "without auth.enabled nobody is asked for anything" in problem(**given)
    assert load(**given, **AUTH).config.auth_enabled


def test_the_root_key_comes_from_a_file_only_its_owner_reads(tmp_path: Path) -> None:
    """A file that others can read is refused, and so is one without a key."""
    found = load(**AUTH, GOQUEUE_API_ROOT_KEY_FILE=key_file(tmp_path)).config
    assert found.api_root_key.reveal() == KEY
    for content, mode, complaint in (
        (KEY, 0o640, "can be read by others; chmod 600"),
        (KEY, 0o604, "can be read by others"),
        ("", 0o600, "is empty"),
        ("short", 0o600, "has 5 characters"),
        ("k" * 5_000, 0o600, "more than 4096 bytes"),
        ("k" * 40 + " k", 0o600, "without spaces"),
        ("\xe9" * 40, 0o600, "printable ASCII"),
    ):
        path = key_file(tmp_path, content, mode)
        assert complaint in problem(**AUTH, GOQUEUE_API_ROOT_KEY_FILE=path), content
    missing = str(tmp_path / "missing")
    assert "cannot be read" in problem(**AUTH, GOQUEUE_API_ROOT_KEY_FILE=missing)


def test_a_key_in_the_settings_needs_a_private_file(tmp_path: Path) -> None:
    """The same holds for the file of settings, if the key is written there."""
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"auth: {{enabled: true, root_key: {KEY}}}\n")
    settings.chmod(0o644)
    with pytest.raises(InvalidConfigError, match="holds a secret and can be read by others"):
        load_config(flags={}, environment={}, file=settings)
    settings.chmod(0o600)
    assert load_config(flags={}, environment={}, file=settings).config.api_root_key == Secret(KEY)
    settings.write_text(f"auth: {{enabled: true, root_key_file: {key_file(tmp_path)}}}\n")
    settings.chmod(0o644)
    assert load_config(flags={}, environment={}, file=settings).config.api_root_key == Secret(KEY)


def test_a_key_is_not_taken_from_a_command_line() -> None:
    """It would be in the history of the shell, and everybody could see it run."""
    told = problem({"auth.root_key": KEY}, **AUTH)
    assert "a command line is seen by others" in told
    assert "GOQUEUE_API_ROOT_KEY_FILE" in told


def test_a_secret_is_masked_wherever_it_is_shown() -> None:
    """Also where nobody thought of it: in a repr, a format, a list of all settings."""
    loaded = load(**AUTH, GOQUEUE_API_ROOT_KEY=KEY)
    shown = [repr(loaded), f"{loaded.config.api_root_key}", str(explain(loaded))]
    shown += [str(loaded.config), f"{loaded.config!r:>9}", str(loaded.config.api_root_key)]

    assert all(KEY not in text for text in shown)
    assert "***" in repr(loaded.config.api_root_key)
    (one,) = [one for one in explain(loaded) if one.key == "auth.root_key"]
    assert (one.shown, one.value) == ("***", "***")


def test_nodes_with_auth_need_the_key_of_the_cluster() -> None:
    """Without it any program on the machine could pass on requests in the name of others."""
    nodes: dict[str, Any] = {
        "GOQUEUE_CLUSTER_ENABLED": "true",
        "GOQUEUE_CLUSTER_PEERS": "node-1@127.0.0.1:7001,node-2@127.0.0.1:7002",
    }
    assert "cluster.key_file: with auth.enabled" in problem(**nodes, **AUTH)
