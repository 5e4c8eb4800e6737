"""What was handed out before may not be known to be committed yet by a leader that begins."""

import pytest
from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.core.delivery import settle
from goqueue.core.delivery.settle import Claim
from goqueue.core.delivery.view import View
from tests.core.delivery.test_stories import Shell


@pytest.mark.parametrize("by_key", [False, True])
def test_what_was_given_back_waits_until_it_may_be_read(*, by_key: bool) -> None:
    """It is neither delivered nor lost: reading at the end of what is visible finds nothing."""
    world = Shell(by_key=by_key)
    world.publish("abcd")
    world.lease("4")
    claim = Claim(1, BitMap64(range(4)))
    world.commit(settle.release(world.ledger, claim, world.moment()).events)
    everything = world.view()
    early = everything._replace(end_offset=Offset(2))

    def picked(view: View) -> list[int]:
        return list(world.picker.pick(world.ledger, view, 10, now_ms=world.now_ms).offsets)

    assert picked(early) == [0, 1]
    assert picked(everything) == [0, 1, 2, 3]
