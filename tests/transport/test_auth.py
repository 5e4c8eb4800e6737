"""Credentials as clients meet them: shown, wrong, rotated, revoked under a poll that waits."""

import asyncio
import contextlib
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from goqueue.base.errors import StorageFailedError
from goqueue.base.secret import Secret
from goqueue.config.model import BrokerConfig
from goqueue.core.security import commands
from goqueue.core.security.keys import KeyTerms, digest_of
from goqueue.core.security.rule import Rule
from goqueue.runtime.broker import Broker
from goqueue.runtime.security import BOOTSTRAP_PATH, SECURITY_PATH
from goqueue.testing.disk import CrashError, MemoryDisk
from goqueue.wire import calls
from goqueue.wire.packet import Operation
from tests.transport.http import running as over_http
from tests.transport.native import running as over_native

ROOT = "r" * 40
AUTH: dict[str, Any] = {"auth_enabled": True, "api_root_key": Secret(ROOT)}
ADMIN = {"X-API-Key": ROOT}


class Keyed(over_http.Running):
    """A broker that asks for keys."""

    def make(self, *roles: str, **fields: object) -> tuple[str, dict[str, str]]:
        body = {"name": "a key", "roles": list(roles), **fields}
        reply = self.client.post("/admin/keys", json=body, headers=ADMIN)
        assert reply.status_code == 201, reply.text
        made = reply.json()
        return made["id"], {"Authorization": f"Bearer {made['key']}"}

    def create_topic(self, name: str = "orders") -> None:
        reply = self.client.post("/topics", json={"name": name}, headers=ADMIN)
        assert reply.status_code == 201, reply.text

    def join(self, headers: dict[str, str]) -> str:
        reply = self.client.post(
            "/groups/g/join", json={"client_id": "c", "topics": ["orders"]}, headers=headers
        )
        assert reply.status_code == 200, reply.text
        return str(reply.json()["member_id"])


