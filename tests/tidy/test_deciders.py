"""Deciders only decide: no method of one changes it, except those that apply what was decided."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "goqueue"

DECIDERS = {
    "Catalog": "core/topics/catalog.py",
    "Identities": "core/producers/identities.py",
    "ProducerLedger": "core/producers/ledger.py",
    "Roster": "core/groups/roster.py",
    "Group": "core/groups/group.py",
    "Ledger": "core/delivery/ledger.py",
    "TxProducer": "core/tx/producer.py",
    "Registry": "core/schemas/registry.py",
    "Subject": "core/schemas/subject.py",
    "RedriveBook": "core/dlq/redrive.py",
    "RecurringSchedule": "core/recurring/recurring.py",
    "ClusterImage": "core/cluster/image.py",
    "Directory": "core/security/directory.py",
}
CHANGING = ("__init__", "apply", "restore")
"""These may change a decider, and the private methods that only they call."""

MUTATORS = frozenset(
    [
        "add",
        "append",
        "appendleft",
        "clear",
        "difference_update",
        "discard",
        "extend",
        "insert",
        "intersection_update",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "remove_range",
        "add_range",
        "setdefault",
        "sort",
        "update",
    ]
)

WIRING = (
    "runtime/broker.py",
    "runtime/coordinators.py",
    "runtime/state_beside.py",
    "runtime/state_logs.py",
)


def methods_of(name: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((SOURCE / DECIDERS[name]).read_text())
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    return {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}


def is_own(node: ast.AST) -> bool:
    """Tell whether an expression is something of ``self``."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return isinstance(node, ast.Name) and node.id == "self"


def targets_of(node: ast.stmt) -> list[ast.expr]:
    """Return what a statement assigns to or deletes."""
    if isinstance(node, ast.Assign | ast.Delete):
        return node.targets
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


def is_mutation(node: ast.Call) -> bool:
    """Tell whether a call changes something of ``self``, as far as its name tells."""
    verb = node.func
    return isinstance(verb, ast.Attribute) and verb.attr in MUTATORS and is_own(verb.value)


def changes_in(method: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(method):
        if isinstance(node, ast.Call) and is_mutation(node):
            yield f"line {node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.stmt):
            for target in targets_of(node):
                owned = [one for one in ast.walk(target) if isinstance(one, ast.Attribute)]
                if any(map(is_own, owned)):
                    yield f"line {node.lineno}: {ast.unparse(node)}"


def calls_in(method: ast.FunctionDef) -> set[str]:
    """Return the methods of its own that a method calls."""
    return {
        node.func.attr
        for node in ast.walk(method)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "self"
    }


def may_change(methods: dict[str, ast.FunctionDef]) -> set[str]:
    """Return the methods that apply, and private ones that nobody else calls."""
    callers: dict[str, set[str]] = {}
    for name, method in methods.items():
        for called in calls_in(method):
            callers.setdefault(called, set()).add(name)
    allowed = set(CHANGING) & methods.keys()
    while fresh := {
        name
        for name in methods.keys() - allowed
        if name.startswith("_") and callers.get(name) and callers[name] <= allowed
    }:
        allowed |= fresh
    return allowed


@pytest.mark.parametrize("name", DECIDERS)
def test_only_apply_changes_a_decider(name: str) -> None:
    """Whatever else it is asked, a decider is the same afterwards: recovery cannot differ."""
    methods = methods_of(name)
    allowed = may_change(methods)
    found = [
        f"{name}.{method}, {change}"
        for method in methods.keys() - allowed
        for change in changes_in(methods[method])
    ]

    assert not found


def test_every_decider_is_listed() -> None:
    """A module that calls itself a decider and has an ``apply`` is in the list above."""
    for path in sorted((SOURCE / "core").rglob("*.py")):
        tree = ast.parse(path.read_text())
        if "Shape: decider" not in (ast.get_docstring(tree) or ""):
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name not in ("Library", *DECIDERS):
                names = [one.name for one in node.body if isinstance(one, ast.FunctionDef)]
                assert "apply" not in names, f"{node.name} in {path}"


def test_only_the_host_of_machines_knows_their_log() -> None:
    """Whoever keeps state does so by ``MachineHost``; the broker wires in the log behind it."""
    for path in sorted((SOURCE / "runtime").rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        imported = {
            node.module
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
        }
        assert "goqueue.runtime.state_log" not in imported or name in WIRING, name
