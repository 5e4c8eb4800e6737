"""Every line of the broker's log is one of ``LogEvent``, at one level, and documented."""

import ast
import re
from pathlib import Path

from goqueue.observability.events import LogEvent

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/goqueue"
LEVELS = {"debug", "info", "warning", "error", "exception"}
ROW = re.compile(r"^\| `([^`]+)` \| (debug|info|warning|error) \| .+ \|$", re.MULTILINE)


def logged(path: Path) -> set[tuple[str, str]]:
    """Return the events a module logs with their levels, as they are written."""
    tree = ast.parse(path.read_text())
    loggers = {
        node.targets[0].id
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and ast.unparse(node.value).startswith("get_logger(")
    }
    return {
        ("error" if node.func.attr == "exception" else node.func.attr, ast.unparse(node.args[0]))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LEVELS
        and ast.unparse(node.func.value) in loggers
    }


def test_every_event_has_one_level_and_is_documented() -> None:
    """docs/operations.md has one row for each, with the level it is logged at."""
    found = set().union(*map(logged, SOURCE.rglob("*.py")))
    events = {f"LogEvent.{event.name}": str(event) for event in LogEvent}

    assert {text for _, text in found} == events.keys()
    documented = ROW.findall((ROOT / "docs/operations.md").read_text())
    assert sorted(documented) == sorted((events[text], level) for level, text in found)
