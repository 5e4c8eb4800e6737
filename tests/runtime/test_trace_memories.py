"""What tracing remembers of leases and messages goes with them, or has a bound."""

from typing import Any

import pytest
from pyroaring import BitMap64

from goqueue.base import limits
from goqueue.runtime import broker as broker_module
from goqueue.runtime.tracing import tracer as tracer_module
from tests.runtime.rig import Rig, run
from tests.runtime.test_consume import Shop


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


def inside(thing: object, name: str) -> Any:
    """What a long-lived object holds: its length is what these tests are about."""
    return getattr(thing, name)


def test_the_tracer_forgets_a_lease_with_its_end() -> None:
    """Only what is leased now is remembered, however many leases there were."""

    async def main() -> None:
        shop = await Shop().open(trace_sampling="1")
        member = await shop.join()
        tracer = shop.rig.broker.tracing.tracer
        for verb in ("ack", "nack", "reject", "release", "ack"):
            await shop.publish("a", "b", "c")
            (part,) = await shop.poll(member)
            assert tracer.lease(part.nonce) is not None
            await shop.settle(verb, part)

            assert tracer.lease(part.nonce) is None
            shop.later(2_000)
        assert not inside(tracer, "_leases")

    run(main())


def test_the_tracer_keeps_a_lease_that_is_settled_in_part() -> None:
    """What is still leased is noted with the moment its lease began."""

    async def main() -> None:
        shop = await Shop().open(trace_sampling="1")
        member = await shop.join()
        await shop.publish("a", "b")
        (part,) = await shop.poll(member)
        await shop.settle("ack", part, [0])

        assert shop.rig.broker.tracing.tracer.lease(part.nonce) is not None

    run(main())


def test_memories_of_traces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound the oldest are forgotten."""
    monkeypatch.setattr(tracer_module, "TRACE_MEMORIES_MAX", 160)

    async def main() -> None:
        rig = Rig()
        broker = await rig.start()
        tracer = broker.tracing.tracer
        for offset in range(1_000):
            tracer.remember_doom(7, BitMap64([offset]), offset)

            assert len(inside(tracer, "_dooms")) <= 160
        assert tracer.take_doom(7, 999) == 999
        assert tracer.take_doom(7, 0) is None

    run(main())
    assert limits.TRACE_MEMORIES_MAX * 400 <= limits.RECENT_BYTES_MAX
