"""Several consumers in one group: sharing, handing over, falling silent."""

import threading
from collections import Counter
from collections.abc import Iterable

import pytest

import goqueue
from tests.client.consuming import SECONDS_MAX, eventually, lag, publish, take


class Worker:
    """A consumer in a thread, which acks what it gets and remembers it."""

    def __init__(self, client: goqueue.Client, group: str, topic: str, **options: object) -> None:
        self.consumer = client.consumer(group, [topic], **options)
        self.seen: list[tuple[int, int, int]] = []
        self.refused: list[goqueue.Refusal] = []
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        for message in self.consumer:
            self.seen.append((message.partition, message.offset, message.delivery_count))
            message.ack()

    def close(self) -> None:
        self.consumer.close()
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive()


def test_two_consumers_share(broker: goqueue.Client, orders: str, group: str) -> None:
    """Each partition has one consumer, every message one delivery."""
    first, second = Worker(broker, group, orders), Worker(broker, group, orders)
    eventually(lambda: _sizes(first, second) == [1, 2], "a share for each")
    publish(broker, orders, 3_000)
    eventually(lambda: len(first.seen) + len(second.seen) >= 3_000)
    eventually(lambda: lag(broker, group) == 0)
    first.close()
    second.close()

    assert first.seen
    assert second.seen
    assert not {one[0] for one in first.seen} & {one[0] for one in second.seen}
    assert set(Counter(first.seen + second.seen).values()) == {1}


def _sizes(*workers: Worker) -> list[int]:
    return sorted(len(worker.consumer.assignment) for worker in workers)


@pytest.mark.parametrize("ordering", ["none", "key"])
def test_members_come_and_go_under_load(
    broker: goqueue.Client, orders: str, group: str, ordering: str
) -> None:
    """Partitions move with nothing lost and nothing delivered twice."""
    workers = [Worker(broker, group, orders, ordering=ordering)]
    stop = threading.Event()
    published = []

    def produce() -> None:
        with broker.producer(orders) as producer:
            while not stop.is_set():
                for number in range(100):
                    producer.send(b"x", key=b"%d" % number)
                    published.append(number)
                producer.flush()

    producing = threading.Thread(target=produce)
    producing.start()
    for _ in range(2):
        workers.append(Worker(broker, group, orders, ordering=ordering))
        eventually(lambda: len(workers[-1].seen) > 100, "a newcomer's share")
    workers[0].close()
    count = len(workers[1].seen)
    eventually(lambda: len(workers[1].seen) > count + 100)
    stop.set()
    producing.join(SECONDS_MAX)
    eventually(lambda: lag(broker, group) == 0)
    for worker in workers:
        worker.close()

    seen = [one for worker in workers for one in worker.seen]
    assert len(seen) == len(published)
    assert set(Counter(seen).values()) == {1}
    assert {count for _, _, count in seen} == {1}


def test_what_is_in_hand_is_finished_before_a_partition_moves(
    broker: goqueue.Client, orders: str, group: str
) -> None:
    """A newcomer waits for the message being handled; it is not delivered twice."""
    publish(broker, orders, 300)
    first = broker.consumer(group, [orders])
    messages = iter(first)
    in_hand = next(messages)
    second = Worker(broker, group, orders)
    eventually(lambda: first.assignment != [(orders, n) for n in range(3)], "the rebalance")
    in_hand.ack()
    for message in take(messages, 50):
        message.ack()
    threading.Thread(target=_ack_all, args=(messages,), daemon=True).start()
    eventually(lambda: lag(broker, group) == 0)

    assert (in_hand.partition, in_hand.offset, 2) not in second.seen
    assert {count for _, _, count in second.seen} <= {1}
    first.close()
    second.close()


def _ack_all(messages: Iterable[goqueue.Delivery]) -> None:
    for message in messages:
        message.ack()


def test_shared_mode_has_more_consumers_than_partitions(broker: goqueue.Client, group: str) -> None:
    """All of them work on one partition."""
    topic = f"single-{group}"
    broker.create_topic(topic, partitions=1)
    workers = [Worker(broker, group, topic, mode="shared", prefetch=10) for _ in range(3)]
    values = publish(broker, topic, 3_000)

    def has_each_a_share() -> bool:
        # Two may be so quick that nothing of the first thousands is left for the third.
        values.extend(publish(broker, topic, 300))
        return all(worker.seen for worker in workers)

    eventually(has_each_a_share, "a share for each")
    eventually(lambda: sum(len(worker.seen) for worker in workers) >= len(values))
    for worker in workers:
        worker.close()

    assert all(worker.seen for worker in workers)
    seen = [one for worker in workers for one in worker.seen]
    assert set(Counter(seen).values()) == {1}
    assert len(seen) == len(values)


def test_an_evicted_consumer_comes_back(broker: goqueue.Client, orders: str, group: str) -> None:
    """A group that was deleted under its consumer is joined again; a new group begins anew."""
    publish(broker, orders, 10)
    worker = Worker(broker, group, orders)
    eventually(lambda: len(worker.seen) == 10 and lag(broker, group) == 0)
    before = worker.consumer.member_id
    broker.delete_group(group, force=True)
    eventually(lambda: worker.consumer.member_id not in ("", before), "joining again")
    eventually(lambda: len(worker.seen) >= 20)
    worker.close()

    assert sorted(worker.seen) == sorted(2 * worker.seen[:10])


def test_eager_groups(broker: goqueue.Client, orders: str, group: str) -> None:
    """With the eager protocol everything moves at once, and nothing is lost."""
    first = Worker(broker, group, orders, protocol="eager")
    second = Worker(broker, group, orders, protocol="eager")
    publish(broker, orders, 1_000)
    eventually(lambda: lag(broker, group) == 0 and len(first.seen) + len(second.seen) >= 1_000)
    first.close()
    second.close()

    assert {one[:2] for one in first.seen + second.seen} == {
        (partition, offset)
        for (_, partition), end in broker.group_offsets(group).items()
        for offset in range(end)
    }
