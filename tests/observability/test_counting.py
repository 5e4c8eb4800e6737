"""Counters and histograms as plain numbers."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from goqueue.observability.counting import Counters, Histograms

BUCKETS = (0.001, 0.5, 1, 10)
LABELS = ("topic", "group")

topics = st.sampled_from(["a", "b", 'c"\\\n'])
groups = st.sampled_from(["", "g"])
amounts = st.one_of(st.sampled_from(BUCKETS), st.floats(0, 20), st.integers(0, 2**40))
acts = st.lists(
    st.one_of(
        st.tuples(st.just("inc"), topics, groups, amounts),
        st.tuples(st.just("observe"), topics, groups, amounts),
        st.tuples(st.just("forget"), topics),
    ),
    max_size=30,
)


@given(acts)
def test_the_text_is_that_of_the_library(acts: list[tuple[str, ...]]) -> None:
    """Whatever is counted and forgotten, the text is what Prometheus' own metrics would write."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counters = Counters("messages", "Messages", LABELS, ours)
    histograms = Histograms("seconds", "Time", LABELS, ours, buckets=BUCKETS)
    counter = Counter("messages", "Messages", LABELS, registry=theirs)
    histogram = Histogram("seconds", "Time", LABELS, buckets=BUCKETS, registry=theirs)

    for verb, *rest in acts:
        if verb == "inc":
            topic, group, amount = rest
            counters.labels(topic, group).inc(float(amount))
            counter.labels(topic, group).inc(float(amount))
        elif verb == "observe":
            topic, group, amount = rest
            histograms.labels(topic, group).observe(float(amount))
            histogram.labels(topic, group).observe(float(amount))
        else:
            for family in (counters, histograms, counter, histogram):
                family.remove_by_labels({"topic": rest[0]})

    assert generate_latest(ours) == generate_latest(theirs)


def test_a_series_without_labels_begins_at_zero() -> None:
    """A counter without labels is in the text before anything was counted."""
    registry = CollectorRegistry()
    counters = Counters("spans", "Spans", (), registry)

    spans = counters.labels()

    assert registry.get_sample_value("spans_total") == 0
    spans.inc(3)
    assert registry.get_sample_value("spans_total") == 3


def test_two_families_of_one_name_are_refused() -> None:
    """The registry knows the names of our families."""
    registry = CollectorRegistry()
    Counters("spans", "Spans", (), registry)

    with pytest.raises(ValueError, match="spans"):
        Counters("spans", "Spans", (), registry)


def test_threads_count_in_one_series() -> None:
    """A shared counter loses nothing."""
    series = Counters("spans", "Spans", (), CollectorRegistry(), is_shared=True).labels()

    def count() -> None:
        for _ in range(20_000):
            series.inc()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert series.total == 80_000
