"""The name of a detached transaction: small, and good for a pickle, JSON or any other message."""

from collections.abc import Iterable
from typing import NamedTuple

from goqueue.wire.tx_calls import TxWho


class Detached(NamedTuple):
    """A transaction whose producer is done with it, to be adopted by another one.

    Over JSON it is a list: ``Detached(*json.loads(text))`` brings it back.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    number: int

    def __repr__(self) -> str:
        return f"<Detached {self.number:016x} of {self.transactional_id}>"


def who_of(handle: Detached) -> TxWho:
    """Return who has it open, in the words of the protocol."""
    _, producer_id, epoch, number = handle
    return TxWho(producer_id, epoch, number)


def whos_of(handles: Iterable[Detached]) -> list[TxWho]:
    """Return who has them open, each once."""
    return list(dict.fromkeys(map(who_of, handles)))
