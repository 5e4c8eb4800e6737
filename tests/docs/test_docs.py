"""What the documents say is compared with the code, so that neither can change alone."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

from goqueue.base.errors import BY_CODE
from goqueue.base.units import format_duration_ms
from goqueue.cli.main import app
from goqueue.config.model import BrokerConfig
from goqueue.config.settings import SETTINGS
from goqueue.core.groups.options import GroupOptions
from goqueue.core.topics.settings import SETTING_NAMES
from goqueue.runtime.broker import Broker
from goqueue.runtime.log.gauges import storage_metrics
from goqueue.service.service import Service
from goqueue.testing.disk import MemoryDisk
from goqueue.transport.http.api import operations
from goqueue.wire.http.errors import STATUS_BY_CODE
from goqueue.wire.packet import Operation

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "goqueue"
PAGES = sorted(
    page
    for folder in (ROOT, ROOT / "docs", ROOT / "docs" / "adr", ROOT / "changelog.d")
    for page in folder.glob("*.md")
    if page.name != "template.md"
)
COMMANDS_IN = [
    ROOT / "README.md",
    ROOT / "docs" / "benchmarks.md",
    ROOT / "docs" / "http.md",
    ROOT / "docs" / "operations.md",
    ROOT / "docs" / "configuration.md",
    ROOT / "docs" / "pipelines.md",
]

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"(?:\.venv/bin/)?goqueue +([a-z][^|`;)\n]*)")
SOURCE_PATH = re.compile(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`")
SYMBOL = re.compile(r"`([A-Z][A-Za-z]+[a-z])(?:\.([a-z_]+))?`")
ROUTE = re.compile(r"`(GET|POST|PATCH|PUT|DELETE) (/[^`?]*)`")
README_WORDS_MAX = 1_000
INTERNAL_MEANING = "The broker failed to answer, which is a bug; its log says where."


def read(name: str) -> str:
    return (ROOT / name).read_text()


def rows_between(text: str, begin: str, end: str) -> list[list[str]]:
    """Return the cells of a table between two comments, its two head lines left out."""
    part = text.partition(f"<!-- {begin}")[2].partition(f"<!-- end of {end} -->")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def anchor_of(heading: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.replace(" ", "-")


def anchors_in(page: Path) -> set[str]:
    text = CODE_BLOCK.sub("", page.read_text())
    return {anchor_of(heading) for heading in HEADING.findall(text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    """A link to a file or to a heading finds it."""
    for target in LINK.findall(CODE_BLOCK.sub("", page.read_text())):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page

        assert file.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors_in(file), f"{target}: no such heading"


def test_the_page_of_errors_lists_every_code() -> None:
    """docs/errors.md has each code once, with its meaning, its HTTP status and its retries."""
    expected = [
        [
            f"`{code}`",
            INTERNAL_MEANING if code == "internal" else " ".join((error.__doc__ or "").split()),
            str(STATUS_BY_CODE[code].value),
            "yes" if error.retryable else "no",
        ]
        for code, error in sorted(BY_CODE.items())
    ]

    assert rows_between(read("docs/errors.md"), "codes", "codes") == expected


def settings_rows() -> Iterator[tuple[str, str, str, str, str]]:
    defaults = BrokerConfig()
    for one in SETTINGS:
        shown = one.show(getattr(defaults, one.field))
        flag = one.flag or "--set"
        yield f"`{one.key}`", f"`{flag}`", f"`{one.environment}`", f"`{shown}`", one.meaning


def test_the_settings_of_the_broker_are_documented() -> None:
    """docs/configuration.md has every setting with its names, its default and its meaning."""
    page = rows_between(read("docs/configuration.md"), "settings", "settings")

    assert page == [list(row) for row in settings_rows()]


def test_the_settings_of_topics_are_documented() -> None:
    """docs/configuration.md has every setting of a topic."""
    text = read("docs/configuration.md")

    assert [name for name in SETTING_NAMES if f"| `{name}` |" not in text] == []


def test_the_options_of_groups_are_documented() -> None:
    """docs/configuration.md has every option of a group, with its default."""
    text = read("docs/configuration.md")

    for name, value in msgspec.structs.asdict(GroupOptions()).items():
        shown = format_duration_ms(value) if name.endswith("_ms") else str(value).lower()
        assert f"| `{name.removesuffix('_ms')}` | `{shown}` |" in text


def test_the_metrics_are_documented() -> None:
    """docs/operations.md has every metric of the broker's own, and no other."""
    broker = Broker(BrokerConfig(), MemoryDisk())
    families = [
        *broker.metrics.registry.collect(),
        *broker.metrics.gather(),
        *storage_metrics({}),
    ]
    names = {
        f"{one.name}_total" if one.type == "counter" else one.name
        for one in families
        if one.name.startswith("goqueue_")
    }
    rows = rows_between(read("docs/operations.md"), "metrics", "metrics")

    assert {row[0].strip("`") for row in rows} == names


