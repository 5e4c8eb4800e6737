"""``goqueue schema`` against a real broker."""

import json
from pathlib import Path

import pytest

from tests.cli.running import Run

OLD = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
NEW = {**OLD, "properties": {**OLD["properties"], "n": {"type": "string"}}}  # type: ignore[dict-item]
BAD = {**NEW, "required": ["id", "n"]}
PROTO = 'syntax = "proto3"; message A { int32 x = 1; }'


@pytest.fixture(autouse=True)
def _files(home: Path) -> None:
    for name, schema in (("old", OLD), ("new", NEW), ("bad", BAD)):
        (home / f"{name}.json").write_text(json.dumps(schema))
    (home / "a.proto").write_text(PROTO)


def test_register_list_get_and_delete(cli: Run) -> None:
    """A file becomes a version; its type follows from its suffix; it is shown and deleted."""
    first = cli("schema", "register", "cli-orders", "old.json", "-o", "json").data
    again = cli("schema", "register", "cli-orders", "new.json")
    proto = cli("schema", "register", "cli-proto", "a.proto", "-o", "json").data

    assert first["version"] == 1
    assert again.out.startswith("subject cli-orders version 2 is schema ")
    assert cli("schema", "get", "--id", str(proto["id"])).out == PROTO + "\n"
    shown = cli("schema", "get", "cli-orders", "--version", "1", "-o", "json").data
    assert (shown["id"], json.loads(shown["schema"])) == (first["id"], OLD)
    (listed,) = cli("schema", "list", "cli-orders", "-o", "json").data
    assert listed["versions"] == [1, 2]
    assert listed["compatibility"] == "BACKWARD"
    assert cli("schema", "delete", "cli-orders", "--version", "1", "-f").code == 0
    assert cli("schema", "delete", "cli-orders", "-f", "-o", "json").data["deleted"] == [2]
    gone = cli("schema", "get", "cli-orders")
    assert gone.code == 1
    assert "(subject_not_found)" in gone.err
    assert cli("schema", "delete", "cli-orders", "--permanent", "-f").code == 0


def test_check_and_evolve_check(cli: Run) -> None:
    """Both say which path breaks and leave with code 1; the second needs no broker."""
    cli("schema", "register", "cli-checked", "new.json")
    good = cli("schema", "check", "cli-checked", "old.json")
    bad = cli("schema", "check", "cli-checked", "bad.json", "-o", "json")
    alone = cli("schema", "evolve-check", "old.json", "bad.json")

    assert (good.code, good.out) == (0, "compatible\n")
    assert bad.code == 1
    assert bad.data["is_compatible"] is False
    assert bad.data["messages"][0].startswith("/n: the property is required now")
    assert alone.code == 1
    assert alone.out.startswith("/n: the property is required now")
    forward = cli("schema", "evolve-check", "old.json", "bad.json", "-m", "FORWARD", "-o", "json")
    assert forward.data == {"is_compatible": True, "messages": []}
    assert cli("schema", "evolve-check", "old.json", "a.proto").code == 1


def test_validate_and_config(cli: Run) -> None:
    """Lines are judged one by one; modes are set for one subject or for all."""
    cli("schema", "register", "cli-tried", "old.json")
    lines = b'{"id": 1}\n{"id": "x"}\n\n{}\n'
    tried = cli("schema", "validate", "cli-tried", stdin=lines)
    fine = cli("schema", "validate", "cli-tried", "-o", "json", stdin=b'{"id": 1}\n')

    assert tried.code == 1
    assert tried.out == '2: /id: "x" is not of type "integer"\n3: /: "id" is a required property\n'
    assert fine.data == {"values": 1, "misfits": []}
    assert cli("schema", "config", "cli-tried", "FULL").code == 0
    assert cli("schema", "config", "cli-tried", "-o", "json").data["compatibility"] == "FULL"
    assert cli("schema", "config", "-o", "json").data["compatibility"] == "BACKWARD"
    assert "(invalid_compatibility)" in cli("schema", "config", "cli-tried", "MAYBE").err
    assert (
        "NAME=SUBJECT:VERSION"
        in cli("schema", "register", "cli-tried", "old.json", "--reference", "x").err
    )
