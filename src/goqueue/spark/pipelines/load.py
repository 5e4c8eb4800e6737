"""Pipeline files: YAML, or Python with a ``Definition``."""

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import yaml

from goqueue.base.limits import PIPELINE_FILE_BYTES_MAX
from goqueue.spark.pipelines.definition import Definition
from goqueue.spark.pipelines.fields import IDENTIFIER
from goqueue.spark.pipelines.parse import Parsed, check, parse
from goqueue.spark.pipelines.parse import read as read_parts
from goqueue.spark.pipelines.problems import PipelineError, Problem, Problems, nearest
from goqueue.spark.pipelines.spec import Pipeline, PythonStep

SUFFIXES: Final = (".yaml", ".yml", ".py")
MODULE_PREFIX: Final = "goqueue_pipeline_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A pipeline with the functions of its Python steps, by the names of the steps."""

    pipeline: Pipeline
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReading:
    """A pipeline file as far as it can be read, and what is wrong with it so far."""

    loaded: Loaded
    parsed: Parsed

    @property
    def problems(self) -> Problems:
        """Return the list, to be gone on with."""
        return self.parsed.problems


class _Loader(yaml.SafeLoader):
    """YAML in which a name written twice is an error instead of a part that silently vanishes."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node)
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"{key!r} is there twice", key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load(path: Path) -> Loaded:
    """Return the pipeline of a file, or raise PipelineError with all that is wrong with it."""
    reading = read(path)
    check(reading.parsed)
    return reading.loaded


def read(path: Path) -> FileReading:
    """Return what a file says; only a file that is no pipeline at all raises PipelineError."""
    if path.suffix not in SUFFIXES:
        raise _wrong(path, f"must end in {', '.join(SUFFIXES)}")
    try:
        with path.open("rb") as file:
            content = file.read(PIPELINE_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _wrong(path, (error.strerror or str(error)).lower()) from error
    if len(content) > PIPELINE_FILE_BYTES_MAX:
        raise _wrong(path, f"is larger than {PIPELINE_FILE_BYTES_MAX:,} bytes")
    folder = str(path.resolve().parent)
    if path.suffix == ".py":
        definition = _definition(path)
        parsed = definition.read(default_name=path.stem, folder=folder)
        return _with_functions(parsed, definition.functions)
    parsed = read_parts(_yaml(path, content), default_name=path.stem, folder=folder)
    return _with_functions(parsed, {})


def _with_functions(parsed: Parsed, given: Mapping[str, Callable[..., Any]]) -> FileReading:
    functions = _functions(parsed.pipeline, given, parsed.problems)
    return FileReading(loaded=Loaded(pipeline=parsed.pipeline, functions=functions), parsed=parsed)


def parse_text(text: str, *, default_name: str = "pipeline", folder: str = ".") -> Pipeline:
    """Return the pipeline of a YAML text, or raise PipelineError."""
    return parse(
        _yaml(Path("pipeline.yaml"), text.encode()), default_name=default_name, folder=folder
    )


def _yaml(path: Path, content: bytes) -> object:
    try:
        return yaml.load(content, _Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError, TypeError) as error:
        raise _wrong(path, f"is no YAML: {' '.join(str(error).split())[:500]}") from error


def _definition(path: Path) -> Definition:
    module = _module(path)
    found = [value for value in vars(module).values() if isinstance(value, Definition)]
    if len(found) != 1:
        raise _wrong(path, f"has {len(found)} pipelines; there must be one Definition")
    return found[0]


def _functions(
    pipeline: Pipeline, given: Mapping[str, Callable[..., Any]], problems: Problems
) -> dict[str, Callable[..., Any]]:
    """Return the functions of all Python steps, loading those that are in other files."""
    found: dict[str, Callable[..., Any]] = {}
    for step in pipeline.steps.values():
        if not isinstance(step, PythonStep):
            continue
        if IDENTIFIER.fullmatch(step.function.rpartition(":")[2]) is None:
            continue
        try:
            found[step.name] = _function(pipeline, step, given)
        except PipelineError as error:
            for one in error.problems:
                problems.add(f"transforms.{step.name}.python", str(one))
    return found


def _function(
    pipeline: Pipeline, step: PythonStep, given: Mapping[str, Callable[..., Any]]
) -> Callable[..., Any]:
    file, _, name = step.function.rpartition(":")
    if not file:
        if name in given:
            return given[name]
        raise PipelineError(
            [Problem(path="", message=f"there is no function {name!r}", hint="write file.py:name")]
        )
    path = Path(pipeline.folder, file)
    if path.suffix != ".py":
        raise _wrong(path, "must end in .py")
    module = _module(path)
    function = getattr(module, name, None)
    if not callable(function):
        known = [one for one, value in vars(module).items() if callable(value) and one[0] != "_"]
        raise PipelineError(
            [Problem(path=file, message=f"has no function {name!r}", hint=nearest(name, known))]
        )
    return function  # type: ignore[no-any-return]


def _module(path: Path) -> ModuleType:
    """Run a Python file as a module of its own; its functions go to workers by value."""
    digest = blake2b(str(path.resolve()).encode(), digest_size=6).hexdigest()
    name = f"{MODULE_PREFIX}{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise _wrong(path, "is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _wrong(path, f"cannot be run: {type(error).__name__}: {error}") from error
    return module


def _wrong(path: Path, message: str) -> PipelineError:
    return PipelineError([Problem(path=str(path), message=message)], name="the pipeline file")
