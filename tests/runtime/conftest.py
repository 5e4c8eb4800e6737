"""Where the state of ledgers is kept: tests that ask for it run with it in both places."""

import pytest

from tests.runtime.rig import Rig


@pytest.fixture(params=[False, True], ids=["with_groups", "beside"])
def both_places(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Keep ledgers with their groups, as on one node, or beside their partitions."""
    is_beside = bool(request.param)
    monkeypatch.setattr(Rig, "is_beside", is_beside)
    return is_beside
