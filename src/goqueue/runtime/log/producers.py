"""What a broker is asked about producers."""

from goqueue.core.record.stamp import ProducerStamp
from goqueue.runtime.log.producer_ids import ProducerIds


class Producers:
    """The identities of producers, as a part of a broker."""

    producer_ids: ProducerIds

    def init_producer(self) -> ProducerStamp:
        """Give a new producer its identity."""
        return self.producer_ids.init()

    @property
    def next_producer_id(self) -> int:
        """The id the next new producer gets."""
        return self.producer_ids.next_id

    def check_free(self, producer_id: int) -> None:
        """Refuse who has transactions and wants to do something outside them."""
        self.producer_ids.check_free(producer_id)

    def renew_producer(self, *, producer_id: int, epoch: int) -> ProducerStamp:
        """Begin the next life of a producer; the earlier ones are fenced from now on."""
        return self.producer_ids.renew(producer_id=producer_id, epoch=epoch)
