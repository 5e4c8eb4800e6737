"""The least a small request costs is measured by a server that really syncs."""

from pathlib import Path

from benchmarks.floor import REQUEST, Case, measure


def test_every_request_is_in_a_file(tmp_path: Path) -> None:
    """Those of one turn share a write, and each is answered behind its sync."""
    case = Case(name="few", connections=3, files=2)
    rate, cost = measure(case, tmp_path, seconds=0.05)

    written = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert written % (case.connections * len(REQUEST)) == 0
    assert written > 0
    assert rate > 0
    assert cost > 0
