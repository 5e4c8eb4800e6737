"""Quick paths are few, and each is measured, compared with the general way, and listed."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "goqueue"
MARK = "fast_path"
MARKS_MAX = 10
ROW = re.compile(
    r"^\| `([\w.]+)` \| `([\w/.]+)` \|.*\| `([\w-]+)` \| `([\w/.]+)` \|$", re.MULTILINE
)
"""A quick path of the table: its name, its file, its workload and its test."""


class FastPath(NamedTuple):
    """A function that is marked, as it is listed."""

    name: str
    file: str
    bench: str
    test: str


def marks_in(path: Path) -> list[FastPath]:
    tree = ast.parse(path.read_text())
    homes = {
        member: f"{node.name}."
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for member in node.body
    }
    found: list[FastPath] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == MARK:
                said = {word.arg: ast.literal_eval(word.value) for word in mark.keywords}
                name = f"{homes.get(node, '')}{node.name}"
                file = str(path.relative_to(SOURCE))
                found.append(FastPath(name, file, said["bench"], said["test"]))
    return found


MARKS = [mark for path in sorted(SOURCE.rglob("*.py")) for mark in marks_in(path)]


def test_there_are_few() -> None:
    """A new one takes the place of another, or is worth a talk about the limit."""
    assert 0 < len(MARKS) <= MARKS_MAX


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: mark.name)
def test_each_is_measured_and_compared(mark: FastPath) -> None:
    """Its workload is there to be run; its test speaks of it, or of its class."""
    assert mark.bench in {workload.name for workload in WORKLOADS}
    assert any(name in (ROOT / mark.test).read_text() for name in mark.name.split("."))


def test_the_table_lists_just_these() -> None:
    """Under "Quick paths" in ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.partition("\n## Quick paths\n")[2].partition("\n## ")[0]

    assert sorted(ROW.findall(section)) == sorted(map(tuple, MARKS))
