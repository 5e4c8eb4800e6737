"""What transactions cost: publishing in them, reading around aborted ones, ending, starting again.

Publishing is measured by one producer and by several: a transaction waits for the disk, and only
others can use that time.
"""

import asyncio
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import uvloop

import goqueue
from benchmarks.peers.goqueue import LINGER_MS, GoQueue
from benchmarks.peers.peer import PARTITIONS
from benchmarks.percentiles import latency_summary
from benchmarks.results import Better
from benchmarks.trial import P50, P99, RATE, Bench, Measured, Metric, Trial, Workload
from goqueue.base.caller import EMBEDDED
from goqueue.base.deeds import Deed
from goqueue.config.model import BrokerConfig
from goqueue.core.record.batch import pack_batch
from goqueue.core.record.columns import build_batch
from goqueue.core.record.stamp import NO_STAMP
from goqueue.core.tx.producer import ABORT, Identity
from goqueue.runtime.broker import Broker
from goqueue.service.gate import Gate
from goqueue.storage.local import LocalDisk

VALUE_BYTES = 100
ROWS = 1_000
PRODUCERS = 8
SHARE = 4
"""Of the messages of a run this part is read back."""
ABORTED_EVERY = 10
SINGLES = 500
ABORTED = 100_000
ABORTED_QUICK = 2_000
TOPIC = "aborted"
SERVE = Metric(name="serve", unit="ms", better=Better.LOWER)
"""From starting ``goqueue serve`` after a kill to its first answer."""
RESIDENT = Metric(name="resident", unit="MB", better=Better.LOWER)

Send = Callable[[goqueue.Client, str, str, int], None]


def trials(bench: Bench) -> list[Trial]:
    """Alternate with and without transactions."""
    name = bench.goqueue.name
    found = [
        Trial(case=case, peer=name, measure=partial(publish, bench, send, producers))
        for case, send, producers in (
            ("plain", plain, 1),
            ("in transactions", in_transactions, 1),
            (f"plain, {PRODUCERS} producers", plain, PRODUCERS),
            (f"in transactions, {PRODUCERS} producers", in_transactions, PRODUCERS),
        )
    ]
    found += [
        Trial(case=isolation, peer=name, measure=partial(read, bench, isolation))
        for isolation in ("read_uncommitted", "read_committed")
    ]
    found.append(
        Trial(case="begin, one message, commit", peer=name, measure=partial(single, bench))
    )
    found.append(Trial(case="restart", peer=name, measure=partial(restart, bench)))
    return found


def plain(client: goqueue.Client, topic: str, _: str, count: int) -> None:
    """Publish without transactions."""
    with client.producer(topic, linger_ms=LINGER_MS) as producer:
        value, send = bytes(VALUE_BYTES), producer.send
        for number in range(count):
            send(value, key=b"%d" % number)


def in_transactions(client: goqueue.Client, topic: str, name: str, count: int) -> None:
    """Publish a transaction at a time."""
    with client.producer(topic, linger_ms=LINGER_MS, transactional_id=name) as producer:
        value = bytes(VALUE_BYTES)
        for first in range(0, count, ROWS):
            with producer.transaction() as tx:
                send = tx.send
                for number in range(first, first + ROWS):
                    send(value, key=b"%d" % number)


def publish(bench: Bench, send: Send, producers: int) -> Measured:
    """Publish with so many producers at once, to a topic of its own."""
    topic = bench.fresh_topic()
    share = bench.options.messages // producers // ROWS * ROWS
    with goqueue.connect(bench.goqueue.client().address) as client:
        client.create_topic(topic, partitions=PARTITIONS)
        threads = [
            threading.Thread(target=send, args=(client, topic, f"{topic}-{number}", share))
            for number in range(producers)
        ]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - start
        assert sum(batch.num_rows for batch in client.read_batches(topic)) == share * producers
        client.delete_topic(topic)
    return {RATE: share * producers / seconds}


