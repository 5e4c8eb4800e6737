"""Whatever is written, cut, renamed and synced, a power cut leaves what the contract says."""

from random import Random
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from goqueue.base.ids import Position
from goqueue.testing.disk import MemoryDisk

START = Position(0)
DIRECTORIES = ["here", "there"]

Step = tuple[Literal["append", "truncate", "sync", "crash", "kill"], int]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 20)),
        st.tuples(st.just("truncate"), st.integers(0, 40)),
        st.tuples(st.sampled_from(["sync", "crash", "kill"]), st.just(0)),
    ),
    max_size=30,
)
moves = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 3), st.sampled_from(DIRECTORIES)),
        st.tuples(st.just("sync"), st.sampled_from(DIRECTORIES)),
    ),
    max_size=20,
)


@given(steps)
def test_a_file_is_what_it_was_at_its_last_sync(steps: list[Step]) -> None:
    """The naive model copies the whole content at every sync and goes back to it at a crash."""
    disk = MemoryDisk()
    file = disk.open("a", create=True)
    disk.sync_directory("")
    seen, durable = b"", b""
    for number, (step, size) in enumerate(steps):
        match step:
            case "append":
                file.append([bytes([number]) * size])
                seen += bytes([number]) * size
            case "truncate":
                seen = seen[:size]
                file.truncate(len(seen))
            case "sync":
                file.sync()
                durable = seen
            case "crash" | "kill":
                disk = disk.crash() if step == "crash" else disk.kill()
                file = disk.open("a")
                seen = durable if step == "crash" else seen

        assert file.read(START, file.size() + 1) == seen
    after = disk.crash().open("a")
    assert after.read(START, after.size() + 1) == durable


def place_files(count: int) -> tuple[MemoryDisk, list[str]]:
    disk = MemoryDisk()
    for directory in DIRECTORIES:
        disk.make_directory(directory)
    paths = [f"here/{number}" for number in range(count)]
    for path in paths:
        disk.open(path, create=True).append([path.encode()])
        disk.open(path).sync()
    disk.sync_directory("here")
    return disk, paths


def tree_of(disk: MemoryDisk) -> dict[str, bytes]:
    paths = [f"{top}/{name}" for top in DIRECTORIES for name in disk.list_directory(top)]
    return {path: disk.open(path).read(START, 100) for path in paths}


@given(moves, st.none() | st.integers(0, 9), st.permutations(DIRECTORIES))
def test_a_renamed_file_is_never_lost_and_never_doubled(
    moves: list[tuple[int | str, str]], seed: int | None, order: list[str]
) -> None:
    """At any crash each file has one name; once all directories are synced, its last one."""
    disk, paths = place_files(4)
    for number, (what, directory) in enumerate(moves):
        if isinstance(what, int):
            target = f"{directory}/{what}-{number}"
            disk.rename(paths[what], target)
            paths[what] = target
        else:
            disk.sync_directory(directory)
    seen = tree_of(disk)
    is_synced = seed is None or bool(seed % 2)
    if is_synced:
        for directory in order:
            disk.sync_directory(directory)
    found = tree_of(disk.crash(torn=None if seed is None else Random(seed)))

    assert sorted(found.values()) == sorted(seen.values())
    assert not is_synced or found == seen
