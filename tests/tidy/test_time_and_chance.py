"""Time and chance come from functions that the simulation replaces: a seed gives one run."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src/goqueue"
SIMULATED = ("runtime", "service", "transport", "storage", "client", "observability")
FILES = sorted(path for layer in SIMULATED for path in (SOURCE / layer).rglob("*.py"))

REPLACED = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns",
             "clock_gettime_ns"},
    "secrets": {"token_bytes", "token_hex", "randbits"},
}  # fmt: skip
"""What ``testing/sim/patches.py`` replaces."""
HARMLESS = {"time": {"CLOCK_BOOTTIME", "CLOCK_MONOTONIC", "strftime", "gmtime"}}
NEVER = {
    "random": "secrets",
    "uuid": "secrets.token_hex",
    "numpy.random": "secrets",
}
"""Modules that make chance of their own, and what to use instead."""

ALLOWED = {
    # A file of traces is named by the day it was begun; nothing is decided by it.
    ("observability/trace_files.py", "datetime.now"),
    # The blocking client waits in threads, which no simulated loop drives.
    ("client/blocking/chunks.py", "time.sleep"),
    ("client/blocking/routed_chunks.py", "time.sleep"),
    ("client/blocking/routed_link.py", "time.sleep"),
    ("client/blocking/sender.py", "time.sleep"),
}


OTHERS = {
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "os": {"urandom", "getrandom"},
    "threading": {"Timer"},
}


def asked(tree: ast.AST) -> set[str]:
    """Return the functions of clocks and dice a module uses, as ``module.function``."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                if module in REPLACED or name in OTHERS.get(module, ()):
                    found.add(f"{module}.{name}")
            case ast.ImportFrom(module=str(module), names=names):
                if module in REPLACED or module in NEVER:
                    found |= {f"{module}.{one.name}" for one in names}
            case ast.Import(names=names):
                found |= {one.name for one in names if one.name in NEVER}
            case _:
                pass
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_time_and_chance_can_be_simulated(path: Path) -> None:
    """Another function has to be taught to the simulation first."""
    known = {
        f"{module}.{name}"
        for names in (REPLACED, HARMLESS)
        for module, functions in names.items()
        for name in functions
    }
    place = str(path.relative_to(SOURCE))
    foreign = asked(ast.parse(path.read_text())) - known

    assert not {name for name in foreign if (place, name) not in ALLOWED}
