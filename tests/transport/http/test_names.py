"""Hostile names: nothing outside the data directory is ever made, read or removed (trap B8)."""

from pathlib import Path

import pytest

from tests.transport.http.running import Running, error_of

HOSTILE = [
    "..",
    ".",
    "../../escaped",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "a\x00b",
    "a\r\nSet-Cookie: x=1",
    "\x1b[31mred",
    "a b",
    "café",
    "一",
    "\u202egnp",
    "%2e%2e",
    "a" * 250,
    "a" * 300,
    "__offsets",
    "-" * 250,
]


def files_under(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_creates_nothing(server: Running, tmp_path: Path, name: str) -> None:
    """A name that breaks the rule answers 400 and leaves every directory as it was."""
    before = files_under(tmp_path)
    reply = server.post("/topics", {"name": name})

    status, text = error_of(reply)
    assert status == 400
    assert reply.json()["code"] == "invalid_name"
    assert text.isprintable()
    assert len(text) < 300
    assert "set-cookie" not in reply.headers
    assert files_under(tmp_path) == before


@pytest.mark.parametrize(
    "path",
    [
        b"/topics/..",
        b"/topics/%2e%2e",
        b"/topics/..%2f..%2fetc",
        b"/topics/%2e%2e%2f%2e%2e%2fescaped",
        b"/topics/a%00b",
        b"/topics/a%0d%0aSet-Cookie:%20x=1",
        b"/topics/%1b%5b31mred",
        b"/topics/%ff%fe",
        b"/topics/" + b"a" * 300,
        b"/topics/" + b"%41" * 10_000,
    ],
)
@pytest.mark.parametrize("method", [b"GET", b"DELETE"])
def test_a_hostile_path_reaches_nothing(
    server: Running, tmp_path: Path, method: bytes, path: bytes
) -> None:
    """Whatever a path decodes to, it is a topic that does not exist, and nothing is touched."""
    (tmp_path / "escaped").mkdir()
    (tmp_path / "escaped" / "precious").write_text("mine")
    server.create()
    before = files_under(tmp_path)
    answer = server.exchange(
        method + b" " + path + b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    )

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404 ")
    assert b"set-cookie" not in head.lower()
    assert b'"code":"' in body
    assert b"\x1b" not in body
    assert len(body) < 1000
    assert files_under(tmp_path) == before


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "a" * 249, "0"])
def test_a_harmless_name_is_taken(server: Running, name: str) -> None:
    """Letters, digits, dot, underscore and dash make a name, up to 249 of them."""
    server.create(name)

    assert server.get("/topics").json() == {"topics": [name]}
    assert server.get(f"/topics/{name}").json()["name"] == name
