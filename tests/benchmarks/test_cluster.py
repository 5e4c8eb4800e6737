"""The benchmark of a cluster: what can be asked for, and how its numbers are worked out."""

from pathlib import Path

import pytest

from benchmarks.cluster.__main__ import PARTS, Bench, parse
from benchmarks.cluster.fleet import Cost, middle, quantile


def test_everything_is_measured_unless_parts_are_named(tmp_path: Path) -> None:
    options = parse([])

    assert tuple(options.only.split(",")) == PARTS
    assert tuple(Bench(options, tmp_path).parts()) == PARTS
    assert parse(["--only", "idle,work"]).only == "idle,work"


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--only", "work,speed"])

    assert "not a part: speed" in capsys.readouterr().err


def test_a_share_of_all_values_does_not_exceed_a_quantile() -> None:
    values = [float(number) for number in range(100, 0, -1)]

    assert (quantile(values, 0.99), middle(values)) == (100.0, 51.0)
    assert quantile([7.0], 0.99) == 7.0


def test_a_cost_is_what_came_on_top() -> None:
    assert Cost(5.0, 70.0).since(Cost(3.0, 20.0)) == Cost(2.0, 50.0)
