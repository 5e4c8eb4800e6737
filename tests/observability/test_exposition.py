"""Metrics are written beside the broker's work: once for all who ask, and not all the time."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from goqueue.observability import exposition
from goqueue.observability.exposition import Exposition
from goqueue.observability.metrics import Metrics


class Counted(Metrics):
    """Counts how often the text is written, and where."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []
        self.collect_from(self.families)

    def families(self) -> Iterator[Metric]:
        for name in ("one", "two", "three"):
            family = GaugeMetricFamily(f"goqueue_{name}", name)
            family.add_metric([], len(self.threads))
            yield family

    def write(self, gathered: object) -> bytes:
        self.threads.append(threading.get_ident())
        return super().write(gathered)  # type: ignore[arg-type]


async def _nothing() -> None:
    pass


def test_who_asks_at_the_same_time_gets_the_same_text() -> None:
    """A hundred scrapers cost as much as one, and none of it in the event loop."""

    async def scenario() -> tuple[set[bytes], list[int]]:
        metrics = Counted()
        shown = Exposition(metrics, _nothing)
        texts = await asyncio.gather(*(shown.text() for _ in range(100)))
        texts.append(await shown.text())
        return set(texts), metrics.threads

    texts, threads = asyncio.run(scenario())
    assert len(texts) == 1
    assert b"goqueue_three 0.0" in texts.pop()
    assert len(threads) == 1
    assert threads != [threading.get_ident()]


def test_a_later_scrape_sees_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text is handed out again for a second only."""
    monkeypatch.setattr(exposition, "INTERVAL_SECONDS", 0.0)

    async def scenario() -> list[bool]:
        shown = Exposition(Counted(), _nothing)
        return [b"goqueue_one %d.0" % number in await shown.text() for number in range(3)]

    assert asyncio.run(scenario()) == [True] * 3


def test_others_run_while_the_numbers_are_read() -> None:
    """Between two families everybody else has a turn."""

    async def scenario() -> list[int]:
        metrics, turns, seen = Metrics(), 0, list[int]()

        def families() -> Iterator[Metric]:
            for number in range(4):
                seen.append(turns)
                yield GaugeMetricFamily(f"goqueue_{number}", "")

        metrics.collect_from(families)
        under_way = asyncio.ensure_future(Exposition(metrics, _nothing).text())
        while not under_way.done():
            turns += 1
            await asyncio.sleep(0)
        return seen

    seen = asyncio.run(scenario())
    assert len(set(seen)) == 4


def test_who_goes_away_takes_nothing_from_the_others() -> None:
    """Also the one whose request began it."""

    async def scenario() -> bytes:
        shown = Exposition(Metrics(), _nothing)
        first, second = (asyncio.ensure_future(shown.text()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert b"python_info" in asyncio.run(scenario())


def test_a_failure_is_not_kept() -> None:
    """Who asks later gets a text again."""
    failures = ["once"]

    async def prepare() -> None:
        await asyncio.sleep(0)
        if failures:
            raise RuntimeError(failures.pop())

    async def scenario() -> bytes:
        shown = Exposition(Metrics(), prepare)
        with pytest.raises(RuntimeError, match="once"):
            await shown.text()
        return await shown.text()

    assert b"python_info" in asyncio.run(scenario())
