"""The Python of Spark's workers: this one, with PySpark from where it is compiled already.

Spark puts a zip with its own copy of PySpark first on the path of every worker. Nothing in a zip is
kept compiled, so that each process compiles it all anew before it answers: most of what its start
costs, and more than the ten seconds Spark grants it where a machine is busy. A ``python`` of ours
takes the zip away where the same PySpark is installed.
"""

import os
import sys
import sysconfig
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ZIPS: Final = "*/pyspark/python/lib/*.zip"


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
    """Tell whether PySpark is a package of this Python, and not one of a Spark somewhere else."""
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
