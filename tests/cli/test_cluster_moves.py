"""What ``goqueue cluster reassign`` and ``rebalance`` refuse before anything is asked."""

import pytest

from tests.cli.running import Run


@pytest.mark.parametrize(
    "text", ["orders", "orders/0", "orders=a", "/0=a", "orders/x=a", "orders/0="]
)
def test_a_move_is_written_one_way(cli: Run, text: str) -> None:
    """The message shows how."""
    refused = cli("cluster", "reassign", "start", text)

    assert refused.code == 2
    assert "orders/0=a,b,c" in refused.err


@pytest.mark.parametrize("rate", ["0", "fast", "-1"])
def test_a_throttle_is_a_number_of_bytes(cli: Run, rate: str) -> None:
    """Zero would never end."""
    refused = cli("cluster", "rebalance", "--throttle", rate)

    assert refused.code == 2
    assert "--throttle" in refused.err
