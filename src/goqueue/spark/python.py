"""The Python of Spark's workers: this one, with PySpark from where it is compiled already.

Spark puts a zip with its own copy of PySpark first on the path of every worker. Nothing in a zip is
kept compiled, so that each process compiles it all anew before it answers: most of what its start
costs, and more than the ten seconds Spark grants it where a machine is busy. A ``python`` of ours
takes the zip away where the same PySpark is installed.
"""

import os
import subprocess
import sys
import sysconfig
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from goqueue.base.errors import GoQueueError

ZIPS: Final = "*/pyspark/python/lib/*.zip"
ANSWER_SECONDS_MAX: Final = 20
PROBE: Final = "import goqueue, pyarrow, sys; print(*sys.version_info[:2], sep='.')"
"""What a worker must have installed, PySpark coming from Spark itself; it answers its version."""


class WorkerPythonError(GoQueueError):
    """Spark's workers run a Python that cannot load the connector."""

    code = "worker_python"


def check_workers(python: str, *, own: Path) -> None:
    """Refuse a session whose workers run another Python that cannot do their work.

    Spark would say it in the traceback of the first query, without what to do about it.
    """
    if python in (sys.executable, str(own)):
        return
    problem = _problem_of(python)
    if problem:
        raise WorkerPythonError(
            f"the workers of this session run {python}, which {problem}; set"
            f" PYSPARK_PYTHON={sys.executable} in the environment before the session is made, or"
            " install goqueue[spark] for that Python"
        )


def _problem_of(python: str) -> str:
    try:
        # Not a shell, and the path is the user's own Python.
        done = subprocess.run(  # noqa: S603
            [python, "-c", PROBE],
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        # A busy machine; what is wrong will show.
        return ""
    except OSError as error:
        return f"does not run: {error.strerror}"
    if done.returncode:
        last = (done.stderr.strip() or "it ended without a word").splitlines()[-1]
        return f"cannot load the connector: {last}"
    wanted = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return "" if done.stdout.split()[-1:] == [wanted] else f"is not Python {wanted}"


def worker_python(cache: Path) -> Path:
    """Return a Python for workers on this machine, making ours below ``cache`` if it helps."""
    real = Path(sys.executable)
    if not is_installed():
        return real
    script = _script(real)
    python = cache / f"python-{zlib.crc32(script.encode()):08x}"
    if python.is_file() and python.read_text() == script:
        return python
    cache.mkdir(parents=True, exist_ok=True)
    # Another process may do the same: each writes its own file, and the last name stands.
    mine = python.with_name(f"{python.name}.{os.getpid()}")
    mine.write_text(script)
    mine.chmod(0o755)
    mine.replace(python)
    return python


def is_installed() -> bool:
    """Return True if PySpark is a package of this Python, and not one of a Spark somewhere else."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return False
    homes = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    return Path(spec.origin).resolve().parent.parent in homes


def _script(real: Path) -> str:
    return (
        "#!/bin/sh\n"
        "# Leaves PySpark's zips out of the path; see goqueue.spark.python.\n"
        "path=\n"
        "IFS=:\n"
        "for part in $PYTHONPATH; do\n"
        f'  case "$part" in {ZIPS}) ;; *) path="$path${{path:+:}}$part" ;; esac\n'
        "done\n"
        'PYTHONPATH="$path"\n'
        "export PYTHONPATH\n"
        f'exec "{real}" "$@"\n'
    )
