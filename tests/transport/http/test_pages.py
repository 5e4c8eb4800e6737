"""The pages for people: they work without a network and run nothing but their own script."""

import base64
import hashlib
import re
from pathlib import Path

import pytest

from tests.transport.http.running import Running


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_loads_nothing_from_elsewhere(server: Running, path: str) -> None:
    """No address of another host is in a page, so it works offline."""
    reply = server.get(path)

    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "//" not in re.sub(r"(?m)^\s*//.*$", "", reply.text)
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=\"(?!data:)", reply.text)


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_runs_only_its_own_script(server: Running, path: str) -> None:
    """The policy allows exactly the inline style and script that are in the page."""
    reply = server.get(path)
    policy = reply.headers["content-security-policy"]

    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for kind, content in re.findall(r"<(style|script)>(.*?)</\1>", reply.text, re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_the_documentation_never_writes_markup(server: Running) -> None:
    """Text from the broker reaches the page as text only."""
    page = server.get("/docs").text

    for way_in in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way_in not in page


def test_the_documentation_shows_code_as_code(server: Running) -> None:
    """Every text of the description goes through what turns backticks into code."""
    page = server.get("/docs").text

    assert "text: operation.description" not in page
    assert "text: kind.description" not in page
    assert 'text.split("`")' in page
    assert "overflow-wrap: anywhere" in page.partition("nav a {")[2].partition("}")[0]


def test_home_shows_the_way(server: Running) -> None:
    """The first page names the broker and links to what there is."""
    page = server.get("/").text

    assert "node-1" in page
    for path in ("/docs", "/metrics", "/stats"):
        assert f'href="{path}"' in page
        assert server.get(path).status_code == 200


def test_a_node_with_a_strange_name_is_shown_as_text(tmp_path: Path) -> None:
    """What the operator called the node cannot become markup."""
    with Running(tmp_path, node_id="<script>alert(1)</script>") as server:
        page = server.get("/").text

    assert "<script>" not in page
    assert "&lt;script&gt;" in page
