"""A lake: batches once, whatever is cut short; small files put together; one view of it all."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from goqueue.spark.pipelines.lake import Change, Lake, LakeError, Layout
from goqueue.spark.pipelines.lake_compaction import SizedFile, bundles, compact

LAYOUT = Layout(
    columns={
        "type": "struct",
        "fields": [
            {"name": "n", "type": "long", "nullable": True, "metadata": {}},
            {"name": "hour", "type": "string", "nullable": True, "metadata": {}},
        ],
    },
    partition_by=["hour"],
)


class PulledPlugError(BaseException):
    """The process ends here."""


def staging(*numbers: int, hour: str = "07") -> Callable[[Path], None]:
    """Return what writes some rows into the folder of an hour."""

    def stage(folder: Path) -> None:
        target = folder / f"hour={hour}"
        target.mkdir(parents=True)
        pq.write_table(pa.table({"n": list(numbers)}), target / "part-0.parquet")
        (folder / "_SUCCESS").touch()

    return stage


def rows(lake: Lake) -> list[int]:
    """Return the rows of the lake as a reader finds them, in the order of files."""
    return [number for file in lake.files() for number in pq.read_table(file)["n"].to_pylist()]


def test_a_batch_is_added_once(tmp_path: Path) -> None:
    """The same batch of the same writer again changes nothing; that of another one does."""
    lake = Lake(tmp_path)

    assert lake.commit("a" * 32, 0, staging(1, 2))
    assert not lake.commit("a" * 32, 0, staging(1, 2))
    assert lake.commit("a" * 32, 1, staging(3))
    assert lake.commit("b" * 32, 0, staging(4, hour="08"))
    assert rows(lake) == [1, 2, 3, 4]
    assert not list((tmp_path / "_goqueue" / "staging").iterdir())
    assert not list((tmp_path / "_goqueue" / "pending").iterdir())


def crash(*_: object) -> None:
    raise PulledPlugError


def crash_at_the_second_file(patch: pytest.MonkeyPatch) -> None:
    """Let one file be moved into place, and no other."""
    moved: list[Path] = []
    replace = Path.replace

    def move(self: Path, target: Path) -> Path:
        if self.suffix == ".parquet":
            moved.append(target)
        if len(moved) > 1:
            raise PulledPlugError
        return replace(self, target)

    patch.setattr(Path, "replace", move)


@pytest.mark.parametrize("step", ["stage", "decide", "move", "end"])
def test_a_batch_survives_a_crash_at_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """What was decided is finished, what was not is thrown away; the repeat makes it whole."""
    lake = Lake(tmp_path)
    lake.commit("a" * 32, 0, staging(1))

    def stage(folder: Path) -> None:
        staging(2)(folder)
        staging(3, hour="08")(folder)
        if step == "stage":
            raise PulledPlugError

    with monkeypatch.context() as patch:
        if step == "decide":
            patch.setattr("goqueue.spark.pipelines.lake._sync", crash)
        if step == "move":
            crash_at_the_second_file(patch)
        if step == "end":
            patch.setattr("goqueue.spark.pipelines.lake.json.dumps", crash)
        with pytest.raises(PulledPlugError):
            lake.commit("a" * 32, 1, stage)
    seen = rows(lake)
    is_new = lake.commit("a" * 32, 1, staging(2, 3))

    is_undecided = step in {"stage", "decide"}
    assert sorted(seen) == ([1] if is_undecided else [1, 2, 3])
    assert is_new == is_undecided
    assert sorted(rows(lake)) == [1, 2, 3]


def test_small_files_become_one(tmp_path: Path) -> None:
    """In the order of batches, folder by folder, with all columns there are."""
    lake = Lake(tmp_path)
    for batch in range(5):
        lake.commit("a" * 32, batch, staging(batch))
    lake.commit("a" * 32, 5, staging(9, hour="08"))

    def stage(folder: Path) -> None:
        target = folder / "hour=07"
        target.mkdir()
        pq.write_table(pa.table({"n": [5], "more": ["x"]}), target / "part-0.parquet")

    lake.commit("a" * 32, 6, stage)
    done = compact(lake)
    again = compact(lake)
    lake.commit("a" * 32, 7, staging(6))

    assert (done.folders, done.files_before, done.files_after) == (1, 6, 1)
    assert again.folders == 0
    assert rows(lake) == [0, 1, 2, 3, 4, 5, 6, 9]
    merged = pq.read_table(lake.files()[0])
    assert merged["more"].to_pylist() == [None] * 5 + ["x"]


def test_a_compaction_cut_short_is_never_seen(tmp_path: Path) -> None:
    """Decided and half done, the rows are there once."""
    lake = Lake(tmp_path)
    for batch in range(3):
        lake.commit("a" * 32, batch, staging(batch))
    files = [str(file.relative_to(tmp_path)) for file in lake.files()]
    staged = lake.staging("compact-1") / "0.parquet"
    pq.write_table(pa.table({"n": [0, 1, 2]}), staged)
    change = Change(
        id="compact-1",
        add={str(staged.relative_to(tmp_path)): "hour=07/all.parquet"},
        remove=files,
    )
    pending = tmp_path / "_goqueue" / "pending"
    pending.mkdir(exist_ok=True)
    (pending / "compact-1.json").write_bytes(msgspec.json.encode(change))
    (tmp_path / files[0]).unlink()
    before = rows(lake)
    lake.recover()

    assert before == [0, 1, 2]
    assert rows(lake) == [0, 1, 2]
    assert [file.name for file in lake.files()] == ["all.parquet"]


def test_bundles_keep_to_the_target() -> None:
    """Large files stay, small ones are put together up to the target, in order."""
    sizes = [10, 200, 40, 45, 30, 20, 49, 1]
    files = [SizedFile(Path(f"{number}"), size) for number, size in enumerate(sizes)]

    names = [[path.name for path in one] for one in bundles(files, target_bytes=100, files_min=4)]

    assert names == [["0", "2", "3"], ["4", "5", "6", "7"]]
    assert bundles(files[:3], target_bytes=100, files_min=4) == []


def test_columns_may_come_but_not_change(tmp_path: Path) -> None:
    """A lake refuses what its readers could not read any more, and says why."""
    lake = Lake(tmp_path)
    lake.prepare(LAYOUT)
    fields = LAYOUT.columns["fields"]
    extra = {"name": "m", "type": "string", "nullable": True, "metadata": {}}
    lake.prepare(
        Layout(columns={"type": "struct", "fields": [extra, *fields]}, partition_by=["hour"])
    )
    changed = {**fields[0], "type": "string"}

    known = lake.layout()
    assert known is not None
    assert [field["name"] for field in known.columns["fields"]] == ["n", "hour", "m"]
    with pytest.raises(LakeError, match="column n is long, not string"):
        lake.prepare(Layout(columns={"type": "struct", "fields": [changed]}, partition_by=["hour"]))
    with pytest.raises(LakeError, match="has folders by hour, not by nothing"):
        lake.prepare(Layout(columns=LAYOUT.columns, partition_by=[]))