def test_the_operations_of_the_protocol_are_documented() -> None:
    """docs/protocol.md has the number of every operation."""
    rows = re.findall(r"^\| `([A-Z_]+)` \| (\d+) \|", read("docs/protocol.md"), re.MULTILINE)

    assert {(name, int(number)) for name, number in rows} == {(one.name, one) for one in Operation}


def test_the_routes_of_http_are_documented() -> None:
    """docs/http.md has every request but Confluent's, and no other."""
    known = operations(Service(Broker(BrokerConfig(), MemoryDisk())))
    named = set(ROUTE.findall(read("docs/http.md")))

    assert named - {(one.method, one.path) for one in known} == set()
    assert {(one.method, one.path) for one in known if one.is_versioned} - named == set()


def test_the_readme_can_be_read_in_five_minutes() -> None:
    """The first page stays short; tables of settings, routes and figures are in docs/."""
    assert len(read("README.md").split()) <= README_WORDS_MAX


def test_the_files_on_the_map_exist() -> None:
    """A path in ARCHITECTURE.md is a file or folder of the package, and no folder is left out."""
    text = read("ARCHITECTURE.md")
    named = set(SOURCE_PATH.findall(text))
    folders = {f"{one.name}/" for one in PACKAGE.iterdir() if (one / "__init__.py").is_file()}

    assert named
    assert [name for name in named if not any((at / name).exists() for at in (PACKAGE, ROOT))] == []
    assert folders - named == set()


def test_every_folder_of_the_runtime_is_on_the_map() -> None:
    """Each has a row of its own in the first table of ARCHITECTURE.md."""
    rows = set(re.findall(r"^\| `(runtime/[a-z]+/)` \|", read("ARCHITECTURE.md"), re.MULTILINE))
    folders = {one.parent.name for one in (PACKAGE / "runtime").glob("*/__init__.py")}

    assert rows == {f"runtime/{name}/" for name in folders}


def classes() -> dict[str, set[str]]:
    """Return the names of all classes of the package, with their methods."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                methods = {one.name for one in node.body if hasattr(one, "name")}
                found.setdefault(node.name, set()).update(methods)
    return found


def test_the_classes_on_the_map_exist() -> None:
    """A class or method in ARCHITECTURE.md is one of the package."""
    there = classes()
    named = SYMBOL.findall(read("ARCHITECTURE.md"))

    assert named
    for name, method in named:
        assert name in there, f"there is no class {name}"
        assert not method or method in there[name], f"{name} has no {method}"


def commands_in(text: str) -> Iterator[list[str]]:
    """Yield the words of every ``goqueue`` command line in a page."""
    for line in PROGRAM.findall(text):
        yield shlex.split(line, comments=True)


def walk(words: list[str]) -> str:
    """Follow a command line through the program; return what is wrong with it, or nothing."""
    command: Any = typer.main.get_command(app)
    for word in words:
        if not hasattr(command, "commands"):
            break
        if word.startswith("-"):
            continue
        if word not in command.commands:
            return f"there is no {word!r} in {' '.join(words)!r}"
        command = command.commands[word]
    options = {option for parameter in command.params for option in parameter.opts}
    given = {word for word in words if re.fullmatch(r"--[a-z-]+|-[a-zA-Z]", word)}
    unknown = given - options - {"--help"}
    return f"there is no {sorted(unknown)} in {' '.join(words)!r}" if unknown else ""


@pytest.mark.parametrize("page", COMMANDS_IN, ids=lambda page: page.name)
def test_the_commands_in_a_page_exist(page: Path) -> None:
    """Every command a page shows exists, with the options it is given."""
    commands = list(commands_in(page.read_text()))

    assert commands
    assert [problem for problem in map(walk, commands) if problem] == []


@pytest.mark.parametrize(
    "name", ["README.md", "docs/python.md", "docs/protocol.md", "docs/pipelines.md"]
)
def test_the_python_in_a_page_is_python(name: str) -> None:
    """Every example can be compiled."""
    blocks = PYTHON_BLOCK.findall(read(name))

    assert blocks
    for block in blocks:
        compile(block, name, "exec")


def test_the_embedded_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker inside the process of docs/python.md stores a message and reads it back."""
    (block,) = (
        one for one in PYTHON_BLOCK.findall(read("docs/python.md")) if "goqueue.open" in one
    )
    monkeypatch.chdir(tmp_path)

    exec(compile(block, "docs/python.md", "exec"), {})  # noqa: S102 - our own example

    assert "[b'resize image 7']" in capsys.readouterr().out
