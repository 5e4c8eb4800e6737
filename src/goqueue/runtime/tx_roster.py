"""Every transactional producer of a broker: by its id, by who it is now, and who adopted whom."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from goqueue.base.errors import OverloadedError, UnknownProducerError
from goqueue.base.limits import TX_PRODUCERS_MAX
from goqueue.core.record.stamp import ProducerStamp
from goqueue.core.tx.adoption import adopt
from goqueue.core.tx.producer import Identity, TxProducer
from goqueue.core.tx.states import IDLE, PREPARED, State
from goqueue.runtime.state_log import StateLog
from goqueue.runtime.tx_producer import HostedTxProducer


class Producers(NamedTuple):
    """How producers get their identities."""

    init: Callable[[], ProducerStamp]
    renew: Callable[..., ProducerStamp]
    bind: Callable[[int], None]
    """Says who publishes in transactions only."""
    unbind: Callable[[int], None]


class Roster:
    """Knows the producers. Who adopted whom follows from what the adopters stored."""

    def __init__(self, state: StateLog, identities: Producers) -> None:
        self._state = state
        self._identities = identities
        self._hosted: dict[str, HostedTxProducer] = {}
        self._names: dict[int, str] = {}
        self.busy: dict[str, HostedTxProducer] = {}
        """Those with anything to be done for them."""

    def __repr__(self) -> str:
        return f"<Roster of {len(self._hosted)} producers>"

    def __iter__(self) -> Iterator[HostedTxProducer]:
        return iter(list(self._hosted.values()))

    def __len__(self) -> int:
        return len(self._hosted)

    # Producers.

    def get(self, name: str) -> HostedTxProducer:
        """Return a producer by its transactional id, or raise."""
        hosted = self._hosted.get(name)
        if hosted is None:
            raise UnknownProducerError(f"no producer has the transactional id {name[:249]!a}")
        return hosted

    def find(self, who: Identity, name: str | None = None) -> HostedTxProducer:
        """Return the producer who speaks, or raise."""
        hosted = self._of(who)
        if hosted is None or (name is not None and name != hosted.producer.name):
            raise UnknownProducerError(f"producer {who.producer_id} is not transactional here")
        return hosted

    def get_or_make(self, name: str) -> HostedTxProducer:
        """Return a producer by its transactional id, a new one if there is none."""
        hosted = self._hosted.get(name)
        if hosted is None:
            if len(self._hosted) >= TX_PRODUCERS_MAX:
                raise OverloadedError(f"there are {TX_PRODUCERS_MAX} transactional ids")
            hosted = self.add(TxProducer(name))
        return hosted

    def add(self, producer: TxProducer) -> HostedTxProducer:
        """Take in a producer."""
        hosted = self._hosted[producer.name] = HostedTxProducer(producer, self._state, self.busy)
        hosted.note_work()
        self.identify(producer)
        return hosted

    def identify(self, producer: TxProducer) -> None:
        """Find a producer by who it is now."""
        if producer.producer_id:
            self._names[producer.producer_id] = producer.name
            self._identities.bind(producer.producer_id)

    def forget(self, hosted: HostedTxProducer) -> asyncio.Future[None]:
        """Let go of a producer; the future is done when that is durable."""
        del self._hosted[hosted.producer.name]
        self.busy.pop(hosted.producer.name, None)
        self._names.pop(hosted.producer.producer_id, None)
        self._identities.unbind(hosted.producer.producer_id)
        return hosted.forget()

    def _of(self, who: Identity) -> HostedTxProducer | None:
        name = self._names.get(who.producer_id)
        return None if name is None else self._hosted.get(name)

    # Families.

    def recover_families(self) -> None:
        """Find out who is adopted, from what the adopters stored."""
        for hosted in self:
            parent = hosted.producer
            if parent.state is State.ONGOING or parent.state in PREPARED:
                for child in self.children_of(hosted):
                    if child.producer.state not in IDLE:
                        child.give_to(parent.name)

    def adopt(self, hosted: HostedTxProducer, who: Identity, children: Iterable[Identity]) -> None:
        """Let transactions end as another one does, or raise with nothing changed."""
        wanted = [(identity, self._of(identity)) for identity in children]
        decision = adopt(
            hosted.producer,
            who,
            [(identity, None if child is None else child.producer) for identity, child in wanted],
        )
        hosted.commit(decision.events)
        for _, child in wanted:
            assert child is not None, "an unknown one is refused"
            child.give_to(hosted.producer.name)

    def children_of(self, hosted: HostedTxProducer) -> list[HostedTxProducer]:
        """Return those whose transactions a producer has adopted, and who did not go on since."""
        found: list[HostedTxProducer] = []
        for child in hosted.producer.adopted.values():
            known = self._hosted.get(child.name)
            if known is not None and known.producer.number == child.number:
                found.append(known)
        return found

    def release(self, children: Sequence[HostedTxProducer]) -> list[asyncio.Future[None]]:
        """Let go of producers whose adopted transactions are over, with nobody waiting for them.

        One that was detached has said all it had to say, and its id may never be heard of again.
        """
        gone: list[asyncio.Future[None]] = []
        for child in children:
            child.set_free()
            if not child.turn.locked() and not child.producer.token:
                assert child.producer.state in IDLE, "its transaction is over"
                gone.append(self.forget(child))
        return gone
