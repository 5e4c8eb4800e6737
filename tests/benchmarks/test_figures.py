"""What the report says about a figure follows from the medians of the run, and nothing else."""

from benchmarks.figures import FIGURES
from benchmarks.results import Better, Results, Series


def rates(case: str, **rounds: list[float]) -> Results:
    results = Results()
    series = Series(
        workload="publish", case=case, metric="rate", unit="msg/s", better=Better.HIGHER
    )
    for peer, values in rounds.items():
        for value in values:
            results.add(series, peer, value)
    return results


def test_ratio_of_medians() -> None:
    """One slow round of either side does not decide."""
    results = rates("100 B", goqueue=[900.0, 1.0, 1000.0], redis=[100.0, 100.0, 9.0])
    figure = FIGURES[0]

    measured = figure.compute(results)

    assert measured == 9.0
    assert figure.reached(measured) is True
    assert figure.reached(7.9) is False


def test_absent_peer_is_no_verdict() -> None:
    """A figure against a peer that was skipped is neither reached nor missed."""
    results = rates("100 B", goqueue=[900.0])
    figure = FIGURES[0]

    measured = figure.compute(results)

    assert measured is None
    assert figure.reached(measured) is None


def test_every_figure_has_one_side() -> None:
    """A target is a floor or a ceiling, never both and never neither."""
    for figure in FIGURES:
        sides = (figure.at_least is None, figure.at_most is None)

        assert sides.count(True) == 1, figure.work
