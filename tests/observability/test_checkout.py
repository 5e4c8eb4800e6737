"""The commit that runs, read from the files of a checkout."""

import subprocess
from pathlib import Path

import pytest

from goqueue.observability.checkout import commit_of


def git(folder: Path, *arguments: str) -> str:
    # No configuration of the machine: it could sign, or run hooks.
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-C", str(folder), *arguments]
    environment = {"PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(folder)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


@pytest.mark.parametrize("steps", [[], [["pack-refs", "--all"]], [["checkout", "-q", "--detach"]]])
def test_the_commit_of_a_checkout(checkout: Path, steps: list[list[str]]) -> None:
    """On a branch, on one whose name is packed away, and on none."""
    for step in steps:
        git(checkout, *step)

    assert commit_of(checkout / ".git") == git(checkout, "rev-parse", "HEAD")


def test_the_commit_of_a_worktree(checkout: Path, tmp_path: Path) -> None:
    """Its folder only points to the repository."""
    other = tmp_path / "other"
    git(checkout, "worktree", "add", "-q", "-b", "topic/x", str(other))
    git(other, "commit", "-q", "--allow-empty", "-m", "second")

    assert commit_of(other / ".git") == git(other, "rev-parse", "HEAD")


def test_what_is_no_checkout_has_none(tmp_path: Path) -> None:
    """Nothing is made up."""
    (tmp_path / "HEAD").write_text("ref: refs/heads/../../../etc/passwd\n")

    assert commit_of(tmp_path) is None
    assert commit_of(tmp_path / "missing") is None
