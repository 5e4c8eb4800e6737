"""Which messages carry a trace of their sender's is the same after any end of a broker."""

import pytest
from pyroaring import BitMap64

from goqueue.core.record.message import Draft
from goqueue.storage.queue_blocks import SNAPSHOT_NAME
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, run

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0%d"


@pytest.mark.parametrize("end", ["stop", "stop without snapshot", "crash"])
def test_the_callers_survive(end: str) -> None:
    """From the snapshot, from the log alone, and from both after a crash."""

    async def main() -> None:
        rig = Rig()
        broker = await rig.start()
        broker.create_topic("orders", partitions=1)
        drafts = [
            Draft(
                value=b"x",
                timestamp_us=rig.clock.now_us(),
                headers={"traceparent": PARENT % (place % 2)} if place % 3 else None,
            )
            for place in range(20)
        ]
        await broker.topic("orders").publish_drafts(PUBLISHING, [(one, None) for one in drafts])
        await broker.topic("orders").publish_drafts(PUBLISHING, [(drafts[1], None)])
        if end == "crash":
            rig.recover_with(rig.disk.crash())
        else:
            await rig.stop()
        if end == "stop without snapshot":
            rig.disk.remove(f"logs/orders/0/{SNAPSHOT_NAME}")
        callers = (await rig.start()).topic("orders").partitions[0].queue.callers

        assert callers.known == BitMap64([*(place for place in range(20) if place % 3), 20])
        assert callers.sampled == BitMap64([1, 5, 7, 11, 13, 17, 19, 20])
        await rig.stop()

    run(main())
