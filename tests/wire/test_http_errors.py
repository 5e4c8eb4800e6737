"""The table from errors to HTTP."""

import pytest

from goqueue.base.errors import BY_CODE, GoQueueError
from goqueue.wire.http.errors import STATUS_BY_CODE, status_of


def test_every_error_has_its_status() -> None:
    """No error is forgotten, and no status belongs to an error that is gone."""
    assert set(STATUS_BY_CODE) == set(BY_CODE)


@pytest.mark.parametrize("error", BY_CODE.values(), ids=lambda error: error.code)
def test_whose_fault_it_is_shows_in_the_status(error: type[GoQueueError]) -> None:
    """What may be tried again is 429, 503, 504 or 507; what cannot is none of them but closed."""
    status = status_of(error("x"))

    assert 400 <= status < 600
    if error.retryable:
        assert status in {429, 503, 504, 507}
