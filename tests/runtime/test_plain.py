"""Messages that are a key and a value only are published as any others are."""

from random import Random

import pytest

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import Position
from goqueue.core.record.message import Draft
from goqueue.runtime.log import plain
from goqueue.runtime.log.plain import publish_plain
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, run

PARTITIONS = 3
REQUESTS = 25


def columns(random: Random) -> tuple[list[bytes | None], list[bytes]]:
    """Return keys and values of a request, few or many."""
    count = random.choice([1, 2, 30, 31, 32, 33, 100, 400])
    keys = [random.choice([None, b"", b"k", random.randbytes(5)]) for _ in range(count)]
    return keys, [random.randbytes(random.randrange(30)) for _ in range(count)]


async def published_by(rig: Rig, seed: int, *, is_plain: bool) -> tuple[list[object], list[bytes]]:
    """Publish the requests of a seed; return what was answered and what the logs hold."""
    random = Random(seed)
    await rig.start()
    topic = rig.broker.create_topic("orders", partitions=PARTITIONS)
    answers: list[object] = []
    for _ in range(REQUESTS):
        keys, values = columns(random)
        now_us = rig.clock.now_us()
        rig.clock.advance(random.randrange(1_000))
        if random.random() < 0.1:
            rig.disk.fill_up(random.randrange(2_000), path_glob="logs/orders/*")
        if is_plain:
            found = await publish_plain(PUBLISHING, topic, keys, values, timestamp_us=now_us)
        else:
            pairs = zip(keys, values, strict=True)
            drafts = [Draft(key=key, value=value, timestamp_us=now_us) for key, value in pairs]
            found = await topic.publish_drafts(PUBLISHING, [(draft, None) for draft in drafts])
        rig.disk.make_room()
        answers += [
            (one.code, one.message) if isinstance(one, GoQueueError) else one for one in found
        ]
    paths = [f"logs/orders/{number}/{0:020}.log" for number in range(PARTITIONS)]
    return answers, [bytes(rig.disk.open(path).read(Position(0), 1 << 30)) for path in paths]


@pytest.mark.parametrize("seed", range(10))
def test_publish_plain_and_publish_drafts_do_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same places and refusals, the same bytes in the log."""
    # So that some requests are too large to be published as columns.
    monkeypatch.setattr(plain, "PLAIN_BYTES_MAX", 30_000)

    async def main() -> None:
        by_columns = await published_by(Rig(), seed, is_plain=True)
        by_drafts = await published_by(Rig(), seed, is_plain=False)

        assert by_columns == by_drafts
        assert any(by_columns[1])

    run(main())
