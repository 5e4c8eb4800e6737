"""A broker that is about to stop keeps nobody waiting for messages that will not come."""

import asyncio

from goqueue.runtime.log.fetch import Fetched, FetchPart, fetch
from goqueue.runtime.queue.polling import PollLimits
from tests.runtime.grants import FETCHING, POLLING
from tests.runtime.rig import HANGS_SECONDS
from tests.runtime.test_consume import Shop

WAIT_MS = 60_000 * HANGS_SECONDS


def test_those_who_wait_are_answered() -> None:
    """A reader at the end and a member without messages go on at once, with nothing."""

    async def main() -> None:
        shop = await Shop().open()
        broker = shop.rig.broker
        member = await shop.join()
        topic = broker.topic("orders")
        parts = [FetchPart(partition=0, offset=0)]
        reading = asyncio.ensure_future(
            fetch(FETCHING, topic, parts, bytes_max=1_000, wait_ms=WAIT_MS)
        )
        demand = PollLimits(10, 1_000, WAIT_MS)
        polling = asyncio.ensure_future(broker.consume.poll(POLLING, "g", member, None, demand))
        await asyncio.sleep(0)
        broker.end_waits()
        async with asyncio.timeout(HANGS_SECONDS):
            found = await reading
            polled = await polling
            # And who comes now is not made to wait.
            found += await fetch(FETCHING, topic, parts, bytes_max=1_000, wait_ms=WAIT_MS)

        assert polled.parts == []
        assert [isinstance(one, Fetched) and not one.frames for one in found] == [True, True]

    asyncio.run(main())
