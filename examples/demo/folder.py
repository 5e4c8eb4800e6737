"""The folder of the demonstration: made anew for every run, and never somebody else's."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from goqueue.base.errors import GoQueueError

MARK: Final = ".goqueue-demo"
DEFAULT: Final = Path("data/demo")


class FolderError(GoQueueError):
    """The folder of the demonstration holds something else, or another one runs in it."""

    code = "demo_folder"


@contextmanager
def fresh_folder(root: Path) -> Iterator[Path]:
    """Empty the folder of an earlier run, hold it, and return it."""
    root = root.resolve()
    if root.exists() and (not root.is_dir() or _is_strange(root)):
        raise FolderError(f"{root} is there and was not made by a demonstration: choose another")
    root.mkdir(parents=True, exist_ok=True)
    with (root / MARK).open("a") as mark:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FolderError(f"another demonstration runs in {root}") from error
        for one in root.iterdir():
            if one.name != MARK:
                _remove(one)
        yield root


def _is_strange(root: Path) -> bool:
    return not (root / MARK).is_file() and any(root.iterdir())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
