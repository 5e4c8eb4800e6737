"""Everything a broker can be asked, by noun: what transports and the embedded client are given.

A transport decodes a request, has the gate admit it, calls one verb with the grant and encodes what
comes back. Requests and results are the structs of ``wire/``; nothing of the runtime is needed to
speak to a service.
"""

from contextvars import ContextVar
from dataclasses import replace
from typing import ClassVar

from goqueue.base.caller import Caller
from goqueue.runtime.broker import Broker
from goqueue.runtime.turns import TURN_BYTES, Turns
from goqueue.service.cluster import Cluster
from goqueue.service.credentials import Credentials
from goqueue.service.delayed import Delayed
from goqueue.service.dlq import DeadLetters
from goqueue.service.gate import Gate, Session
from goqueue.service.groups import Groups
from goqueue.service.guard import Guard
from goqueue.service.health import Status
from goqueue.service.policy import LoopbackPolicy, Policy
from goqueue.service.publishing import Publishing
from goqueue.service.queue import Queue
from goqueue.service.reading import Reading
from goqueue.service.reassignment import Reassignment
from goqueue.service.receipts import Receipts
from goqueue.service.schedules import Schedules
from goqueue.service.schemas import Schemas
from goqueue.service.stats import Statistics
from goqueue.service.topics import Topics
from goqueue.service.traces import Traces
from goqueue.service.tx import Transactions

__all__ = ["NOUNS", "TURN_BYTES", "Service", "Turns"]

NOUNS = (
    Cluster,
    Credentials,
    Delayed,
    DeadLetters,
    Groups,
    Publishing,
    Queue,
    Reading,
    Reassignment,
    Receipts,
    Schedules,
    Schemas,
    Statistics,
    Status,
    Topics,
    Traces,
    Transactions,
)
"""Every class with verbs."""


class Service:
    """The nouns of one broker behind one gate."""

    missing: ClassVar[ContextVar[tuple[str, ...]] | None] = None
    """Where a node of a cluster notes whose part is missing in an answer."""

    def __init__(self, broker: Broker, gate: Gate | None = None) -> None:
        self._broker = broker
        self.config = broker.config
        self.gate = gate or Gate(_policy_of(broker))
        self.turns = Turns()
        """Large pieces of work of all transports take turns."""
        self.cluster = Cluster(broker, self.gate)
        self.credentials = Credentials(broker, self.gate)
        self.delayed = Delayed(broker)
        self.dlq = DeadLetters(broker, self.gate)
        self.groups = Groups(broker, self.gate)
        self.publishing = Publishing(broker, self.gate)
        self.queue = Queue(broker, self.gate)
        self.reading = Reading(broker)
        self.reassignment = Reassignment()
        self.receipts = Receipts(broker, self.gate)
        self.schedules = Schedules(broker, self.gate)
        self.schemas = Schemas(broker, self.gate)
        self.stats = Statistics(broker, self.gate)
        self.status = Status(broker, self.gate)
        self.topics = Topics(broker, self.gate)
        self.traces = Traces(broker, self.gate)
        self.tx = Transactions(broker, self.gate)

    def __repr__(self) -> str:
        return f"<Service of {self._broker!r}>"

    def open(self, caller: Caller) -> Session:
        """Return the session of a caller without a connection of its own."""
        return self.gate.open(caller)

    def connect(self, caller: Caller) -> Session:
        """Return the session of a new connection, whose end must be told by ``disconnect``."""
        return self.gate.open(replace(caller, connection=self._broker.groups.connect()))

    def disconnect(self, session: Session) -> None:
        """Take note that a connection ended: members without another are soon removed."""
        self._broker.groups.disconnect(session.caller.connection)

    async def catch_up(self) -> bool:
        """Know all that the cluster has decided; return False if there is no cluster to ask."""
        if self._broker.topology is None:
            return False
        await self._broker.topology.catch_up()
        return True

    def now_ms(self) -> int:
        """Return the time of the broker's clock in milliseconds since 1970."""
        return self._broker.clock.now_ms()

    def count_connections(self, count: int) -> None:
        """Note how many native connections are open."""
        self._broker.metrics.active_connections.set(count)

    def stop_leasing(self) -> None:
        """Answer those who wait for messages: what they leased now would not be settled here."""
        self._broker.consume.ledgers.stop()


def _policy_of(broker: Broker) -> Policy:
    """Return what decides about requests: credentials, or where they come from."""
    if not broker.config.auth_enabled:
        return LoopbackPolicy()
    return Guard(broker.config, broker.security, broker.clock)
