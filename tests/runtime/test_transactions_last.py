"""The last messages of a transaction that bring its commit do what two requests do (P9)."""

import secrets
from random import Random

import pytest

from goqueue.base.errors import GoQueueError
from goqueue.core.tx.producer import ABORT, COMMIT, Identity
from goqueue.runtime import broker as broker_module
from goqueue.runtime.log.published import Published
from goqueue.runtime.tx.transactions import Last
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import run
from tests.runtime.test_transactions import Bank
from tests.runtime.test_transactions_pipelined import after


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)
    monkeypatch.setattr(broker_module, "TX_STATE_PARTITIONS", 1)


Request = tuple[Identity, list[tuple[int, memoryview]], Last]


async def asked(bank: Bank, request: Request, *, is_quick: bool) -> list[object]:
    """Publish and commit in one step or in two; return what is said of each part and the end."""
    who, parts, last = request
    said: list[object] = []
    try:
        if is_quick:
            outcomes, ended = await bank.tx.publish_last(PUBLISHING, who, "accounts", parts, last)
            said += [*outcomes, ended]
        else:
            said += await bank.tx.publish(PUBLISHING, who, "accounts", parts)
            said.append(await bank.tx.end(who, COMMIT, token=last.token, messages=last.messages))
    except GoQueueError as error:
        said.append(error)
    return said


def last_request(bank: Bank, mine: Identity, random: Random, *, count: int) -> Request:
    """Return messages that follow ``count`` others and commit; some are not as they ought to be."""
    places = random.choice([[0], [1], [0, 1]])
    parts = [(place, bank.raw(mine, place, f"{random.random()}")) for place in places]
    if random.random() < 0.1:
        parts.append(random.choice([(0, memoryview(b"nonsense")), (7, memoryview(b""))]))
    messages = max(count + len(places) + random.choice([0, 0, 0, -1, 1, 1]), 1)
    return mine, parts, Last(messages, random.choice(["", "note"]))


async def some_transactions(seed: int, *, is_quick: bool) -> list[object]:
    """Return all that is said about the transactions of a seed, and what they leave."""
    random = Random(seed)
    bank = await Bank().open()
    mine = await bank.begin(await bank.init())
    told: list[object] = []
    requests: list[Request] = []
    count = 0
    for _ in range(50):
        if not requests or random.random() < 0.8:
            requests.append(last_request(bank, mine, random, count=count))
        request = requests[-1] if random.random() < 0.9 else random.choice(requests)
        is_over = random.random() < 0.1 and await bank.tx.end(mine, ABORT)
        said = await asked(bank, request, is_quick=is_quick)
        for one in said:
            if isinstance(one, Published) and not one.is_duplicate:
                bank.note(request[0], one.partition, 1)
                count += 1
        told += [str(one) if isinstance(one, GoQueueError) else one for one in said]
        if is_over or (request[0] is mine and said[-1] is True):
            mine, count = after(mine), 0
    told += [await bank.read(0), await bank.read(1)]
    await bank.rig.stop()
    return told


@pytest.mark.parametrize("seed", range(8))
def test_publish_last_does_what_publish_and_end_do(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is asked: too few, too many, again, late, of a transaction that was undone."""

    async def main() -> None:
        told: list[list[object]] = []
        for is_quick in (True, False):
            monkeypatch.setattr(secrets, "randbits", Random(seed).getrandbits)
            told.append(await some_transactions(seed, is_quick=is_quick))

        assert told[0] == told[1]
        assert True in told[0]
        assert False in told[0]

    run(main())
