"""What may be acknowledged is asked of the partition: its own disk is not all that counts."""

import ast
from pathlib import Path

import pytest

RUNTIME = Path(__file__).parents[2] / "src/goqueue/runtime"
ALLOWED = {"log/leadership.py"}


@pytest.mark.parametrize("path", sorted(RUNTIME.rglob("*.py")), ids=lambda path: path.name)
def test_nobody_takes_what_is_durable_for_what_is_committed(path: Path) -> None:
    """Only leadership asks the log what its disk has."""
    tree = ast.parse(path.read_text())
    lines = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "durable_offset"
    ]

    assert not lines or str(path.relative_to(RUNTIME)) in ALLOWED
