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
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
CORE = [path for path in SOURCES if "core" in path.parts and path.name != "__init__.py"]

FILE_LINES_MAX = 500
RUNTIME_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
TRACKED_BYTES_MAX = 4 * 1024 * 1024

# Written in pieces so that this file does not break its own rules.
LEFTOVERS = ("FIX" + "ME", "breakpoint(", "X" * 3)
REGISTRY_HOSTS = ("pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "maven" + ".org")

VAGUE_SUFFIXES = ("Manager", "Helper", "Util", "Utils", "Handler", "Processor", "Info")
SHAPE = re.compile(r"^Shape: (decider|stepper|calculator|codec)\b", re.MULTILINE)

PUBLIC = re.compile(r"goqueue(\.aio|\.base\.errors|\.spark(\.[a-z_]+)*)?")
"""What the documents name for users to import."""

WAIT = re.compile(r"(^|\.)(sleep|wait|pass_time)$")
WAIT_NAMES = ("timeout", "seconds", "delay")
PAUSE_SECONDS_MAX = 0.1
BOUND_SECONDS_MIN = 10
VIRTUAL = ("acceptance", "sim", "test_sim_host.py")
"""Tests of whole processes, whose time is real, and of simulations, whose time is not."""
TIMELESS = [path for path in TESTS if not set(VIRTUAL) & set(path.parts)]

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


def pauses(tree: ast.Module) -> Iterator[str]:
    """Yield the waits for time to pass; those of minutes are bounds that nothing waits out."""
    known = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and WAIT.search(ast.unparse(node.func))):
            continue
        named = [keyword.value for keyword in node.keywords if keyword.arg in WAIT_NAMES]
        for given in [*node.args[:1], *named]:
            value = known.get(given.id) if isinstance(given, ast.Name) else None
            value = given.value if isinstance(given, ast.Constant) else value
            if isinstance(value, int | float) and PAUSE_SECONDS_MAX < value < BOUND_SECONDS_MIN:
                yield f"line {node.lineno}: {ast.unparse(node)}"


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that are imported, wherever that is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def tracked_files() -> list[Path]:
    """Everything git has or would take, so that a new file is checked before it is added."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    paths = (ROOT / name.decode() for name in listing.split(b"\0") if name)
    return [path for path in paths if path.is_file()]


@pytest.mark.parametrize("path", [*SOURCES, *EXAMPLES], ids=name_of)
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


@pytest.mark.parametrize("path", [*SOURCES, *TESTS, *EXAMPLES, *BENCHMARKS], ids=name_of)
def test_a_file_fits_in_the_head(path: Path) -> None:
    """No file outgrows its limit, and no class hides behind a word that means nothing."""
    text = path.read_text()
    is_runtime = name_of(path).startswith("src/goqueue/runtime/")
    limit = RUNTIME_LINES_MAX if is_runtime else FILE_LINES_MAX
    limit = FILE_LINES_LEGACY.get(name_of(path), limit)
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


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_an_example_has_nothing_but_what_a_user_has(path: Path) -> None:
    """Examples import the SDK, its errors and Spark's side; what is behind them may change."""
    ours = {name for name in imported(ast.parse(path.read_text())) if name.startswith("goqueue")}

    assert not [name for name in ours if not PUBLIC.fullmatch(name)]


@pytest.mark.parametrize("path", TIMELESS, ids=name_of)
def test_no_test_waits_for_long(path: Path) -> None:
    """What a test waits for is a condition; where time itself must pass, a tenth of a second."""
    assert not list(pauses(ast.parse(path.read_text())))


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
