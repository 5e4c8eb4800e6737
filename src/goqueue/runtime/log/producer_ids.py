"""Who publishes: ids and lives of producers, and which of them have transactions."""

from goqueue.base.errors import InvalidTransactionStateError
from goqueue.core.decision import Decision
from goqueue.core.producers.identities import BlockSkipped, Event, Identities, IdGiven
from goqueue.core.record.stamp import ProducerStamp
from goqueue.runtime.machine import Journal, MachineHost

KEY = "identities"


class ProducerIds:
    """Hosts the identities of producers."""

    def __init__(self, journal: Journal) -> None:
        self.identities = Identities()
        self.host = MachineHost[Event](journal, KEY, home=KEY, machine=self.identities)
        self.check_life = self.identities.check
        """Refuses an id that was never handed out and a life that is over."""
        self._transactional: set[int] = set()

    def __repr__(self) -> str:
        return f"<ProducerIds up to {self.next_id}, {len(self._transactional)} transactional>"

    def load(self) -> None:
        """Take up what is stored; ids that may have been handed out are not given again."""
        self.host.load(Event)
        self.identities.apply(BlockSkipped())

    def init(self) -> ProducerStamp:
        """Give a new producer its identity."""
        decision = self.identities.init()
        self._commit(decision)
        self.identities.apply(IdGiven(producer_id=decision.reply.producer_id))
        return decision.reply

    async def take(self) -> ProducerStamp:
        """Give a new producer its identity, where that may have to be waited for."""
        return self.init()

    def renew(self, *, producer_id: int, epoch: int) -> ProducerStamp:
        """Begin the next life of a producer; the earlier ones are fenced from now on."""
        decision = self.identities.renew(producer_id=producer_id, epoch=epoch)
        self._commit(decision)
        return decision.reply

    def _commit(self, decision: Decision[Event, ProducerStamp]) -> None:
        self.host.check()
        self.host.commit(decision.events)

    @property
    def next_id(self) -> int:
        """The id the next new producer gets."""
        return self.identities.next_id

    def bind(self, producer_id: int) -> None:
        """Let a producer publish in transactions only. Their coordinator says so at each load."""
        self._transactional.add(producer_id)

    def unbind(self, producer_id: int) -> None:
        """Take note that a producer has no transactions any more: its coordinator forgot it."""
        self._transactional.discard(producer_id)

    def check_free(self, producer_id: int) -> None:
        """Refuse what is not done in a transaction by a producer that has them."""
        if producer_id in self._transactional:
            raise InvalidTransactionStateError(
                f"producer {producer_id} is transactional: it publishes in transactions only"
            )
