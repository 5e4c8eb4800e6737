"""The words of the project are explained once, where newcomers find them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORD = re.compile(r"^\| ([^|]+) \| [^|]+ \|[^|]*\|$", re.MULTILINE)
NEEDED = {
    "batch",
    "frame",
    "generation",
    "group",
    "lane",
    "lease",
    "ledger",
    "receipt",
    "settle",
    "state log",
    "visible offset",
}


def words() -> list[str]:
    cells = WORD.findall((ROOT / "docs" / "glossary.md").read_text())
    found = [word.strip() for cell in cells for word in cell.split(",")]
    return [word for word in found if word not in {"word", "---"}]


def test_each_word_is_explained_once() -> None:
    """No word has two rows, and those that every page uses have one."""
    found = words()

    assert sorted(found) == sorted(set(found))
    assert NEEDED - set(found) == set()


def test_the_glossary_is_linked_from_the_first_pages() -> None:
    """Who meets a word in the README or on the map finds what it means."""
    assert "(docs/glossary.md)" in (ROOT / "README.md").read_text()
    assert "(docs/glossary.md)" in (ROOT / "ARCHITECTURE.md").read_text()
