"""What performs the steps of an outbox asks of it, whether there is one broker or a cluster."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from goqueue.base.errors import GoQueueError
from goqueue.client.protocol.exchange import Answer
from goqueue.client.protocol.outbox import Batch, Owner, Step
from goqueue.wire import calls
from goqueue.wire.packet import Buffer

SentType = TypeVar("SentType", bound=Owner)


class Sending(Protocol[SentType]):
    """Batches of one producer on their way; ``Outbox`` says what the methods mean."""

    on_change: Callable[[], None]

    @property
    def fatal(self) -> GoQueueError | None:
        """Why nothing more is sent."""
        ...

    @property
    def has_slot(self) -> bool:
        """Return True if a request could go out at once."""
        ...

    @property
    def is_idle(self) -> bool:
        """Return True if every batch is placed or failed."""
        ...

    @property
    def deadline(self) -> float:
        """Return when the last of the batches must be placed."""
        ...

    def submit(self, batches: list[Batch[SentType]]) -> None:
        """Queue batches of one topic."""
        ...

    def abort(self, reason: GoQueueError | None = None) -> None:
        """Fail everything that is not placed, and all that may follow."""
        ...

    def forget(self, reason: GoQueueError) -> None:
        """Fail everything that is not placed; its numbers may be taken or not."""
        ...

    def expire(self, now: float) -> None:
        """Fail what waits and is past its deadline."""
        ...

    def step(self, now: float) -> Step[SentType]:
        """Return what to send, or when to ask again; None until something happens."""
        ...

    def seconds_left(self, batches: Sequence[Batch[SentType]], now: float) -> float:
        """Return how long an answer may be waited for."""
        ...

    def node_of(self, batches: Sequence[Batch[SentType]]) -> str:
        """Return the address of the node that a request is for; none if there is one broker."""
        ...

    def content(self, batches: Sequence[Batch[SentType]]) -> tuple[calls.Produce, Sequence[Buffer]]:
        """Return the header and the payload of a request."""
        ...

    def answered(self, batches: Sequence[Batch[SentType]], answer: Answer, now: float) -> None:
        """Take the reply to a request."""
        ...

    def failed(self, batches: Sequence[Batch[SentType]], error: GoQueueError, now: float) -> None:
        """Take note that a request was refused, or that no answer came."""
        ...

    def introduced(self, answer: Answer, now: float) -> None:
        """Take the identity that was asked for."""
        ...

    def not_introduced(self, error: GoQueueError, now: float) -> None:
        """Take note that there is no identity yet."""
        ...


class TxSending(Sending[SentType], Protocol[SentType]):
    """Batches of transactions on their way; ``TxOutbox`` says what the methods mean."""

    @property
    def is_spoiled(self) -> bool:
        """Whether sequence numbers were given away that the broker may not have seen."""
        ...

    @property
    def rows(self) -> int:
        """How many messages of the transaction were given to be sent."""
        ...

    @property
    def is_ended(self) -> bool:
        """Whether the broker has committed the transaction with its last messages."""
        ...

    @property
    def end_failure(self) -> GoQueueError | None:
        """Why it has not, though it was asked to."""
        ...

    @property
    def is_all_sent(self) -> bool:
        """Return True if everything is under way or there, with no trouble so far."""
        ...

    def identify(self, identity: calls.ProducerIdentity) -> None:
        """Use an identity from now on, with nothing under way."""
        ...

    def commit_with_last(self, rows_elsewhere: int, token: str) -> None:
        """Let the request with the messages that are submitted last commit, too."""
        ...

    def shut(self, reason: GoQueueError) -> None:
        """Send no more; what is under way may still be answered."""
        ...
