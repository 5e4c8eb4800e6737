"""What a worker has loaded is not searched for garbage after every task."""

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from goqueue.spark.connector.tasks import calm_collector


@pytest.fixture
def collections() -> Iterator[list[str]]:
    """The collections that were asked for."""
    seen: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if info["generation"] == 2:
            seen.append(phase)

    calm_collector()
    was_enabled = gc.isenabled()
    gc.disable()
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    if was_enabled:
        gc.enable()
    gc.unfreeze()


def test_nothing_new_costs_nothing(collections: list[str]) -> None:
    calm_collector()

    assert not collections


def test_what_a_task_loads_is_set_apart_by_the_next(
    collections: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that has read and writes next loads more, long after its first task."""
    frozen = gc.get_freeze_count()
    loaded = ModuleType("loaded_by_a_task")
    loaded.held = [[] for _ in range(10)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, loaded.__name__, loaded)

    calm_collector()

    assert collections == ["start", "stop"]
    assert gc.get_freeze_count() > frozen
