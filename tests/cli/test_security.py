"""``goqueue key``, ``acl`` and ``whoami``, against a real broker that asks for keys."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import goqueue
from goqueue import aio
from goqueue.base.errors import (
    CredentialExpiredError,
    ForbiddenError,
    GoQueueError,
    UnauthenticatedError,
)
from tests.cli.running import BrokerProcess, Outcome, Run

ROOT = "gq_" + "c0ffee42" * 8


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("guarded")
    key = directory / "root.key"
    key.write_text(ROOT + "\n")
    key.chmod(0o600)
    environment = {"GOQUEUE_AUTH_ENABLED": "true", "GOQUEUE_API_ROOT_KEY_FILE": str(key)}
    running = BrokerProcess(directory / "data", "--log-level", "debug", **environment)
    yield running
    assert running.stop() == 0
    # Nothing of what was shown or made is in the log, at its most talkative.
    log = str(running.lines)
    assert "credential refused" in log
    assert "gq_" not in log


@pytest.fixture
def admin(guarded: BrokerProcess, run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("GOQUEUE_SERVER", guarded.native)
    monkeypatch.setenv("GOQUEUE_API_KEY", ROOT)
    return run


def test_a_key_from_its_making_to_its_end(
    admin: Run, guarded: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made once, listed without its secret, used within its role, rotated, revoked."""
    assert admin("topic", "create", "orders", "-p", "1").code == 0
    made = admin("key", "make", "shop", "-r", "producer", "--scope", "topic:orders", "-o", "json")
    secret, key_id = made.data["key"], made.data["id"]
    listed = admin("key", "list")
    assert key_id in listed.out
    assert secret not in listed.out + admin("key", "list", "-o", "json").out
    with goqueue.connect(guarded.native, api_key=secret) as client:
        assert client.whoami().principal == key_id
        with client.producer("orders") as producer:
            producer.publish(b"one")
        with pytest.raises(ForbiddenError, match="needs create topic 'more'"):
            client.create_topic("more")
        with pytest.raises(ForbiddenError, match="needs read topic 'orders'"):
            list(client.read("orders", end=1))
        rotated = admin("key", "rotate", key_id, "--overlap", "0s", "-o", "json").data["key"]
        with pytest.raises(GoQueueError):
            client.whoami()
    monkeypatch.setenv("GOQUEUE_API_KEY", rotated)
    assert f"principal      {key_id}" in admin("whoami").out
    monkeypatch.setenv("GOQUEUE_API_KEY", ROOT)
    assert admin("key", "revoke", key_id, "-f").out == f"{key_id} is revoked\n"
    with pytest.raises(CredentialExpiredError):
        goqueue.connect(guarded.native, api_key=rotated)


def test_rules_are_added_explained_and_removed(admin: Run) -> None:
    """An operator sees which rule decides before somebody is locked out."""
    key_id = admin("key", "make", "reader", "-o", "json").data["id"]
    ask = ("acl", "test", key_id, "read", "topic", "payments")
    assert admin(*ask).out == "refused: no role and no rule allows it\n"
    allow = admin("acl", "add", key_id, "read", "topic", "pay*", "-o", "json").data["id"]
    assert admin(*ask).out.startswith(f"allowed: allowed by rule {allow}\n")
    deny = admin("acl", "add", "*", "all", "*", "payments", "--deny", "-o", "json").data["id"]
    assert admin(*ask).out.startswith(f"refused: denied by rule {deny}\n")
    assert f"rule {deny} is removed" in admin("acl", "remove", str(deny)).out
    again: Outcome = admin("acl", "remove", str(deny))
    assert (again.code, "acl_not_found" in again.err) == (1, True)
    assert "pay*" in admin("acl", "list").out


@pytest.mark.parametrize("key", [None, "gq_" + "0" * 64])
def test_without_a_valid_key_nothing_is_answered(
    guarded: BrokerProcess, run: Run, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program, the SDK and its asynchronous twin say why, at once."""
    monkeypatch.setenv("GOQUEUE_API_KEY", key or "")
    refused = run("topic", "list", "--server", guarded.native)
    assert refused.code == 1
    assert "unauthenticated" in refused.err
    with pytest.raises(UnauthenticatedError):
        goqueue.connect(guarded.native, api_key=key)

    async def scenario() -> None:
        async with await aio.connect(guarded.native, api_key=key) as client:
            await client.list_topics()

    with pytest.raises(UnauthenticatedError):
        asyncio.run(scenario())


def test_an_embedded_broker_needs_no_key(tmp_path: Path) -> None:
    """Who opens the files is their owner; ``goqueue.open`` works as before."""
    with goqueue.open(tmp_path / "data") as client:
        client.create_topic("orders", partitions=1)
        assert client.whoami().principal == "embedded"
        assert client.make_key("later", roles=["admin"]).secret.startswith("gq_")


def test_the_first_admin_is_made_with_the_bootstrap_key(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request that ends its own credential is answered: its secret is told only this once."""
    broker = BrokerProcess(tmp_path / "data", GOQUEUE_AUTH_ENABLED="true")
    bootstrap = tmp_path / "data" / "meta" / "bootstrap.key"
    try:
        monkeypatch.setenv("GOQUEUE_SERVER", broker.native)
        monkeypatch.setenv("GOQUEUE_API_KEY", bootstrap.read_text().strip())
        made = run("key", "make", "ops", "--role", "admin", "-o", "json")
        assert made.code == 0, made.err
        monkeypatch.setenv("GOQUEUE_API_KEY", made.data["key"])
        known = run("whoami", "-o", "json")
        rotated = run("key", "rotate", made.data["id"], "--overlap", "0s", "-o", "json")
        assert rotated.code == 0, rotated.err
        monkeypatch.setenv("GOQUEUE_API_KEY", rotated.data["key"])
        revoked = run("key", "revoke", made.data["id"], "--force")
    finally:
        assert broker.stop() == 0

    assert known.data["principal"] == made.data["id"]
    assert not bootstrap.exists()
    assert revoked.code == 0, revoked.err
