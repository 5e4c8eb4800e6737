"""All clients of a run: they begin together, and end in an order in which nothing is left over."""

import time
from collections import Counter
from collections.abc import Mapping

import goqueue
from goqueue.base.ids import TopicName
from tests.chaos.load import (
    GROUPS,
    LATER,
    ORDERS,
    TOPICS,
    Consumer,
    Delayer,
    Follower,
    Publisher,
    Told,
    Transfers,
    Worker,
)
from tests.chaos.metadata import Registrar
from tests.chaos.nodes import HTTP, Fleet, wait_until

DRAIN_SECONDS_MAX = 120
FLUSH_SECONDS_MAX = 150


class Crew:
    """Publishers, consumers, a stream reader, transactions, delays, and those who make topics."""

    def __init__(self, fleet: Fleet) -> None:
        addresses = fleet.addresses
        self.told = told = Told()
        self.publishers = [Publisher(f"p{row}", addresses, told) for row in range(2)]
        self.delayer = Delayer("delayer", addresses, told)
        self.transfers = Transfers("transfers", addresses, told)
        self.follower = Follower("follower", addresses, told)
        self.consumers = [
            Consumer(f"{group}-{row}", addresses, told, topic=ORDERS, seed=row)
            for group in GROUPS
            for row in range(2)
        ]
        self.consumers.append(Consumer("late-0", addresses, told, topic=LATER, seed=9))
        http = [f"{one.address}:{HTTP}" for one in fleet.nodes.values()]
        self.registrars = [Registrar(f"m{row}", http, row) for row in range(2)]

    @property
    def groups(self) -> Mapping[str, TopicName]:
        """The groups, and what each consumes."""
        return {**dict.fromkeys(GROUPS, ORDERS), "late": LATER}

    def start(self) -> None:
        """Set all of them to work."""
        for one in (*self._senders(), self.follower, *self.consumers, *self.registrars):
            one.start()

    def _senders(self) -> list[Worker]:
        return [*self.publishers, self.delayer, self.transfers]

    def begin_round(self, number: int) -> None:
        """Begin to measure pauses, and topics with other names."""
        for registrar in self.registrars:
            registrar.round = number
        for publisher in self.publishers:
            publisher.longest.clear()

    def acked_at(self) -> list[float]:
        """Return when each partition last acknowledged a message; 0 if it never did."""
        return [
            max(one.acked_at.get(number, 0.0) for one in self.publishers)
            for number in range(TOPICS[ORDERS])
        ]

    def first_acks(self, since: float) -> list[float]:
        """Return when each partition acknowledged a message first since then, if it did."""
        found: list[float] = []
        for number in range(TOPICS[ORDERS]):
            acks = [one.first_ack(number, since) for one in self.publishers]
            found += [min(one for one in acks if one)] if any(acks) else []
        return found

    def pauses(self) -> list[float]:
        """Return the longest pause of each partition since the round began."""
        now = time.monotonic()
        return [
            min(
                max(one.longest.get(number, 0.0), now - one.acked_at.get(number, now))
                for one in self.publishers
            )
            for number in range(TOPICS[ORDERS])
        ]

    def finish_sending(self) -> list[str]:
        """Stop sending and making topics; return what did not end."""
        for worker in self._senders():
            worker.over.set()
        for registrar in self.registrars:
            registrar.over.set()
        for worker in self._senders():
            worker.finish()
        for registrar in self.registrars:
            registrar.join()
        futures = [future for one in self.publishers for _, _, future in one.sent]
        if wait_until(lambda: all(one.done() for one in futures), FLUSH_SECONDS_MAX) is None:
            return [f"{sum(not one.done() for one in futures)} messages are never settled"]
        return []

    def drain(self, client: goqueue.Client) -> list[str]:
        """Wait until every group has settled everything; return what is left."""
        wait_until(lambda: not any(self._left(client).values()), DRAIN_SECONDS_MAX)
        return [
            f"group {group} still has {left} messages after {DRAIN_SECONDS_MAX} s"
            for group, left in self._left(client).items()
            if left
        ]

    def _left(self, client: goqueue.Client) -> dict[str, int]:
        return {
            group: sum(
                one.lag + one.in_flight + one.waiting + one.delayed
                for one in client.group_progress(group)
            )
            for group in self.groups
        }

    def finish(self) -> None:
        """End those who read."""
        for one in (*self.consumers, self.follower):
            one.over.set()
        for one in (*self.consumers, self.follower):
            one.finish()

    def counts(self) -> Counter[str]:
        """Return how much was done."""
        told = self.told
        found = Counter(told.counts)
        found["sent"] = sum(len(one.sent) for one in self.publishers)
        found["read by the follower"] = len(self.follower.seen)
        found["delayed"] = len(self.delayer.acked)
        found["committed"], found["aborted"] = len(told.committed), len(told.aborted)
        found["in doubt"] = len(told.unknown)
        found["metadata operations"] = sum(len(one.history) for one in self.registrars)
        for registrar in self.registrars:
            found.update(registrar.statuses)
        return found
