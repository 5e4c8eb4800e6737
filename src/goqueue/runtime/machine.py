"""The one host of deciders: what was decided is written to a journal, applied, and durable later.

    decision = host.machine.verb(...)     reads state, changes nothing
    host.commit(decision.events)          written, then applied: one step without ``await``
    await host.durable()                  one sync, shared with others; only now may anybody know
    host.load(Event)                      the same ``apply``, from the journal
    host.close(error)                     unloaded: nothing is decided here any more

Nothing else writes to a journal. Several tasks may commit to one host; the order of their events in
the journal is the order in which they were applied.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from goqueue.base.errors import GoQueueError, NotCoordinatorError, NotLeaderError
from goqueue.base.ids import TopicPartition
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger

E = TypeVar("E", bound=msgspec.Struct)
E_in = TypeVar("E_in", bound=msgspec.Struct)
T = TypeVar("T")

UNLOADED = NotCoordinatorError("the state of this was unloaded; ask again")
MOVED = NotLeaderError("the partition is not led here any more; ask again")

StatePart = int | TopicPartition
"""What is loaded and unloaded as a whole: a partition of a state topic, or what is kept beside a
partition of messages, in a cluster."""
log = get_logger("goqueue.state")


class Machine(Protocol[E_in]):
    """A decider whose events are kept."""

    def apply(self, event: E_in, /) -> None:
        """Change state by one event."""
        ...

    def snapshot(self) -> Iterable[E_in]:
        """Return the events that rebuild the state."""
        ...


class Journal(Protocol):
    """Where events of machines are written, in order, and read again. Raises if not loaded."""

    def write(
        self,
        key: str,
        *,
        home: str,
        events: Sequence[msgspec.Struct],
        snapshot: Callable[[], Iterable[msgspec.Struct]],
    ) -> None:
        """Write events, or raise with nothing written; ``snapshot`` is the state before them."""
        ...

    def is_snapshot_due(self, key: str, *, home: str) -> bool:
        """Return True if the next write of a machine begins with a snapshot of it."""
        ...

    def durable(self, home: str) -> asyncio.Future[None]:
        """Return a future that is done when everything written for a home is durable."""
        ...

    def replay(
        self,
        key: str,
        kind: Any,  # noqa: ANN401 - a union is no type
        *,
        home: str,
        past_damage: bool = False,
    ) -> list[Any]:
        """Return what happened to a machine, in order."""
        ...

    def note_damage(self, key: str, *, home: str) -> None:
        """Let the next change of a machine start with a snapshot."""
        ...

    def forget(self, key: str, *, home: str) -> asyncio.Future[None]:
        """Write that a machine is gone; the future is done when that is durable."""
        ...


class Placed(Protocol):
    """Something of one partition of messages."""

    @property
    def partition(self) -> TopicPartition:
        """Which partition."""
        ...


class AtPlace(NamedTuple):
    """A partition of messages by itself."""

    partition: TopicPartition


class StateJournal(Journal, Protocol):
    """A journal in parts, each loaded and unloaded as a whole.

    A home is the name of an owner (a group, a topic, a schedule), or stands for a partition of
    messages. What is decided about messages of a partition has the home that ``home_of`` says.
    """

    @property
    def is_beside(self) -> bool:
        """Return True if what is decided about messages is kept beside their partition."""
        ...

    def home_of(self, owner: str, place: TopicPartition) -> str:
        """Return the home of what an owner decides about the messages of a partition."""
        ...

    def is_in(self, home: str, part: StatePart) -> bool:
        """Return True if a part holds the machines of a home."""
        ...

    def is_loaded(self, place: TopicPartition) -> bool:
        """Return True if messages of a partition may be decided about here."""
        ...

    def check_owner(self, owner: str) -> None:
        """Raise if what an owner decided about messages may be there and is not loaded."""
        ...

    def check_places(self, owner: str, parts: Iterable[Placed]) -> None:
        """Raise unless what an owner decides about messages of partitions is loaded."""
        ...

    def check_place(self, place: TopicPartition) -> None:
        """Raise unless what any owner decides about messages of a partition is loaded."""
        ...

    def durable_at(self, owner: str, parts: Iterable[Placed]) -> asyncio.Future[None]:
        """Return a future that is done when what an owner decided there is durable."""
        ...

    async def settle_at(self, owner: str, parts: Iterable[Placed], *, is_alone: bool) -> None:
        """Return when what an owner decided there is durable; alone, by a sync at once."""
        ...

    @property
    def partitions(self) -> range:
        """The numbers of the partitions."""
        ...

    @property
    def is_whole(self) -> bool:
        """Return True if every partition is loaded."""
        ...

    @property
    def is_open(self) -> bool:
        """Return True if there is something to write to."""
        ...

    def partition_of(self, home: str) -> int:
        """Return which partition holds the machines of a home."""
        ...

    def check(self, home: str) -> None:
        """Raise unless the machines of a home are loaded."""
        ...

    def keys(self, prefix: str, part: StatePart) -> list[str]:
        """Return the keys of the machines of a part that begin so, in order."""
        ...

    async def prepare(self) -> None:
        """Make what is written to without keeping others waiting."""
        ...

    def make_room(self) -> bool:
        """Give up the room that is kept for state; return whether there was any."""
        ...

    def has_room(self, key: str, *, home: str) -> bool:
        """Return True if a few small changes of a machine can be written without a snapshot."""
        ...

    def write_changes(
        self, changes: Sequence[tuple[str, Sequence[msgspec.Struct]]], *, home: str
    ) -> None:
        """Write the events of machines of one home in one go, or raise with nothing written."""
        ...


class Waiters:
    """Those who wait for news, woken in the order in which they came.

    A future is for one piece of news. A listener is called at each, until it is taken off.
    """

    __slots__ = ("_listeners", "futures")

    def __init__(self) -> None:
        self.futures: dict[asyncio.Future[None], None] = {}
        self._listeners: dict[Callable[[], None], None] | None = None
        """Made at first use: there are many partitions, and nobody listens to most."""

    def __len__(self) -> int:
        return len(self.futures) + len(self._listeners or ())

    def watch(self) -> asyncio.Future[None]:
        """Return a future that is done at the next news; ``unwatch`` discards it."""
        future = asyncio.get_running_loop().create_future()
        self.futures[future] = None
        return future

    def unwatch(self, future: asyncio.Future[None]) -> None:
        """Stop waiting."""
        self.futures.pop(future, None)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call somebody at each piece of news, in the step that brings it."""
        if self._listeners is None:
            self._listeners = {}
        self._listeners[listener] = None

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Stop calling."""
        if self._listeners is not None:
            self._listeners.pop(listener, None)

    def wake(self) -> None:
        """Wake all waiters."""
        futures, self.futures = self.futures, {}
        for future in futures:
            if not future.done():
                future.set_result(None)
        for listener in tuple(self._listeners or ()):
            listener()


class MachineHost(Generic[E]):
    """Writes the events of one machine and applies them."""

    __slots__ = ("_journal", "_unwritten", "closed", "home", "key", "machine", "waiters")

    def __init__(self, journal: Journal, key: str, *, home: str, machine: Machine[E]) -> None:
        self.key = key
        self.home = home
        self.machine = machine
        self.closed: GoQueueError | None = None
        """Why nothing is decided here any more."""
        self.waiters = Waiters()
        self._journal = journal
        self._unwritten: Sequence[E] = ()
        """What is true already and is written together with what comes next."""

    def __repr__(self) -> str:
        return f"<MachineHost of {self.key}>"

    def load(self, kind: Any, *, past_damage: bool = False) -> int:  # noqa: ANN401 - a union
        """Apply what the journal has; return how many events that were."""
        events = self.replay(kind, past_damage=past_damage)
        for event in events:
            self.machine.apply(event)
        return len(events)

    def replay(self, kind: Any, *, past_damage: bool = False) -> list[E]:  # noqa: ANN401
        """Return what the journal has, for hosts that look at it before they apply it."""
        return self._journal.replay(self.key, kind, home=self.home, past_damage=past_damage)

    def note_damage(self) -> None:
        """Start with a snapshot at the next change."""
        self._journal.note_damage(self.key, home=self.home)

    def check(self) -> None:
        """Raise unless this host still decides about its machine."""
        if self.closed is not None:
            # A fresh one each time: a raised exception keeps the frames it has passed.
            raise type(self.closed)(*self.closed.args)

    def commit(self, events: Sequence[E], *, stored: Sequence[E] | None = None) -> None:
        """Write events and make them true, or raise with nothing changed.

        ``stored`` are the same events in fewer bytes, for machines that know how.
        """
        if not events:
            return
        if self.closed is not None:
            self.check()
        written = events if stored is None else stored
        if self._unwritten:
            written = [*self._unwritten, *written]
        self._journal.write(
            self.key, home=self.home, events=written, snapshot=self.machine.snapshot
        )
        self._unwritten = ()
        apply = self.machine.apply
        for event in events:
            apply(event)

    def commit_later(self, events: Sequence[E]) -> None:
        """Make events true and write them with the next ones, where a crash may lose them as well.

        A snapshot is of the state before what is written behind it, so it is not put off.
        """
        if self._unwritten or self._journal.is_snapshot_due(self.key, home=self.home):
            self.commit(events)
            return
        self.check()
        self._unwritten = events
        for event in events:
            self.machine.apply(event)

    def _write(self, events: Sequence[E]) -> None:
        self._journal.write(self.key, home=self.home, events=events, snapshot=self.machine.snapshot)
        self._unwritten = ()

    def durable(self) -> asyncio.Future[None]:
        """Return a future that is done when everything committed so far is durable."""
        self.check()
        if self._unwritten:
            self._write(self._unwritten)
        return self._journal.durable(self.home)

    def forget(self) -> asyncio.Future[None]:
        """Write that there is no such machine any more."""
        return self._journal.forget(self.key, home=self.home)

    def forget_soon(self) -> None:
        """Write it without waiting for the disk."""
        forget(self._journal, self.key, home=self.home)

    def close(self, error: GoQueueError = UNLOADED) -> None:
        """Decide nothing any more: those who wait look again, and get the error."""
        if self.closed is None:
            if self._unwritten:
                with contextlib.suppress(GoQueueError):
                    self._write(self._unwritten)
            self.closed = error
        self.waiters.wake()


def commit_all(
    journal: StateJournal,
    changes: Sequence[tuple[MachineHost[E], Sequence[E]]],
    *,
    stored: Sequence[Sequence[E]],
) -> None:
    """Write events of machines of one home in one go and make them true, or raise.

    Each has room for them. ``stored`` are the same events in fewer bytes.
    """
    for host, _ in changes:
        host.check()
    written = [(host.key, some) for (host, _), some in zip(changes, stored, strict=True)]
    journal.write_changes(written, home=changes[0][0].home)
    for host, events in changes:
        for event in events:
            host.machine.apply(event)


def homes_in(journal: StateJournal, part: StatePart, homes: Iterable[T]) -> Iterator[T]:
    """Yield those of some homes whose machines a part holds."""
    return (home for home in homes if journal.is_in(str(home), part))


def forget(journal: Journal, key: str, *, home: str) -> None:
    """Write that a machine is gone; should that be lost, the next load says it again."""
    try:
        unawaited(journal.forget(key, home=home))
    except GoQueueError as error:
        log.warning(LogEvent.ORPHAN_STATE_KEPT, machine=key, error=error.message)


def unawaited(future: asyncio.Future[T]) -> asyncio.Future[T]:
    """Return a future whose failure may go unseen: the next caller gets the same one."""
    future.add_done_callback(_retrieve)
    return future


def _retrieve(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