def code_of(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, str(reply.json().get("code", ""))


def test_keys_over_http_as_the_contract_says(tmp_path: Path) -> None:
    """Made, listed without the secret, rotated with an overlap, revoked, unknown."""
    with Keyed(tmp_path / "data", **AUTH) as server:
        client = server.client
        key_id, headers = server.make("readonly", expires_in="1h", metadata={"team": "a"})
        secret = headers["Authorization"].removeprefix("Bearer ")
        listed = client.get("/admin/keys", headers=ADMIN)
        assert secret not in listed.text
        (one,) = listed.json()["keys"]
        assert (one["id"], one["revoked"], one["roles"]) == (key_id, False, ["readonly"])
        assert one["prefix"] == secret[:11]
        who = client.get("/admin/whoami", headers=headers).json()
        assert (who["principal"], who["name"], who["roles"]) == (key_id, "a key", ["readonly"])
        rotated = client.post(
            f"/admin/keys/{key_id}/rotate", json={"overlap": "1h"}, headers=ADMIN
        ).json()
        for key in (secret, rotated["key"]):
            assert client.get("/topics", headers={"X-API-Key": key}).status_code == 200
        gone = client.delete(f"/admin/keys/{key_id}", headers=ADMIN)
        assert gone.json() == {"success": True, "message": "key revoked", "key_id": key_id}
        for key in (secret, rotated["key"]):
            refused = client.get("/topics", headers={"X-API-Key": key})
            assert code_of(refused) == (401, "credential_expired")
        absent = client.delete("/admin/keys/key_0000000000000000", headers=ADMIN)
        assert (absent.status_code, absent.json()["error"]) == (404, "key not found")


def test_rules_over_http_as_the_contract_says(tmp_path: Path) -> None:
    """Added, listed, explained, removed by an id that is no place in a list."""
    with Keyed(tmp_path / "data", **AUTH) as server:
        client = server.client
        server.create_topic()
        key_id, headers = server.make()
        rule = {
            "principal": key_id, "resource_type": "topic", "resource_name": "ord*",
            "operation": "write", "effect": "allow",
        }  # fmt: skip

        def publish() -> httpx.Response:
            message = {"messages": [{"value": "a"}]}
            return client.post("/topics/orders/messages", json=message, headers=headers)

        assert publish().status_code == 403
        made = client.post("/admin/acls", json=rule, headers=ADMIN)
        assert made.status_code == 201
        assert made.json()["acl"] == {
            "Principal": key_id, "ResourceType": "topic", "ResourceName": "ord*",
            "Operation": "write", "Allow": True,
        }  # fmt: skip
        assert publish().status_code == 200
        deny = {**rule, "principal": "*", "resource_type": "topic", "effect": "deny"}
        denied = client.post("/admin/acls", json=deny, headers=ADMIN).json()["acl_id"]
        refused = publish()
        assert code_of(refused) == (403, "forbidden")
        assert "needs write topic 'orders'" in refused.json()["error"]
        question = {
            "principal": key_id, "operation": "write", "resource_type": "topic",
            "resource_name": "orders",
        }  # fmt: skip
        told = client.post("/admin/acls/test", json=question, headers=ADMIN).json()
        assert (told["allowed"], told["reason"]) == (False, f"denied by rule {denied}")
        assert client.delete(f"/admin/acls/{denied}", headers=ADMIN).status_code == 200
        assert client.delete(f"/admin/acls/{denied}", headers=ADMIN).status_code == 404
        assert client.delete("/admin/acls/x", headers=ADMIN).status_code == 400
        assert client.get("/admin/acls", headers=ADMIN).json()["count"] == 1
        assert publish().status_code == 200


def test_lists_leave_out_what_one_may_not_see(tmp_path: Path) -> None:
    """A name one may not describe is not there; asked for, it is refused like one that is not."""
    with Keyed(tmp_path / "data", **AUTH) as server:
        for name in ("orders", "secrets"):
            server.create_topic(name)
        _, headers = server.make("readonly", scopes=["topic:orders*"])
        get = server.client.get
        assert get("/topics", headers=headers).json() == {"topics": ["orders"]}
        assert set(get("/stats", headers=headers).json()["topic_stats"]) == {"orders"}
        there, absent = (get(f"/topics/{name}", headers=headers) for name in ("secrets", "nothing"))
        assert code_of(there) == code_of(absent) == (403, "forbidden")
        assert there.json()["error"].replace("secrets", "nothing") == absent.json()["error"]


def test_a_tenant_makes_schedules_under_its_own_name_only(tmp_path: Path) -> None:
    """It takes no name of another tenant, and does not learn which there are."""
    with Keyed(tmp_path / "data", **AUTH) as server:
        for name in ("acme.jobs", "globex.jobs"):
            server.create_topic(name)

        def create(name: str, topic: str, headers: dict[str, str]) -> httpx.Response:
            body = {"name": name, "topic": topic, "value": "v", "every": "1h"}
            return server.client.post("/schedules", json=body, headers=headers)

        assert create("globex.a", "globex.jobs", ADMIN).status_code == 201
        _, headers = server.make("tenant-admin", tenant="acme")
        assert create("acme.a", "acme.jobs", headers).status_code == 201
        assert code_of(create("acme.b", "globex.jobs", headers)) == (403, "forbidden")
        refused = [create(f"globex.{name}", "acme.jobs", headers) for name in "ab"]
        assert [code_of(one) for one in refused] == [(403, "forbidden")] * 2
        assert refused[0].text == refused[1].text


def test_probes_tell_strangers_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which partition failed and how much there is are for those who may read the metrics."""
    monkeypatch.setattr("goqueue.service.guard.is_own_machine", lambda _: False)
    with Keyed(tmp_path / "data", **AUTH) as server:
        server.create_topic()
        server.client.post("/topics", json={"name": "others"}, headers=ADMIN)
        partition = server.inside(lambda: server.broker.topic("orders").partitions[0])
        partition.log.failure = StorageFailedError("gone")
        told, all_told = (
            server.client.get("/readyz", params={"verbose": "1"}, headers=headers).json()
            for headers in ({}, ADMIN)
        )
        partition.log.failure = None
        assert told["status"] == all_told["status"] == "warn"
        assert "orders" in all_told["message"]
        assert all_told["broker"]["topic_count"] == 2
        assert "orders" not in str(told)
        assert "broker" not in told


def test_a_key_in_the_address_is_refused(tmp_path: Path) -> None:
    """It is in the logs of whoever passed it on; also where the key is right."""
    with Keyed(tmp_path / "data", **AUTH) as server:
        refused = server.client.get("/topics", params={"api_key": ROOT})
        assert code_of(refused) == (400, "invalid_request")
        assert ROOT not in refused.text
        both = {"X-API-Key": ROOT, "Authorization": "Bearer other"}
        assert server.client.get("/topics", headers=both).status_code == 400
        basic = {"Authorization": "Basic cjpy"}
        assert server.client.get("/topics", headers=basic).status_code == 400


def test_guessing_locks_out_none_who_has_a_key(tmp_path: Path) -> None:
    """Behind a proxy all have one address."""
    with Keyed(tmp_path / "data", auth_failures_max=1, **AUTH) as server:
        _, good = server.make("readonly")
        key_id, gone = server.make("readonly")
        server.client.delete(f"/admin/keys/{key_id}", headers=ADMIN)

        def ask(headers: dict[str, str]) -> tuple[int, str]:
            return code_of(server.client.get("/admin/whoami", headers=headers))

        assert ask({"X-API-Key": "wrong"}) == (401, "unauthenticated")
        assert ask(good) == (200, "")
        assert ask({"X-API-Key": "wrong too"}) == (429, "too_many_attempts")
        assert ask(gone) == (401, "credential_expired")
        assert ask({"X-API-Key": "f" * 40}) == (429, "too_many_attempts")


def test_guessing_is_slowed_and_those_who_are_known_go_on(tmp_path: Path) -> None:
    """After some wrong keys the address has to wait; a caller that was let in does not."""
    with Keyed(tmp_path / "data", auth_failures_max=3, **AUTH) as server:
        _, headers = server.make("readonly")
        assert server.client.get("/topics", headers=headers).status_code == 200
        guesses = [
            server.client.get("/topics", headers={"X-API-Key": f"gq_{number:064x}"})
            for number in range(5)
        ]
        assert [code_of(one) for one in guesses] == [
            *[(401, "unauthenticated")] * 3, *[(429, "too_many_attempts")] * 2,
        ]  # fmt: skip
        assert int(guesses[-1].headers["Retry-After"]) >= 1
        assert guesses[0].headers["WWW-Authenticate"].startswith("Bearer")
        assert server.client.get("/topics", headers=headers).status_code == 200


def test_a_reference_is_no_way_to_a_schema_one_may_not_read(tmp_path: Path) -> None:
    """Neither to its fields, by what does not fit, nor to whether it is there."""
    with Keyed(tmp_path / "data", **AUTH) as server:
        post = server.client.post
        _, headers = server.make("consumer", scopes=["subject:mine", "topic:mine"])
        secret = record("S", {"name": "pin", "type": "int"})
        mine = record("M", {"name": "s", "type": record("S", {"name": "pin", "type": "string"})})
        for subject, text in (("secrets", secret), ("mine", mine)):
            made = post(
                f"/subjects/{subject}/versions", json={"schema": json.dumps(text)}, headers=ADMIN
            )
            assert made.status_code == 200, made.text
        referring = json.dumps(record("M", {"name": "s", "type": "S"}))

        def ask(path: str, subject: str) -> tuple[int, str]:
            named = [{"name": "S", "subject": subject, "version": 1}]
            body = {"schema": referring, "references": named}
            refused = post(path, params={"verbose": "true"}, json=body, headers=headers)
            assert "pin" not in refused.text
            return refused.status_code, refused.text.replace(subject, "it")

        for path in (
            "/compatibility/subjects/mine/versions",
            "/compatibility/subjects/mine/versions/latest",
            "/subjects/mine",
        ):
            there, absent = ask(path, "secrets"), ask(path, "nothing")
            assert there == absent
            assert there[0] == 403


def record(name: str, *fields: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields)}


@pytest.mark.parametrize("change", ["revoke", "deny"])
def test_a_poll_that_waits_is_ended_when_its_key_may_no_more(tmp_path: Path, change: str) -> None:
    """At once, not when the poll is over; what is published later is not handed out."""
    with Keyed(tmp_path / "data", **AUTH) as server:
        server.create_topic()
        key_id, headers = server.make("consumer")
        member = server.join(headers)
        replies: list[httpx.Response] = []

        def poll() -> None:
            query = {"member_id": member, "timeout": "25s"}
            replies.append(server.client.get("/groups/g/poll", params=query, headers=headers))

        waiting = threading.Thread(target=poll)
        waiting.start()
        waiting.join(0.1)
        assert not replies
        if change == "revoke":
            server.client.delete(f"/admin/keys/{key_id}", headers=ADMIN)
        else:
            rule = {
                "principal": key_id, "resource_type": "group", "resource_name": "*",
                "operation": "read", "effect": "deny",
            }  # fmt: skip
            assert server.client.post("/admin/acls", json=rule, headers=ADMIN).status_code == 201
        waiting.join(10)
        expected = {"revoke": (401, "credential_expired"), "deny": (403, "forbidden")}[change]
        assert code_of(replies[0]) == expected


def test_a_native_poll_that_waits_is_ended_too() -> None:
    """A denied one gets its answer, and the connection stays; a revoked one loses it."""
    with over_native.Running(MemoryDisk(), **AUTH) as server:
        secret, key_id = "gq_" + "a" * 64, "key_" + "1" * 16
        server.await_inside(
            server.broker.security.change(
                commands.MakeKey(
                    id=key_id,
                    digest=digest_of(secret),
                    prefix="gq_",
                    terms=KeyTerms(name="k", roles=("consumer",)),
                )
            )
        )
        with server.connect(greet=False) as raw:
            raw.send(Operation.HELLO, calls.Hello(1, "raw", secret))
            assert raw.receive() is not None
            raw.send(Operation.TAIL_TRACES, calls.Nothing())
            raw.receive()
            raw.send(Operation.PING, calls.Nothing())
            assert raw.receive() is not None
            server.await_inside(server.broker.security.change(commands.RevokeKey(id=key_id)))
            packet = raw.receive()
            assert packet is not None
            failure = msgspec.msgpack.decode(packet.header, type=calls.Failure)
            assert failure.code == "credential_expired"
            assert raw.is_closed()


@pytest.mark.parametrize("shown", [None, "wrong", "gq_" + "0" * 64, "\x00" * 40])
def test_a_native_client_without_a_valid_key_is_not_let_in(shown: str | None) -> None:
    """Also where it sends more in the same write: nothing of it is looked at."""
    with over_native.Running(MemoryDisk(), **AUTH) as server:
        with server.connect(greet=False) as raw:
            raw.send(Operation.HELLO, calls.Hello(1, "raw", shown))
            raw.send(Operation.CREATE_TOPIC, calls.CreateTopic("orders", 1))
            assert raw.refusal().code == "unauthenticated"
            assert raw.is_closed()
        assert not server.inside(lambda: dict(server.broker.topics))


def test_the_first_administrator_comes_by_the_key_in_a_file(tmp_path: Path) -> None:
    """It is made where nobody could administrate, is private, and ends with the next admin key."""
    with Keyed(tmp_path / "data", auth_enabled=True) as server:
        path = tmp_path / "data" / BOOTSTRAP_PATH
        assert path.stat().st_mode & 0o077 == 0
        first = {"X-API-Key": path.read_text().strip()}
        narrow = {"name": "narrow", "roles": ["admin"], "scopes": ["topic:orders"]}
        assert server.client.post("/admin/keys", json=narrow, headers=first).status_code == 201
        assert path.exists(), "that key can make no others"
        made = server.client.post(
            "/admin/keys", json={"name": "admin", "roles": ["admin"]}, headers=first
        )
        assert made.status_code == 201
        assert not path.exists()
        assert server.client.get("/admin/keys", headers=first).status_code == 401
        admin = {"X-API-Key": made.json()["key"]}
        assert server.client.get("/admin/keys", headers=admin).status_code == 200
        assert (tmp_path / "data" / SECURITY_PATH).stat().st_mode & 0o077 == 0
    with Keyed(tmp_path / "data", auth_enabled=True) as server:
        assert server.client.get("/admin/keys", headers=admin).status_code == 200
        assert not path.exists()


def test_a_crash_at_every_sync_keeps_what_was_answered() -> None:
    """Keys, revocations and rules that were answered are there; nothing is there by half."""
    digest = digest_of("one")
    key_id = "key_" + "2" * 16
    steps: list[commands.Command] = [
        commands.MakeKey(id=key_id, digest=digest, prefix="gq_", terms=KeyTerms(name="k")),
        commands.AddRule(
            rule=Rule(id=0, principal="*", kind="topic", name="a", operation="read",
                      is_allowed=False)
        ),
        commands.RotateKey(id=key_id, digest=digest_of("two"), prefix="gq_"),
        commands.RevokeKey(id=key_id),
        commands.RemoveRule(id=1),
    ]  # fmt: skip

    async def attempt(disk: MemoryDisk, at: int) -> int:
        broker, done = Broker(BrokerConfig(sync_threads=0), disk), 0
        await broker.start()
        disk.fail_at(disk.operations + at)
        with contextlib.suppress(CrashError):
            for step in steps:
                await broker.security.change(step)
                done += 1
        return done

    async def look(disk: MemoryDisk, done: int) -> None:
        broker = Broker(BrokerConfig(sync_threads=0), disk)
        await broker.start()
        known = broker.security.directory
        key = known.keys.get(key_id)
        assert key is not None or done == 0
        assert done in (1, 4) or bool(known.rules) == (2 <= done < 4)
        assert done < 4 or (key is not None and key.revoked_ms)
        await broker.stop()

    for at in range(1, 60):
        disk = MemoryDisk()
        done = asyncio.run(attempt(disk, at))
        asyncio.run(look(disk.crash(), done))
        if done == len(steps):
            return
    raise AssertionError("the steps never end")
