"""Rules of the house that no linter knows. Prefer adding one here to repeating a review."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
CORE = [path for path in SOURCES if "core" in path.parts and path.name != "__init__.py"]

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
TRACKED_BYTES_MAX = 4 * 1024 * 1024

# Written in pieces so that this file does not break its own rules.
LEFTOVERS = ("FIX" + "ME", "breakpoint(", "X" * 3)
REGISTRY_HOSTS = ("pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "maven" + ".org")

VAGUE_SUFFIXES = ("Manager", "Helper", "Util", "Utils", "Handler", "Processor", "Info")
SHAPE = re.compile(r"^Shape: (decider|stepper|calculator|codec)\b", re.MULTILINE)

# Ratchet: old sins by path, with the size they may not exceed. Shrink it, never grow it.
FILE_LINES_LEGACY: dict[str, int] = {}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def is_deed(function: Function) -> bool:
    """Dunders and properties describe a value; anything else does something."""
    if function.name.startswith("__") and function.name.endswith("__"):
        return False
    decorators = {ast.unparse(decorator) for decorator in function.decorator_list}
    return not decorators & {"property", "overload", "abstractmethod"}


def sleeps(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep":
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (node.lineno for name in node.names if name.name == "sleep")


def tracked_files() -> list[Path]:
    """Everything git has or would take, so that a new file is checked before it is added."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    paths = (ROOT / name.decode() for name in listing.split(b"\0") if name)
    return [path for path in paths if path.is_file()]


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_source_file_is_tidy(path: Path) -> None:
    """A source file says what it is for, keeps its functions short and leaves nothing behind."""
    text = path.read_text()
    tree = ast.parse(text)

    assert ast.get_docstring(tree), "say in one line what this module is for"
    for function in functions(tree):
        lines = (function.end_lineno or 0) - function.lineno + 1
        assert lines <= FUNCTION_LINES_MAX, f"{function.name} has {lines} lines"
    for leftover in LEFTOVERS:
        assert leftover not in text, f"leftover {leftover}"


@pytest.mark.parametrize("path", [*SOURCES, *TESTS, *BENCHMARKS], ids=name_of)
def test_a_file_fits_in_the_head(path: Path) -> None:
    """No file outgrows its limit, and no class hides behind a word that means nothing."""
    text = path.read_text()
    limit = FILE_LINES_LEGACY.get(name_of(path), FILE_LINES_MAX)
    classes = [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]

    assert len(text.splitlines()) <= limit, "split the file by noun"
    for name in classes:
        assert not name.endswith(VAGUE_SUFFIXES), f"{name}: use a word of the domain"


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_a_core_module_names_its_shape(path: Path) -> None:
    """A core module that does something says which of the four shapes it has."""
    tree = ast.parse(path.read_text())
    deeds = [function.name for function in functions(tree) if is_deed(function)]

    assert not deeds or SHAPE.search(ast.get_docstring(tree) or ""), (
        'the docstring needs a line "Shape: decider", stepper, calculator or codec'
    )


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_no_test_sleeps(path: Path) -> None:
    """A test advances a clock or waits for an event; it never waits for time to pass."""
    assert not list(sleeps(ast.parse(path.read_text())))


def test_no_file_names_a_registry() -> None:
    """Where packages come from is the business of the machine that installs them."""
    for path in tracked_files():
        assert path.stat().st_size <= TRACKED_BYTES_MAX, f"{name_of(path)} is too large to keep"
        text = path.read_text(errors="ignore").lower()
        named = [host for host in REGISTRY_HOSTS if host in text]
        assert not named, f"{name_of(path)} names {named}"


@pytest.mark.parametrize(
    ("lock", "extra"), [("requirements.lock", "dev"), ("requirements-bench.lock", "bench")]
)
def test_every_dependency_is_locked(lock: str, extra: str) -> None:
    """What pyproject.toml asks for is pinned with hashes, by plain name and without address."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"][extra]]
    text = (ROOT / lock).read_text()
    pinned = set(re.findall(r"^([a-z0-9.-]+)==[^ ]+ .*\\\n    --hash=sha256:", text, re.MULTILINE))

    assert {re.split(r"[<>=!~ ;\[]", name)[0] for name in wanted} <= pinned
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text
