"""What only a real file system can show: modes, locks between processes, full disks."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from goqueue.base.errors import DataDirLockedError, StorageFailedError
from goqueue.base.ids import Position
from goqueue.storage.local import LOCK_NAME, LocalDisk

SOURCE = Path(__file__).parents[2] / "src"
START = Position(0)

HOLD_THE_LOCK = """
    disk.lock()
    print("locked", flush=True)
    sys.stdin.read()
"""

APPEND_BEYOND_THE_LIMIT = """
    import resource
    from goqueue.base.errors import StorageFailedError
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
    file = disk.open("a", create=True)
    file.append([b"x" * 9_000])
    try:
        file.append([b"y" * 500, b"y" * 2_000])
    except StorageFailedError as error:
        print(error)
    file.append([b"z" * 1_000])
    print(file.size(), os.stat(root / "a").st_size)
"""

FILL_THE_DISK = """
    from goqueue.base.errors import DiskFullError
    file, other = disk.open("a", create=True), disk.open("b", create=True)
    file.append([b"x" * 400_000])
    other.append([b"y" * 300_000])
    assert disk.free_bytes() < 400_000
    try:
        file.append([b"z" * 100_000, b"z" * 400_000])
    except DiskFullError as error:
        print(error)
    assert file.size() == os.stat(root / "a").st_size == 400_000
    file.sync()
    other.close()
    disk.remove("b")
    file.append([b"w" * 500_000])
    file.sync()
    print(file.size(), os.stat(root / "a").st_size)
"""


def program(body: str, root: Path) -> list[str]:
    head = f"""
        import os, sys
        from pathlib import Path
        from goqueue.storage.local import LocalDisk
        root = Path({str(root)!r})
        disk = LocalDisk(root)
    """
    return [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(body)]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    return subprocess.run(
        command, env=environment, check=False, capture_output=True, text=True, timeout=60
    )


def test_only_the_owner_may_look(tmp_path: Path) -> None:
    """Directories are 0750 and files 0600, the lock included, however lax the umask is."""
    root = tmp_path / "data"
    disk = LocalDisk(root)
    umask = os.umask(0)
    try:
        disk.lock()
        disk.make_directory("logs/orders")
        disk.open("logs/orders/a", create=True).close()
    finally:
        os.umask(umask)
        disk.unlock()
    modes = {path.name: path.stat().st_mode & 0o777 for path in [root, *root.rglob("*")]}

    assert modes == {
        "data": 0o750,
        "logs": 0o750,
        "orders": 0o750,
        "a": 0o600,
        LOCK_NAME: 0o600,
    }


def test_a_link_is_not_followed_out_of_the_data_directory(tmp_path: Path) -> None:
    """A file that is a symbolic link is refused, and its target stays as it was."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    root = tmp_path / "data"
    root.mkdir()
    (root / "a").symlink_to(outside)

    with pytest.raises(StorageFailedError):
        LocalDisk(root).open("a")


def test_the_lock_holds_between_processes_and_ends_with_its_process(tmp_path: Path) -> None:
    """The refusal names the pid and the directory; kill -9 of the holder frees the lock."""
    with subprocess.Popen(
        program(HOLD_THE_LOCK, tmp_path),
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        disk = LocalDisk(tmp_path)
        with pytest.raises(DataDirLockedError) as refusal:
            disk.lock()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    disk.lock()
    disk.unlock()

    assert f"process {holder.pid} " in refusal.value.message
    assert str(tmp_path / LOCK_NAME) in refusal.value.message
    assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"


def test_an_append_that_fails_half_way_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """The limit on file sizes cuts a write short; the part that was written is taken back."""
    result = run(program(APPEND_BEYOND_THE_LIMIT, tmp_path))

    assert result.stdout.splitlines() == ["cannot append to a: File too large", "10000 10000"], (
        result.stderr
    )
    assert (tmp_path / "a").read_bytes() == b"x" * 9_000 + b"z" * 1_000


def test_a_sync_that_was_begun_is_still_to_be_done(tmp_path: Path) -> None:
    """Beginning to write promises nothing, changes nothing, and may be asked at any time."""
    disk = LocalDisk(tmp_path)
    disk.lock()
    file = disk.open("a", create=True)
    file.begin_sync()
    file.append([b"one"])
    file.begin_sync()
    file.sync()
    file.close()
    file.begin_sync()

    assert disk.open("a").read(Position(0), 9) == b"one"


def test_a_full_disk_refuses_and_recovers(tmp_path: Path) -> None:
    """Nothing of the refused append stays, and appends go on when there is room again."""
    mount = 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"'
    small = ["unshare", "--mount", "sh", "-c", mount, str(tmp_path)]
    if run([*small, "true"]).returncode != 0:
        pytest.skip("mounting a small tmpfs needs rights this process does not have")
    result = run([*small, *program(FILL_THE_DISK, tmp_path)])

    assert result.stdout.splitlines() == ["no room on the disk to append to a", "900000 900000"], (
        result.stderr
    )


def test_an_append_the_system_takes_in_pieces_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short writes are continued where they stopped."""
    file = LocalDisk(tmp_path).open("a", create=True)
    write_all, write_one = os.pwritev, os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, all_, at: write_all(fd, [all_[0][:2]], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, rest, at: write_one(fd, rest[:3], at))
    file.append([b"0123", b"4567", b"89"])
    file.append([b"x", b"yz"])

    assert file.size() == 13
    assert file.read(START, 100) == b"0123456789xyz"


def test_a_read_the_system_answers_in_pieces_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short reads are continued until the bytes asked for are there."""
    file = LocalDisk(tmp_path).open("a", create=True)
    file.append([b"0123456789"])
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: read(fd, min(size, 3), at))

    assert file.read(Position(1), 8) == b"12345678"


def failing(number: int) -> Callable[..., int]:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


def test_bytes_on_the_device_only_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cached read that would block says so, and the next may succeed."""
    disk = LocalDisk(tmp_path)
    file = disk.open("a", create=True)
    file.append([b"abc"])
    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", failing(errno.EAGAIN))
        assert file.read_cached(START, 3) is None
        patch.setattr(os, "preadv", lambda *_: 2)
        assert file.read_cached(START, 3) is None
    assert disk.reads_cached


def test_a_file_system_without_cached_reads_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file of the disk learns from the first refusal."""
    disk = LocalDisk(tmp_path)
    file = disk.open("a", create=True)
    file.append([b"abc"])
    monkeypatch.setattr(os, "preadv", failing(errno.EOPNOTSUPP))

    assert file.read_cached(START, 3) is None
    assert not disk.reads_cached
    assert disk.open("a").read_cached(START, 3) is None


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_promises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A sync that fails is a failed storage, whatever the reason: the bytes may be gone."""
    disk = LocalDisk(tmp_path)
    file = disk.open("a", create=True)
    monkeypatch.setattr(os, "fdatasync", failing(number))
    monkeypatch.setattr(os, "fsync", failing(number))

    with pytest.raises(StorageFailedError, match="cannot sync a"):
        file.sync()
    with pytest.raises(StorageFailedError, match="cannot sync"):
        disk.sync_directory("")


def test_every_directory_that_got_a_name_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first parent that was missing down to the last directory made."""
    synced: list[str] = []
    sync = os.fsync

    def record(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(tmp_path)))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    LocalDisk(tmp_path / "var" / "data").make_directory("logs/orders")

    assert synced == [".", "var", "var/data", "var/data/logs"]
