"""What one thread sends to one partition stays in order, however threads take turns."""

import sys
from pathlib import Path

import goqueue

ROUNDS = 60
MESSAGES = 400


def test_piles_do_not_overtake_each_other(tmp_path: Path) -> None:
    """P7: small piles without linger are sealed by the caller and by the sender's free slots."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with goqueue.open(tmp_path / "data") as client:
            client.create_topic("order", partitions=1, durability="os")
            for number in range(ROUNDS):
                with client.producer(
                    "order", linger_ms=0, batch_bytes=1_000, buffer_bytes=20_000
                ) as producer:
                    futures = [producer.send(b"%d" % one, key=b"k") for one in range(MESSAGES)]
                offsets = [future.result().offset for future in futures]

                first = number * MESSAGES
                assert offsets == list(range(first, first + MESSAGES))
    finally:
        sys.setswitchinterval(before)
