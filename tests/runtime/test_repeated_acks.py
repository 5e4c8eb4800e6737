"""An ack that is repeated is answered by what is durable: its first answer may have been lost."""

import pytest

from goqueue.base.errors import StaleReceiptError, StorageFailedError
from goqueue.core.delivery.runs import set_of
from goqueue.runtime.queue.leasing import Leased
from goqueue.runtime.queue.settlements import Settlement
from tests.runtime.grants import SETTLING
from tests.runtime.rig import run
from tests.runtime.test_consume import Shop

pytestmark = pytest.mark.usefixtures("both_places")


def ack_of(part: Leased) -> Settlement:
    offsets = set_of(part.order)
    return Settlement(partition=part.partition, nonce=part.nonce, verb="ack", offsets=offsets)


def test_a_repeated_ack_is_not_refused_before_the_first_is_durable() -> None:
    """Whoever repeats it takes "settled already" for a confirmation."""

    async def main() -> None:
        shop = await Shop().open()
        member = await shop.join()
        await shop.publish("a0")
        (part,) = await shop.poll(member)
        consume = shop.rig.broker.consume
        ack = ack_of(part)
        consume.begin_settle(SETTLING, "g", None, [ack])
        repeated = consume.begin_settle(SETTLING, "g", None, [ack])
        assert isinstance(repeated.outcomes[0].refused[0].error, StaleReceiptError)
        assert repeated.durable is not None
        assert not repeated.durable.done()
        await repeated.durable
        assert shop.committed() == 1
        await shop.rig.stop()

    run(main())


def test_a_repeated_ack_is_not_refused_when_the_first_was_lost() -> None:
    """A failed sync took it back: the message comes again after a restart."""

    async def main() -> None:
        shop = await Shop().open()
        member = await shop.join()
        await shop.publish("a0")
        (part,) = await shop.poll(member)
        shop.rig.disk.fail_sync("*.log")
        for _ in range(2):
            with pytest.raises(StorageFailedError):
                await shop.rig.broker.consume.settle(SETTLING, "g", None, [ack_of(part)])
        await shop.crash()
        assert shop.committed() == 0

    run(main())
