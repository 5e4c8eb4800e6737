"""Real clients of every kind at work, and what each of them was told."""

import threading
import time
from collections import Counter, defaultdict, deque
from random import Random
from typing import Final, NoReturn

import goqueue
from goqueue.base.errors import ClosedError, GoQueueError
from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.client.consumer.options import Refusal
from goqueue.client.producer.pile import SendFuture
from goqueue.testing.conservation_checker import ConservationChecker

ORDERS, LATER, ACCOUNTS = TopicName("orders"), TopicName("later"), TopicName("accounts")
TOPICS: Final = {ORDERS: 6, LATER: 3, ACCOUNTS: 3}
KEYS: Final = 48
CLIENT_TIMEOUT_S: Final = 60
GROUPS: Final[dict[str, dict[str, object]]] = {
    "plain": {},
    "shared": {"mode": "shared"},
    "keyed": {"ordering": "key"},
}


def place_of(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionId(partition))


class Told:
    """What clients were told, put together; one lock for all of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.began = time.monotonic()
        self.groups = ConservationChecker()
        self.delivered: dict[tuple[str, TopicPartition], set[int]] = defaultdict(set)
        self.acks: dict[tuple[str, TopicPartition, int], str] = {}
        """How each confirmed ack came to be, for findings."""
        self.faults: list[str] = []
        self.errors: Counter[str] = Counter()
        """Errors that reached a client, by client and code: none of them is a broken promise."""
        self.committed: set[str] = set()
        self.aborted: set[str] = set()
        self.unknown: set[str] = set()
        self.counts: Counter[str] = Counter()

    def age(self) -> str:
        """Return the time, as findings show it."""
        return f"at {time.monotonic() - self.began:.3f} s"

    def error(self, who: str, error: BaseException) -> None:
        """Note an error; one that is not ours is a fault of the client."""
        with self.lock:
            if isinstance(error, GoQueueError):
                self.errors[f"{who} {error.code}"] += 1
            else:
                self.faults.append(f"{who} met {error!r}")


class Worker(threading.Thread):
    """Does something again and again until told to stop, over as many clients as it takes."""

    def __init__(self, name: str, addresses: str, told: Told) -> None:
        super().__init__(name=name, daemon=True)
        self.told = told
        self._addresses = addresses
        self.over = threading.Event()

    def run(self) -> None:
        """Work; an error ends one client and begins another."""
        while not self.over.is_set():
            try:
                with goqueue.connect(self._addresses, timeout=CLIENT_TIMEOUT_S) as client:
                    self.work(client)
            except ClosedError:
                return
            except Exception as error:  # noqa: BLE001 - judged by its kind
                self.told.error(self.name, error)
                self.over.wait(0.1)

    def work(self, client: goqueue.Client) -> None:
        """Work until told to stop, or until an error."""
        raise NotImplementedError

    def finish(self) -> None:
        """Stop, and wait for it."""
        self.over.set()
        self.join(3 * CLIENT_TIMEOUT_S)
        if self.is_alive():
            self.told.faults.append(f"{self.name} does not end")


class Publisher(Worker):
    """Publishes numbered messages and remembers every future."""

    def __init__(self, name: str, addresses: str, told: Told) -> None:
        super().__init__(name, addresses, told)
        self.sent: list[tuple[bytes, bytes, SendFuture]] = []
        self.acked_at: dict[int, float] = {}
        self.longest: dict[int, float] = {}
        """The longest time between two acks of each partition since it was last cleared."""
        self._acks: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=20_000))

    def first_ack(self, partition: int, since: float) -> float:
        """Return when a partition acknowledged a message first since then; 0 if it did not."""
        return next((one for one in tuple(self._acks[partition]) if one > since), 0.0)

    def work(self, client: goqueue.Client) -> None:
        """Send in small bursts, so that a fault finds requests at every stage."""
        with client.producer(ORDERS, linger_ms=1) as producer:
            while not self.over.wait(0.02):
                for _ in range(4):
                    number = len(self.sent)
                    value, key = b"%s-%d" % (self.name.encode(), number), b"k%d" % (number % KEYS)
                    future = producer.send(value, key=key)
                    future.add_done_callback(self._note)
                    self.sent.append((value, key, future))

    def _note(self, future: SendFuture) -> None:
        error = future.exception()
        if error is not None:
            self.told.error(self.name, error)
            return
        partition, now = future.result().partition, time.monotonic()
        before = self.acked_at.get(partition, now)
        self.longest[partition] = max(self.longest.get(partition, 0.0), now - before)
        self.acked_at[partition] = now
        self._acks[partition].append(now)


class Follower(Worker):
    """Reads along as a stream: in order, without gaps; what it saw must still be there later."""

    def __init__(self, name: str, addresses: str, told: Told) -> None:
        super().__init__(name, addresses, told)
        self.seen: dict[tuple[int, int], bytes] = {}

    def work(self, client: goqueue.Client) -> None:
        """Read until the client is closed."""
        closing = threading.Thread(target=self._close, args=(client,), daemon=True)
        closing.start()
        following: dict[int, int] = {}
        for message in client.read(ORDERS, follow=True):
            expected = following.get(message.partition, message.offset)
            if message.offset != expected:
                self.told.faults.append(
                    f"{self.name} read {message.partition}@{message.offset}, not {expected}"
                )
            following[message.partition] = message.offset + 1
            known = self.seen.setdefault((message.partition, message.offset), message.value or b"")
            if known != message.value:
                self.told.faults.append(f"{message.offset} was {known!r}, is {message.value!r}")

    def _close(self, client: goqueue.Client) -> None:
        self.over.wait()
        client.close()


class Consumer(Worker):
    """Takes messages of a group, acks most of them, gives some back."""

    def __init__(self, name: str, addresses: str, told: Told, *, topic: str, seed: int) -> None:
        super().__init__(name, addresses, told)
        self.group = name.partition("-")[0]
        self._topic = topic
        self._chance = Random(seed)
        self._refused: set[tuple[str, int, int]] = set()

    def work(self, client: goqueue.Client) -> None:
        """Poll and settle; what a confirmed flush did not refuse is settled."""
        with client.consumer(
            self.group,
            [self._topic],
            max_retries=1_000,
            on_refused=self._refuse,
            prefetch=100,
            **GROUPS.get(self.group, {}),
        ) as consumer:
            while not self.over.is_set():
                self._take(consumer)

    def _refuse(self, refusal: Refusal) -> None:
        self._refused.add((refusal.topic, refusal.partition, refusal.offset))

    def _take(self, consumer: goqueue.Consumer) -> None:
        batch = consumer.poll(max_messages=50, timeout=0.3)
        if not batch:
            return
        self._note(batch)
        acked: list[goqueue.Delivery] = []
        self._refused.clear()
        for one in batch:
            if self._chance.random() < 0.02:
                one.nack(delay=0.1)
            else:
                one.ack()
                acked.append(one)
        consumer.flush()
        with self.told.lock:
            for one in acked:
                if (one.topic, one.partition, one.offset) not in self._refused:
                    place = place_of(one.topic, one.partition)
                    self.told.groups.settled(self.group, place, [one.offset])
                    self.told.acks[self.group, place, one.offset] = (
                        f"by {self.name} {self.told.age()}, its {one.delivery_count}. time"
                    )
                    self.told.counts[f"acks confirmed in {self.group}"] += 1

    def _note(self, batch: list[goqueue.Delivery]) -> None:
        now_ms = time.time_ns() // 1_000_000
        with self.told.lock:
            for one in batch:
                failed = {int(one.offset): one.delivery_count - 1}
                place = place_of(one.topic, one.partition)
                if one.offset in self.told.groups.acked[self.group, place]:
                    self.told.faults.append(
                        f"{self.name} got {place}@{one.offset} for the {one.delivery_count}. time"
                        f" {self.told.age()}, acked {self.told.acks[self.group, place, one.offset]}"
                    )
                self.told.groups.delivered(self.group, place, [one.offset], failed)
                self.told.delivered[self.group, place].add(one.offset)
                if self._topic == LATER and one.value and int(one.value) > now_ms:
                    self.told.faults.append(f"{place}@{one.offset} came {one.value!r} at {now_ms}")


class Delayer(Worker):
    """Publishes messages that are to come later; each says when."""

    def __init__(self, name: str, addresses: str, told: Told) -> None:
        super().__init__(name, addresses, told)
        self.acked: list[tuple[int, int]] = []

    def work(self, client: goqueue.Client) -> None:
        """Publish one after the other."""
        chance = Random(self.name)
        with client.producer(LATER) as producer:
            while not self.over.wait(0.1):
                delay_ms = chance.choice((300, 1_500, 6_000))
                due_ms = time.time_ns() // 1_000_000 + delay_ms
                try:
                    placed = producer.publish(
                        b"%d" % due_ms, partition=chance.randrange(3), delay=delay_ms / 1_000 + 0.01
                    )
                except GoQueueError as error:
                    self.told.error(self.name, error)
                    continue
                self.acked.append((placed.partition, placed.offset))


class Transfers(Worker):
    """Publishes both sides of transfers in transactions, and takes some back."""

    def work(self, client: goqueue.Client) -> None:
        """One transaction after the other; an error leaves the last one in doubt."""
        with client.producer(
            ACCOUNTS, transactional_id=self.name, transaction_timeout_ms=15_000
        ) as producer:
            while not self.over.wait(0.05):
                self._transfer(producer)

    def _transfer(self, producer: goqueue.Producer) -> None:
        number = self.told.counts["transactions"]
        name, is_abort = f"{self.name}-{number}", number % 7 == 3
        self.told.counts["transactions"] += 1
        self.told.unknown.add(name)
        transaction = producer.transaction()
        try:
            with transaction as open_:
                open_.send(f"{name} +".encode(), key=b"a%d" % (number % 5))
                open_.send(f"{name} -".encode(), key=b"b%d" % (number % 7))
                if is_abort:
                    _take_back()
        except _WantedError:
            self._know(name, self.told.aborted)
            return
        self._know(name, self.told.committed)

    def _know(self, name: str, where: set[str]) -> None:
        self.told.unknown.discard(name)
        where.add(name)


class _WantedError(Exception):
    """Ends a transaction that is to be taken back."""


def _take_back() -> NoReturn:
    raise _WantedError
