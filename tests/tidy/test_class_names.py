"""A class name means one thing in a layer: whoever reads it need not look where it came from."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src/goqueue"


def layer_of(path: Path) -> str:
    """Return the layer of a module; what travels over HTTP has names of its own."""
    parts = path.relative_to(SOURCE).parts
    return "/".join(parts[:2]) if parts[:2] == ("wire", "http") else parts[0]


def test_a_class_name_is_used_once_in_a_layer() -> None:
    """With or without an underscore."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                name = node.name.lstrip("_")
                places[layer_of(path), name].append(str(path.relative_to(SOURCE)))

    assert {name: found for name, found in places.items() if len(found) > 1} == {}
