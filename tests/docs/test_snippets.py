"""Every snippet of every document is run as it stands, or its page says why not."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.served import Served
from tests.docs.snippets import RUN, SAVED, SHOWN, Reader, Snippet, snippets_of

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
WITH_SPARK = {"spark.md", "pipelines.md"}
"""Followed in tests/spark/test_pages.py, where there is a session."""

NOT_RUN = {
    "README.md": 1,
    "CONTRIBUTING.md": 3,
    "benchmarks/README.md": 2,
    "docs/pipelines.md": 1,
    "docs/spark.md": 2,
    "docs/tls.md": 1,
}
"""How many snippets of a page nobody runs; each says why, above itself."""

NAMES = [page for page in PAGES if any(one.is_run for one in snippets_of(page))]
INDENTED = re.compile(r"\n\n {4}(?=[a-z])(.*)")
"""What looks like a command; drawings begin otherwise."""
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "broker").mkdir()
    with Served(tmp_path / "broker" / "data") as served:
        yield served


@pytest.mark.parametrize(
    "page",
    [page for page in NAMES if page.name not in WITH_SPARK],
    ids=lambda page: str(page.name),
)
def test_a_page_runs_as_it_stands(page: Path, tmp_path: Path, broker: Served) -> None:
    """Who follows a page from top to end, with a broker that has just been started, succeeds."""
    folder = tmp_path / "reader"
    (folder / "backup").mkdir(parents=True)

    Reader(folder, broker).follow(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_are_run_or_say_why_not(page: Path) -> None:
    """A snippet is run, is a file that is used, or is marked; what is marked is counted."""
    found = list(snippets_of(page))
    text = page.read_text()

    assert text.count("\n```") == 2 * sum(one.mark != "given" for one in found)
    for one in found:
        assert _is_dealt_with(one, text), f"{one.place}: what is {one.language or 'this'}?"
    assert sum(bool(one.why_not) for one in found) == NOT_RUN.get(str(page.relative_to(ROOT)), 0)


def _is_dealt_with(snippet: Snippet, text: str) -> bool:
    if snippet.saved_as:
        # Named once more, by who uses it.
        return snippet.language in SAVED and text.count(snippet.saved_as) > 1
    return bool(snippet.why_not) or snippet.language in {*RUN, *SHOWN} or snippet.mark == "given"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_snippet_hides_in_an_indented_block(page: Path) -> None:
    """Code is between fences, where it has a language and is run."""
    text = BLOCK.sub("", re.sub(r"<!--.*?-->", "", page.read_text(), flags=re.DOTALL))

    assert INDENTED.findall(text) == []
