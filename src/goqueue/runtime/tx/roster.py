"""Every transactional producer of a broker: by its id, by who it is now, and who adopted whom."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from goqueue.base.errors import NotCoordinatorError, OverloadedError, UnknownProducerError
from goqueue.base.limits import TX_PRODUCERS_MAX
from goqueue.core.tx.adoption import adopt
from goqueue.core.tx.events import Event
from goqueue.core.tx.producer import Identity, TxProducer
from goqueue.core.tx.states import IDLE, PREPARED, TxState
from goqueue.runtime.log.producer_ids import ProducerIds
from goqueue.runtime.machine import StateJournal, homes_in
from goqueue.runtime.tx.hosted_producer import KEY_PREFIX, HostedTxProducer


class Roster:
    """Knows the producers. Who adopted whom follows from what the adopters stored."""

    def __init__(self, state: StateJournal, identities: ProducerIds) -> None:
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

    # Life.

    def load(self, partition: int) -> list[HostedTxProducer]:
        """Bring back the producers of a state partition."""
        loaded: list[HostedTxProducer] = []
        for key in self._state.keys(KEY_PREFIX, partition):
            hosted = self._host(key.removeprefix(KEY_PREFIX))
            hosted.host.load(Event)
            hosted.note_work()
            hosted.is_untold = hosted.producer.state in PREPARED
            self.identify(hosted.producer)
            loaded.append(hosted)
        self._recover_families()
        return loaded

    def unload(self, partition: int) -> list[HostedTxProducer]:
        """Let go of the producers of a state partition; that they are transactional stays known."""
        gone = [self._hosted.pop(one) for one in [*homes_in(self._state, partition, self._hosted)]]
        for hosted in gone:
            hosted.close()
        return gone

    def _host(self, name: str) -> HostedTxProducer:
        hosted = HostedTxProducer(TxProducer(name), self._state, self.busy)
        self._hosted[name] = hosted
        return hosted

    @property
    def is_whole(self) -> bool:
        """Return True if every producer there is is here."""
        return self._state.is_whole

    def check_whole(self) -> None:
        """Raise unless every producer there is is here."""
        if not self._state.is_whole:
            raise NotCoordinatorError("not all transactions are loaded here; ask again")

    # Producers.

    def get(self, name: str) -> HostedTxProducer:
        """Return a producer by its transactional id, or raise."""
        hosted = self._hosted.get(name)
        if hosted is None:
            self._state.check(name)
            raise UnknownProducerError(f"no producer has the transactional id {name[:249]!a}")
        self._check_adopter(hosted)
        return hosted

    def find(self, who: Identity, name: str | None = None) -> HostedTxProducer:
        """Return the producer who speaks, or raise."""
        hosted = self._of(who)
        if hosted is None:
            self.check_whole()
        if hosted is None or (name is not None and name != hosted.producer.name):
            raise UnknownProducerError(f"producer {who.producer_id} is not transactional here")
        self._check_adopter(hosted)
        return hosted

    def _check_adopter(self, hosted: HostedTxProducer) -> None:
        """Raise if a detached transaction may belong to an adopter that is not loaded here."""
        if hosted.producer.is_detached:
            self.check_whole()

    def get_or_make(self, name: str) -> HostedTxProducer:
        """Return a producer by its transactional id, a new one if there is none."""
        hosted = self._hosted.get(name)
        if hosted is None:
            if len(self._hosted) >= TX_PRODUCERS_MAX:
                raise OverloadedError(f"there are {TX_PRODUCERS_MAX} transactional ids")
            self._state.check(name)
            hosted = self._host(name)
        self._check_adopter(hosted)
        return hosted

    def identify(self, producer: TxProducer) -> None:
        """Find a producer by who it is now."""
        if producer.producer_id:
            self._names[producer.producer_id] = producer.name
            self._identities.bind(producer.producer_id)

    def forget(self, hosted: HostedTxProducer) -> asyncio.Future[None]:
        """Let go of a producer; the future is done when that is durable."""
        gone = hosted.forget()
        del self._hosted[hosted.producer.name]
        self.busy.pop(hosted.producer.name, None)
        self._names.pop(hosted.producer.producer_id, None)
        self._identities.unbind(hosted.producer.producer_id)
        return gone

    def name_of(self, producer_id: int) -> str | None:
        """Return the transactional id of a producer, if it has one."""
        return self._names.get(producer_id)

    def _of(self, who: Identity) -> HostedTxProducer | None:
        name = self._names.get(who.producer_id)
        return None if name is None else self._hosted.get(name)

    # Families.

    def _recover_families(self) -> None:
        """Find out who is adopted, from what the adopters stored."""
        for hosted in self:
            parent = hosted.producer
            if parent.state is TxState.ONGOING or parent.state in PREPARED:
                for child in self._children_here(hosted):
                    if child.producer.state not in IDLE:
                        child.give_to(parent.name)

    def adopt(self, hosted: HostedTxProducer, who: Identity, children: Iterable[Identity]) -> None:
        """Let transactions end as another one does, or raise with nothing changed."""
        self.check_whole()
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
        for child in hosted.producer.adopted.values():
            self._state.check(child.name)
        return self._children_here(hosted)

    def _children_here(self, hosted: HostedTxProducer) -> list[HostedTxProducer]:
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
            if child.is_closed:
                continue
            if not child.turn.locked() and not child.producer.token:
                assert child.producer.state in IDLE, "its transaction is over"
                gone.append(self.forget(child))
        return gone
