"""Every transactional producer of a broker: by its id, by who it is now, and who adopted whom."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from goqueue.base.errors import (
    AdoptionRefusedError,
    NotCoordinatorError,
    OverloadedError,
    UnknownProducerError,
)
from goqueue.base.limits import TX_PRODUCERS_MAX
from goqueue.core.producers.id_blocks import owner_of
from goqueue.core.tx.adoption import adopt
from goqueue.core.tx.events import Event
from goqueue.core.tx.families import TASK_MARK, home_of
from goqueue.core.tx.producer import Identity, TxProducer
from goqueue.core.tx.states import IDLE, PREPARED, TxState
from goqueue.runtime.log.producer_ids import ProducerIds
from goqueue.runtime.machine import StateJournal
from goqueue.runtime.tx.hosted_producer import KEY_PREFIX, HostedTxProducer


class Roster:
    """Knows the producers. Who adopted whom follows from what the adopters stored."""

    def __init__(
        self, state: StateJournal, identities: ProducerIds, *, is_apart: bool = False
    ) -> None:
        self._state = state
        self._identities = identities
        self._is_apart = is_apart
        """In a cluster each state partition stands for itself: it has whole families, and the id
        of a producer says which one knows it."""
        self._loaded: set[int] = set()
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
        self._loaded.add(partition)
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
        self._loaded.discard(partition)
        gone = self.hosted_in(partition)
        for hosted in gone:
            del self._hosted[hosted.producer.name]
            hosted.close()
        return gone

    def _host(self, name: str) -> HostedTxProducer:
        home = self._home(name)
        hosted = HostedTxProducer(TxProducer(name), self._state, self.busy, home=home)
        self._hosted[name] = hosted
        return hosted

    def _home(self, name: str) -> str:
        """Return what decides where the state of an id lies."""
        return home_of(name) if self._is_apart else name

    def partition_of(self, name: str) -> int:
        """Return which state partition knows an id."""
        return self._state.partition_of(self._home(name))

    def hosted_in(self, partition: int) -> list[HostedTxProducer]:
        """Return the producers of a state partition."""
        return [one for one in self if self.partition_of(one.producer.name) == partition]

    def is_loaded(self, partition: int) -> bool:
        """Return True if the producers of a state partition are here."""
        return partition in self._loaded

    @property
    def is_whole(self) -> bool:
        """Return True if every producer is here that one here may have to do with."""
        return self._is_apart or self._state.is_whole

    def check_whole(self) -> None:
        """Raise unless every producer is here that one here may have to do with."""
        if not self.is_whole:
            raise NotCoordinatorError("not all transactions are loaded here; ask again")

    # Producers.

    def get(self, name: str) -> HostedTxProducer:
        """Return a producer by its transactional id, or raise."""
        hosted = self._hosted.get(name)
        if hosted is None:
            self._state.check(self._home(name))
            raise UnknownProducerError(f"no producer has the transactional id {name[:249]!a}")
        self._check_adopter(hosted)
        return hosted

    def find(self, who: Identity, name: str | None = None) -> HostedTxProducer:
        """Return the producer who speaks, or raise."""
        hosted = self._of(who)
        if hosted is None:
            self._check_place_of(who)
        if hosted is None or (name is not None and name != hosted.producer.name):
            raise UnknownProducerError(f"producer {who.producer_id} is not transactional here")
        self._check_adopter(hosted)
        return hosted

    def _check_place_of(self, who: Identity) -> None:
        """Raise unless who speaks would be known here."""
        if not self._is_apart:
            self.check_whole()
        elif not self.is_loaded(owner_of(who.producer_id)):
            raise NotCoordinatorError("the producer is coordinated elsewhere; ask again")

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
            self._state.check(self._home(name))
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
        if self._is_apart:
            self._check_family(hosted, [identity for identity, child in wanted if child is None])
        decision = adopt(
            hosted.producer,
            who,
            [(identity, None if child is None else child.producer) for identity, child in wanted],
        )
        hosted.commit(decision.events)
        for _, child in wanted:
            assert child is not None, "an unknown one is refused"
            child.give_to(hosted.producer.name)

    def _check_family(self, hosted: HostedTxProducer, unknown: Sequence[Identity]) -> None:
        """Say what is wrong with those that another coordinator knows."""
        name = hosted.producer.name
        home = self.partition_of(name)
        for identity in unknown:
            if owner_of(identity.producer_id) != home:
                raise AdoptionRefusedError(
                    f"producer {identity.producer_id} has another coordinator than {name}: in a"
                    f" cluster ids of what it adopts begin with {home_of(name)}{TASK_MARK}"
                )

    def children_of(self, hosted: HostedTxProducer) -> list[HostedTxProducer]:
        """Return those whose transactions a producer has adopted, and who did not go on since."""
        for child in hosted.producer.adopted.values():
            self._state.check(self._home(child.name))
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
