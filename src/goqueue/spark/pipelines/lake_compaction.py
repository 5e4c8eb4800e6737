"""Putting the small files of a lake together, folder by folder, without Spark.

A folder's small files are copied row group by row group into larger ones; one change then adds
these and removes those, so a reader of the lake sees the rows once at any time.
"""

import itertools
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from goqueue.base.units import MiB
from goqueue.spark.pipelines.lake import Change, Lake

TARGET_BYTES: Final = 128 * MiB
ROW_GROUP_ROWS: Final = 131_072
FILES_MIN: Final = 4
ABANDONED_S: Final = 86_400.0
"""What was staged for so long belongs to nobody any more."""


class Compacted(NamedTuple):
    """What a compaction did."""

    folders: int
    files_before: int
    files_after: int


class SizedFile(NamedTuple):
    """A file and how large it is."""

    path: Path
    size_bytes: int


def compact(
    lake: Lake, *, target_bytes: int = TARGET_BYTES, files_min: int = FILES_MIN
) -> Compacted:
    """Put small files together where a folder has at least so many of them."""
    lake.sweep(older_than_s=ABANDONED_S)
    files = lake.files()
    folders = before = after = 0
    for folder, group in itertools.groupby(files, key=lambda path: path.parent):
        sized = [SizedFile(path, path.stat().st_size) for path in group]
        for bundle in bundles(sized, target_bytes=target_bytes, files_min=files_min):
            _replace(lake, folder, bundle)
            folders += 1
            before += len(bundle)
            after += 1
    return Compacted(folders, before, after)


def bundles(files: Sequence[SizedFile], *, target_bytes: int, files_min: int) -> list[list[Path]]:
    """Return which files become one, in their order, so that none is larger than the target."""
    small = [file for file in files if file.size_bytes < target_bytes // 2]
    if len(small) < files_min:
        return []
    found: list[list[Path]] = []
    bundle: list[Path] = []
    size_bytes = 0
    for file in small:
        if bundle and size_bytes + file.size_bytes > target_bytes:
            found.append(bundle)
            bundle, size_bytes = [], 0
        bundle.append(file.path)
        size_bytes += file.size_bytes
    found.append(bundle)
    return [one for one in found if len(one) > 1]


def _replace(lake: Lake, folder: Path, files: Sequence[Path]) -> None:
    change_id = f"compact-{uuid.uuid4().hex}"
    staged = lake.staging(change_id) / "0.parquet"
    copy_rows(files, staged)
    # Its name sorts where the first of its files did: order by batch is kept.
    final = folder / f"{files[0].stem}-c{change_id[-6:]}.parquet"
    lake.decide(
        Change(
            id=change_id,
            add={str(staged.relative_to(lake.root)): str(final.relative_to(lake.root))},
            remove=[str(file.relative_to(lake.root)) for file in files],
        )
    )


def copy_rows(files: Iterable[Path], target: Path) -> None:
    """Write the rows of some files into one, a few at a time."""
    paths = list(files)
    schemas = [pq.read_schema(path) for path in paths]
    schema = pa.unify_schemas(schemas)
    if schemas[-1].metadata:
        schema = schema.with_metadata(schemas[-1].metadata)
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for path in paths:
            with pq.ParquetFile(path) as source:
                for batch in source.iter_batches(batch_size=ROW_GROUP_ROWS):
                    table = pa.Table.from_batches([batch])
                    writer.write_table(_fit(table, schema), row_group_size=ROW_GROUP_ROWS)


def _fit(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with all columns of a schema; those a file does not have are empty."""
    columns = [
        table.column(field.name) if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]  # fmt: skip
    return pa.table(columns, schema=schema)
