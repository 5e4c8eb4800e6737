"""The Python of Spark's workers: without the zips that are compiled anew by every process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from goqueue.spark.python import WorkerPythonError, check_workers, is_installed, worker_python

SHOW = "import os, pyspark; print(os.environ.get('PYTHONPATH')); print(pyspark.__file__)"


def run(python: Path, path: str) -> list[str]:
    done = subprocess.run(
        [python, "-c", SHOW],
        capture_output=True,
        check=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    return done.stdout.splitlines()


def test_workers_load_the_installed_pyspark(tmp_path: Path) -> None:
    """Spark's zips are taken off the path, everything else stays in its order."""
    library = "/opt/x y/pyspark/python/lib"
    python = worker_python(tmp_path / "cache")

    path, origin = run(python, f"{library}/pyspark.zip:{library}/py4j-0.1-src.zip:/a b:/c/d.zip")

    assert is_installed()
    assert path == "/a b:/c/d.zip"
    assert ".zip" not in origin
    assert worker_python(tmp_path / "cache") == python


def test_an_empty_path_stays_empty(tmp_path: Path) -> None:
    """Without a path there is nothing to take off."""
    assert run(worker_python(tmp_path), "")[0] == ""


def test_workers_of_another_python_are_refused_with_what_to_set(tmp_path: Path) -> None:
    """The one that is told is the one that has the connector: this one."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "$@"\n')
    bare.chmod(0o755)

    with pytest.raises(WorkerPythonError) as raised:
        check_workers(str(bare), own=tmp_path / "own")

    assert "No module named 'goqueue'" in raised.value.message
    assert f"set PYSPARK_PYTHON={sys.executable} in the environment" in raised.value.message
    with pytest.raises(WorkerPythonError, match="does not run: No such file"):
        check_workers(str(tmp_path / "none"), own=tmp_path / "own")


def test_workers_of_an_equal_python_are_taken(tmp_path: Path) -> None:
    """By another name, too, if everything is there."""
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    other.chmod(0o755)

    for python in (other, Path(sys.executable), tmp_path / "own"):
        check_workers(str(python), own=tmp_path / "own")
