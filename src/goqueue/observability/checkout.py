"""Which commit runs here, where the code runs from a checkout."""

import re
from functools import cache
from pathlib import Path
from typing import Final

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_REFERENCE: Final = re.compile(r"ref: (refs/[A-Za-z0-9._/-]{1,250})")
_DIRECTORY: Final = re.compile(r"gitdir: (.{1,4000})")


@cache
def checkout_commit() -> str | None:
    """Return the commit of the checkout this package lies in; None where it is installed."""
    for folder in Path(__file__).resolve().parents[:4]:
        if (folder / ".git").exists() and (folder / "src" / "goqueue").is_dir():
            return commit_of(folder / ".git")
    return None


def commit_of(git: Path) -> str | None:
    """Return the commit a repository has checked out, read from its files."""
    try:
        if git.is_file() and (match := _DIRECTORY.fullmatch(git.read_text().strip())):
            # A worktree: its own folder has HEAD, the common one the branches.
            git = git.parent / match[1]
        head = (git / "HEAD").read_text().strip()
        if (match := _REFERENCE.fullmatch(head)) is None:
            return head if _COMMIT.fullmatch(head) else None
        common = git / "commondir"
        shared = git / common.read_text().strip() if common.exists() else git
        return _branch(shared, match[1])
    except OSError:
        return None


def _branch(shared: Path, name: str) -> str | None:
    loose = shared / name
    if loose.exists():
        found = loose.read_text().strip()
        return found if _COMMIT.fullmatch(found) else None
    packed = shared / "packed-refs"
    lines = packed.read_text().splitlines() if packed.exists() else []
    for line in lines:
        commit, _, reference = line.partition(" ")
        if reference == name and _COMMIT.fullmatch(commit):
            return commit
    return None
