"""What the report says about a figure follows from the medians of the run, and nothing else."""

from benchmarks.figure import Figure
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


def medians(values: dict[tuple[str, str, str], dict[str, float]]) -> Results:
    results = Results()
    for (workload, case, metric), peers in values.items():
        series = Series(workload=workload, case=case, metric=metric, unit="", better=Better.HIGHER)
        for peer, value in peers.items():
            results.add(series, peer, value)
    return results


def figure_of(work: str) -> Figure:
    (found,) = [figure for figure in FIGURES if figure.work == work]
    return found


def test_one_of_two_targets_is_enough() -> None:
    """HTTP reaches its figure by its rate or beside Redis, and the better one is shown."""
    http = ("clients", "HTTP, 64 connections", "rate")
    redis = ("clients", "64 connections", "rate")
    figure = figure_of(
        "HTTP, 64 connections, one publish each: of 20 k/s or of 0.6 x Redis everysec"
    )

    assert figure.compute(medians({})) is None
    assert figure.compute(medians({http: {"goqueue": 10_000}})) == 0.5
    assert figure.compute(medians({http: {"goqueue": 12_000}, redis: {"redis": 10_000}})) == 2
    assert figure.compute(medians({http: {"goqueue": 30_000}, redis: {"redis": 100_000}})) == 1.5


def test_jobs_without_sync_are_compared_with_the_same_workers() -> None:
    """Only GoQueue has the case with durability=os; RabbitMQ's jobs are those of the plain one."""
    results = medians(
        {
            ("jobs", "16 threads", "rate"): {"goqueue": 3.0, "rabbitmq": 2.0, "redis": 6.0},
            ("jobs", "16 threads, durability=os", "rate"): {"goqueue": 5.0},
        }
    )

    assert figure_of("jobs, 16 threads, one at a time, against RabbitMQ").compute(results) == 1.5
    assert (
        figure_of("jobs, 16 threads, one at a time, against Redis everysec").compute(results) == 0.5
    )
    assert (
        figure_of("jobs, 16 threads, one at a time, durability=os, against RabbitMQ").compute(
            results
        )
        == 2.5
    )


def test_one_publish_is_compared_with_the_disk_beside_it() -> None:
    """Each way to publish one at a time is divided by the fdatasync measured just before it."""
    results = medians(
        {
            ("clients", "one at a time, publish", "p50"): {"goqueue": 0.4, "fdatasync": 0.2},
            ("clients", "one at a time, async", "p50"): {"goqueue": 0.8, "fdatasync": 0.4},
        }
    )
    blocking = figure_of("publish one at a time, publish: p50 against the disk's fdatasync")
    awaiting = figure_of("publish one at a time, async: p50 against the disk's fdatasync")

    assert blocking.compute(results) == 2.0
    assert blocking.at_most == 2.2
    assert awaiting.compute(results) == 2.0
    assert awaiting.at_most == 3


def test_no_figure_is_named_twice() -> None:
    """A report with two lines of one name would leave open which was missed."""
    names = [figure.work for figure in FIGURES]

    assert len(names) == len(set(names))
