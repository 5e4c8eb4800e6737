"""Options of the benchmarks."""

from pathlib import Path

from benchmarks import options


def test_the_directory_is_made(tmp_path: Path) -> None:
    """A directory that is not there yet is no reason to fail half an hour later."""
    wanted = tmp_path / "not" / "there"

    given = options.parse(["--dir", str(wanted)], workloads=["one"], peers=["none-such"])

    assert given.directory == wanted
    assert wanted.is_dir()
