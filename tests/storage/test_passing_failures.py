"""What the system lacks for a moment, files or memory: refused for now, and nothing is broken."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from goqueue.base.errors import DiskFullError, GoQueueError, OverloadedError, StorageFailedError
from goqueue.base.ids import Position
from goqueue.storage.journal import Journal
from goqueue.storage.local import LocalDisk
from tests.storage.files import no_more_files

JOURNAL = "meta/journal"


@pytest.fixture
def disk(tmp_path: Path) -> LocalDisk:
    made = LocalDisk(tmp_path)
    made.make_directory("logs")
    return made


CALLS: dict[str, Callable[[LocalDisk], object]] = {
    "open": lambda disk: disk.open("file"),
    "create": lambda disk: disk.open("new", create=True),
    "list": lambda disk: disk.list_directory("logs"),
    "make directory": lambda disk: disk.make_directory("logs/orders"),
    "sync directory": lambda disk: disk.sync_directory("logs"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_no_more_files(disk: LocalDisk, call: Callable[[LocalDisk], object]) -> None:
    """The error may be tried again, and the next try succeeds when there are some."""
    disk.open("file", create=True).close()
    with no_more_files(), pytest.raises(OverloadedError, match="Too many open files"):
        call(disk)
    call(disk)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENFILE, OverloadedError),
        (errno.ENOMEM, OverloadedError),
        (errno.EAGAIN, OverloadedError),
        (errno.EDQUOT, DiskFullError),
        (errno.EIO, StorageFailedError),
    ],
)
def test_an_append_or_a_read_that_fails(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[GoQueueError]
) -> None:
    """Which it is decides whether to try again; the file is as it was."""
    file = disk.open("file", create=True)
    file.append([b"before"])

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", fail)
        with pytest.raises(kind):
            file.append([b"lost"])
    if kind is not DiskFullError:
        with monkeypatch.context() as patched:
            patched.setattr(os, "pread", fail)
            with pytest.raises(kind):
                file.read(Position(0), 100)

    assert file.read(Position(0), 100) == b"before"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM, errno.EAGAIN])
def test_a_sync_that_fails_is_a_failure_whatever_it_says(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The system may have dropped the bytes: a second try would tell nothing."""
    file = disk.open("file", create=True)

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fdatasync", fail)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageFailedError):
        file.sync()
    with pytest.raises(StorageFailedError):
        disk.sync_directory("logs")


class _NoFilesAfterRename(LocalDisk):
    """A disk on which somebody takes the last file in the middle of a replacement."""

    is_out_of_files = False

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.is_out_of_files = True

    def sync_directory(self, path: str) -> None:
        if self.is_out_of_files:
            raise OverloadedError("cannot open meta now: Too many open files")
        super().sync_directory(path)


def test_a_journal_whose_replacement_was_interrupted_goes_on(tmp_path: Path) -> None:
    """Records that follow are in the file the next start reads, not in the one replaced."""
    disk = _NoFilesAfterRename(tmp_path)
    journal = Journal(disk, JOURNAL)
    journal.append([b"one", b"two"])
    with pytest.raises(OverloadedError):
        journal.rewrite([b"both"])
    with pytest.raises(OverloadedError):
        journal.append([b"refused for now"])
    disk.is_out_of_files = False
    journal.append([b"three"])
    journal.close()

    assert Journal(LocalDisk(tmp_path), JOURNAL).records == [b"both", b"three"]


def test_a_journal_goes_on_when_there_are_files_again(disk: LocalDisk) -> None:
    """A replacement that never began leaves the records as they were."""
    journal = Journal(disk, JOURNAL)
    journal.append([b"one"])
    with no_more_files(), pytest.raises(OverloadedError):
        journal.rewrite([b"other"])
    journal.append([b"two"])
    journal.close()

    assert Journal(disk, JOURNAL).records == [b"one", b"two"]
