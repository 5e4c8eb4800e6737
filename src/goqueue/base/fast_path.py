"""Marks fast paths: a second implementation of something, for the most common case.

Both must give the same results, and a change to one needs a change to the other: there are few
(``tests/tidy/test_fast_paths.py`` allows ten), and ARCHITECTURE.md lists each.
"""

from collections.abc import Callable
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


def fast_path(*, of: str, bench: str, test: str) -> Callable[[Function], Function]:
    """Mark a function as a quick path and return it as it is: a call costs nothing more.

    ``of`` names the general way, which does the same for every case. ``bench`` is the workload of
    ``python -m benchmarks`` that shows what the quick path is worth: without a gain there, remove
    it. ``test`` is the file whose property test takes both ways and compares what they did.
    """
    assert of, "a quick path has a general way"
    assert bench, "a quick path is measured"
    assert test, "a quick path is compared with the general way"
    return _unchanged


def _unchanged(function: Function) -> Function:
    return function
