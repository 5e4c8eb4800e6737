"""Two ways for errors: ours to whoever watches, those of processes started meanwhile to a file."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def errors_of_children(path: Path) -> Iterator[None]:
    """Let processes started meanwhile, and theirs, write their errors to a file.

    They inherit descriptor 2, which is the file; ``sys.stderr`` is a copy of what it was. Spark's
    workers have things to say whenever they are ended, and a live view is no place for that.
    """
    before = sys.stderr
    before.flush()
    own = os.dup(2)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(target, 2)
    os.close(target)
    with os.fdopen(own, "w", buffering=1, errors="backslashreplace") as stream:
        sys.stderr = stream
        try:
            yield
        finally:
            stream.flush()
            os.dup2(stream.fileno(), 2)
            sys.stderr = before
