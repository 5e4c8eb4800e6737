"""The ack of a whole lease is stored without its offsets; a restart knows them all the same."""

import pytest

from goqueue.core.delivery import events
from goqueue.core.delivery.runs import count_of, numbers_in
from goqueue.runtime import broker as broker_module
from goqueue.runtime.machine import MachineHost
from tests.runtime.rig import run
from tests.runtime.test_consume import ORDERS, Shop, texts

pytestmark = pytest.mark.usefixtures("both_places")

KEYS = 30


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> list[events.Acked]:
    """Gather the acks as they are stored."""
    found: list[events.Acked] = []
    commit = MachineHost.commit

    def note(
        self: MachineHost[events.Event],
        happened: list[events.Event],
        *,
        stored: list[events.Event] | None = None,
    ) -> None:
        found.extend(one for one in stored or () if isinstance(one, events.Acked))
        commit(self, happened, stored=stored)

    monkeypatch.setattr(MachineHost, "commit", note)
    return found


async def _shop() -> tuple[Shop, str]:
    """Return a shop with three messages of each key, one behind the other."""
    shop = Shop()
    await shop.open()
    await shop.publish(*(f"{chr(65 + key)}{number}" for key in range(KEYS) for number in range(3)))
    return shop, await shop.join(ordering="key")


def _expected(number: int) -> list[str]:
    return [f"{chr(65 + key)}{number}" for key in range(KEYS)]


@pytest.mark.parametrize("is_crash", [False, True])
def test_a_restart_knows_what_was_acked(stored: list[events.Acked], *, is_crash: bool) -> None:
    """The next messages of all keys are next; nothing comes again."""

    async def scenario() -> None:
        shop, member = await _shop()
        (part,) = await shop.poll(member)
        assert texts(part) == _expected(0)
        await shop.settle("ack", part, written=part.order)
        assert stored == [events.Acked(offsets=[], nonce=part.nonce)]
        await (shop.crash() if is_crash else shop.restart())

        (part,) = await shop.poll(member)

        assert texts(part) == _expected(1)
        hosted = shop.rig.broker.consume.ledgers.of("g")[ORDERS]
        assert hosted.ledger.outcomes[0] == KEYS
        assert hosted.lag() == 2 * KEYS

    run(scenario())


def test_a_part_of_a_lease_is_named(stored: list[events.Acked]) -> None:
    """And so is the rest, which a restart must tell from what is still held."""

    async def scenario() -> None:
        shop, member = await _shop()
        (part,) = await shop.poll(member)
        offsets = numbers_in(part.order).tolist()
        await shop.settle("ack", part, offsets[:20])
        assert count_of(stored[0].offsets) == 20
        await shop.crash()
        assert await shop.values(member) == _expected(1)[:20]

        await shop.settle("ack", part, offsets[20:])
        await shop.crash()

        assert await shop.values(member) == _expected(1)[20:]

    run(scenario())


def test_a_snapshot_between_lease_and_ack(stored: list[events.Acked]) -> None:
    """The lease is in the snapshot, packed; the ack behind it finds it there."""

    async def scenario() -> None:
        shop, member = await _shop()
        (part,) = await shop.poll(member)
        hosted = shop.rig.broker.consume.ledgers.of("g")[ORDERS]
        (restored,) = hosted.ledger.snapshot()
        assert isinstance(restored, events.Restored)
        assert isinstance(restored.leases[0].offsets, bytes)
        hosted.host.note_damage()
        await shop.settle("ack", part, written=part.order)
        assert stored == [events.Acked(offsets=[], nonce=part.nonce)]
        await shop.crash()

        assert await shop.values(member) == _expected(1)

    run(scenario())
