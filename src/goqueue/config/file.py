"""The configuration file: YAML with sections, flattened to the dotted names of the settings."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import yaml

from goqueue.base.units import MiB

FILE_BYTES_MAX: Final = 1 * MiB


def read_file(path: Path) -> tuple[dict[str, object], list[str]]:
    """Return the settings of a file by dotted key, and what is wrong with the file as a whole."""
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        return {}, [f"file {path}: cannot be read: {error.strerror}"]
    if len(raw) > FILE_BYTES_MAX:
        return {}, [f"file {path}: has more than {FILE_BYTES_MAX} bytes"]
    try:
        content = yaml.safe_load(raw)
    except (yaml.YAMLError, ValueError) as error:
        return {}, [f"file {path}: is not YAML: {_fault(error)}"]
    if content is None:
        return {}, []
    if not isinstance(content, dict):
        return {}, [f"file {path}: must hold settings such as data_dir: ./data"]
    return dict(_flatten(content, prefix="")), []


def _fault(error: Exception) -> str:
    """Say in one line what the parser says in five."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}: {problem}" if mark is not None else problem


def _flatten(content: Mapping[object, object], *, prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in content.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _flatten(value, prefix=f"{key}.")
        else:
            yield key, value
