"""One bound for several leaders: each gets a part of it, by what it leads.

Shape: calculator.
"""

from collections.abc import Mapping
from typing import TypeVar

Node = TypeVar("Node", bound=str)


def share_of(most: int, led: Mapping[Node, int], node: Node) -> int:
    """Return the part of a bound that is a leader's, by how many partitions each leads.

    The parts of all leaders add up to the bound, or to one for each where it is smaller than that:
    a leader that may give nothing would keep its partitions waiting for ever. One that leads
    nothing is not bound, having nothing to give.
    """
    if node not in led:
        return most
    rest, total, before = max(most - len(led), 0), sum(led.values()), 0
    for name in sorted(led):
        if name == node:
            break
        before += led[name]
    until = before + led[node]
    return 1 + rest * until // total - rest * before // total
