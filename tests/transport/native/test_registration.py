"""Every operation of the protocol is answered by the broker."""

from goqueue.config.model import BrokerConfig
from goqueue.runtime.broker import Broker
from goqueue.testing.disk import MemoryDisk
from goqueue.transport.native.dispatch import Dispatch
from goqueue.wire.packet import Operation


def test_every_operation_is_registered() -> None:
    """An operation with a number has somebody who serves it."""
    dispatch = Dispatch(Broker(BrokerConfig(), MemoryDisk()))

    assert set(dispatch.operations) == set(Operation)
