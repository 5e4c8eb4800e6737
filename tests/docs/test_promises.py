"""What tests refer to by number is explained in docs/promises.md; what it names exists."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "promises.md").read_text()
FILES = sorted(
    path
    for path in (ROOT / "tests").rglob("*")
    if path.suffix in {".py", ".txt"} and path.is_file()
)

PROMISE = re.compile(r"\bP\d{1,2}\b")
TRAP = re.compile(r"\b[A-H]\d{1,2}\b")
PROMISES = {f"P{number}" for number in range(1, 13)}
TEST_PATH = re.compile(r"`((?:tests|src)/[\w/]+\.(?:py|txt))`")


def rows() -> dict[str, str]:
    """Return the rows of the page whose first cell is a letter and a number."""
    found = re.findall(r"^\| ([A-Z]\d{1,2}) \|(.*)\|$", PAGE, re.MULTILINE)
    return dict(found)


def explanations() -> Iterator[tuple[Path, str]]:
    """Yield the lines of tests that say what they show: docstrings, and comments of stories."""
    for path in FILES:
        for line in path.read_text().splitlines():
            if '"""' in line or (path.suffix == ".txt" and line.startswith("#")):
                yield path, line


def test_every_promise_that_tests_name_is_explained() -> None:
    """A promise has one row, and a test refers to no other."""
    named = {one for path in FILES for one in PROMISE.findall(path.read_text())}

    assert {one for one in rows() if one.startswith("P")} == PROMISES
    assert named <= PROMISES


def test_every_promise_is_shown_by_a_test() -> None:
    """The tests in the row of a promise exist; at least one of them names it."""
    for promise in sorted(PROMISES):
        tests = TEST_PATH.findall(rows()[promise])
        named = [name for name in tests if re.search(rf"\b{promise}\b", (ROOT / name).read_text())]

        assert named, promise


def test_every_trap_that_tests_name_is_explained() -> None:
    """A letter and a number in a docstring is a trap of the page, and none is without a test."""
    named = {one for _, line in explanations() for one in TRAP.findall(line)}

    assert named == {one for one in rows() if not one.startswith("P")}


def test_every_file_on_the_page_exists() -> None:
    """A path is that of a test or of a checker."""
    names = TEST_PATH.findall(PAGE)

    assert names
    assert [name for name in names if not (ROOT / name).is_file()] == []
