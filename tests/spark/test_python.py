"""The Python of Spark's workers: without the zips that are compiled anew by every process."""

import os
import subprocess
from pathlib import Path

from goqueue.spark.python import is_installed, worker_python

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
