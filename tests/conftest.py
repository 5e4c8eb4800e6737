"""Settings shared by all tests."""

import signal

import pytest
from hypothesis import HealthCheck, settings

from goqueue.observability.logging import configure_logging

# A busy machine must not fail a property: time limits belong to benchmarks.
settings.register_profile(
    "goqueue", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("goqueue")

# Whoever starts the tests in the background has Ctrl-C ignored, and so would every program they
# start; but some of those are to be stopped by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _logs_as_embedded() -> None:
    """Log as a program that embeds us, whatever a command of an earlier test has set up."""
    configure_logging(level="warning", style="json")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep what shares something slow to start in one process: a file, or everybody with Spark."""
    for item in items:
        shares_spark = "spark" in getattr(item, "fixturenames", ())
        group = "spark" if shares_spark else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