def read(bench: Bench, isolation: str) -> Measured:
    """Read a topic as Arrow batches, of which every tenth transaction was aborted."""
    topic = bench.fresh_topic()
    count = bench.options.messages // SHARE // ROWS * ROWS
    with goqueue.connect(bench.goqueue.client().address) as client:
        client.create_topic(topic, partitions=PARTITIONS)
        _publish_some_aborted(client, topic, count)
        start = time.perf_counter()
        rows = sum(batch.num_rows for batch in client.read_batches(topic, isolation=isolation))
        seconds = time.perf_counter() - start
        client.delete_topic(topic)
    assert rows == count if isolation == "read_uncommitted" else rows < count
    # What is passed over counts, too: both read the same bytes.
    return {RATE: count / seconds}


def _publish_some_aborted(client: goqueue.Client, topic: str, count: int) -> None:
    with client.producer(topic, transactional_id=topic) as producer:
        value = bytes(VALUE_BYTES)
        for number in range(count // ROWS):
            tx = producer.transaction()
            tx.begin()
            for row in range(ROWS):
                tx.send(value, key=b"%d" % row)
            if number % ABORTED_EVERY:
                tx.commit()
            else:
                producer.flush()
                tx.abort()


def single(bench: Bench) -> Measured:
    """Time transactions of one message, one after the other."""
    topic = bench.fresh_topic()
    seconds: list[float] = []
    with goqueue.connect(bench.goqueue.client().address) as client:
        client.create_topic(topic, partitions=PARTITIONS)
        with client.producer(topic, transactional_id=topic) as producer:
            for _ in range(SINGLES):
                start = time.perf_counter()
                with producer.transaction() as tx:
                    tx.send(bytes(VALUE_BYTES))
                seconds.append(time.perf_counter() - start)
        client.delete_topic(topic)
    summary = latency_summary(seconds)
    return {P50: summary["p50"], P99: summary["p99"]}


def restart(bench: Bench) -> Measured:
    """Start a broker on a log full of aborted transactions, after a kill."""
    directory = bench.scratch / "aborted"
    count = ABORTED_QUICK if bench.options.quick else ABORTED
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_abort_many(directory / "data", count))
    broker = GoQueue(directory)
    try:
        broker.start()
        broker.kill()
        broker = GoQueue(directory)
        start = time.perf_counter()
        broker.start()
        with goqueue.connect(broker.client().address) as client:
            assert not list(client.read(TOPIC)), "nothing was committed"
        seconds = time.perf_counter() - start
        resident = broker.rss_bytes() / 1e6
    finally:
        broker.kill()
        shutil.rmtree(directory, ignore_errors=True)
    return {SERVE: seconds * 1_000, RESIDENT: resident}


async def _abort_many(directory: Path, count: int) -> None:
    """Abort transactions of one message, many at once, in a broker of this process."""
    broker = Broker(BrokerConfig(data_dir=str(directory)), LocalDisk(directory))
    await broker.start()
    broker.create_topic(TOPIC, partitions=1)
    producers = min(count, 500)
    await asyncio.gather(
        *(_abort_on(broker, f"p-{number}", count // producers) for number in range(producers))
    )
    await broker.stop()


async def _abort_on(broker: Broker, name: str, count: int) -> None:
    transactions = broker.transactions
    grant = Gate().admit(EMBEDDED, Deed.PUBLISH)
    stamp = (await transactions.init(name)).stamp
    for _ in range(count):
        who = Identity(producer_id=stamp.producer_id, epoch=stamp.epoch)
        frame = _frame(await transactions.begin(who))
        await transactions.publish(grant, who, TOPIC, [(0, memoryview(frame))])
        await transactions.end(who, ABORT)


def _frame(number: int) -> bytes:
    now_us = time.time_ns() // 1_000
    batch, column_set = build_batch(
        keys=[None], values=[bytes(VALUE_BYTES)], timestamps_us=[now_us]
    )
    packed = pack_batch(
        batch,
        column_set=column_set,
        first_timestamp_us=now_us,
        last_timestamp_us=now_us,
        transaction=number,
    )
    return packed.frame(NO_STAMP)


WORKLOAD = Workload(
    name="tx",
    title="transactions: publishing, reading around aborted ones, ending, starting again",
    trials=trials,
    rounds_max=3,
)
