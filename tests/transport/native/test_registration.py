"""Every operation of the protocol is answered by the broker."""

from goqueue.base.deeds import Deed
from goqueue.config.model import BrokerConfig
from goqueue.runtime.broker import Broker
from goqueue.service.service import Service
from goqueue.testing.disk import MemoryDisk
from goqueue.transport.native.dispatch import Dispatch
from goqueue.wire.packet import Operation


def test_every_operation_is_registered() -> None:
    """An operation with a number has somebody who serves it."""
    dispatch = Dispatch(Service(Broker(BrokerConfig(), MemoryDisk())))

    assert set(dispatch.operations) == set(Operation)
    assert all(isinstance(deed, Deed) for deed in dispatch.operations.values())
