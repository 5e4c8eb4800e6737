"""One recurring schedule: which ticks were published, passed over or refused.

Shape: decider. A tick is begun before its message is appended and noted as published behind it;
what was begun says where the message would be found, so that a crash in between publishes it once.
Ticks are numbered, and everything up to ``last_ms`` has been seen to.
"""

from collections.abc import Iterable

import msgspec

from goqueue.base.limits import SCHEDULE_SET_BACK_MS_MAX
from goqueue.core.decision import Decision
from goqueue.core.recurring.spec import ScheduleSpec
from goqueue.core.recurring.ticks import Choice, Chooser, Counting

ERROR_CHARACTERS_MAX = 1_000


class TickPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where the message of a tick goes: it is found from this offset on, if it is there.

    ``life`` tells the topic from a deleted one of its name.
    """

    life: int
    partition: int
    from_offset: int


class ScheduleCreated(msgspec.Struct, frozen=True, tag="c", array_like=True):
    """A schedule was made."""

    spec: ScheduleSpec
    at_ms: int


class TickBegun(msgspec.Struct, frozen=True, tag="b", array_like=True):
    """The message of a tick is about to be appended; so many ticks before it were passed over."""

    number: int
    tick_ms: int
    place: TickPlace
    missed: int = 0
    is_manual: bool = False


class TickPublished(msgspec.Struct, frozen=True, tag="p", array_like=True):
    """The message of the tick that was begun is in its topic."""

    number: int
    partition: int
    offset: int
    at_ms: int


class TickRefused(msgspec.Struct, frozen=True, tag="x", array_like=True):
    """The topic refuses the message of the tick that was begun, now and whenever it is tried."""

    number: int
    error: str
    at_ms: int


class TicksPassed(msgspec.Struct, frozen=True, tag="m", array_like=True):
    """Ticks up to a time were missed, and no message is published for them."""

    until_ms: int
    missed: int


class TickFailed(msgspec.Struct, frozen=True, tag="f", array_like=True):
    """A tick could not be published; it is tried again."""

    error: str
    at_ms: int


class SchedulePaused(msgspec.Struct, frozen=True, tag="z", array_like=True):
    """No tick is published until the schedule is resumed."""


class ScheduleResumed(msgspec.Struct, frozen=True, tag="r", array_like=True):
    """Ticks after this time are published again; those while it was paused never were."""

    at_ms: int


class ScheduleAnchored(msgspec.Struct, frozen=True, tag="a", array_like=True):
    """The clock was set back so far that ticks are counted anew from this time on."""

    at_ms: int


class ScheduleState(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a schedule."""

    spec: ScheduleSpec
    created_ms: int
    anchor_ms: int
    """From when on intervals are counted."""
    last_ms: int
    """Every tick up to this time was seen to."""
    number: int = 0
    begun: TickBegun | None = None
    is_paused: bool = False
    published: int = 0
    missed: int = 0
    refused: int = 0
    last_tick_ms: int | None = None
    last_partition: int = -1
    last_offset: int = -1
    error: str = ""
    error_ms: int = 0


class ScheduleRestored(msgspec.Struct, frozen=True, tag="o", array_like=True):
    """The whole schedule, in the place of all that led to it."""

    state: ScheduleState


Event = (
    ScheduleCreated
    | TickBegun
    | TickPublished
    | TickRefused
    | TicksPassed
    | TickFailed
    | SchedulePaused
    | ScheduleResumed
    | ScheduleAnchored
    | ScheduleRestored
)


class RecurringSchedule:
    """Decides about the ticks of one schedule and remembers what became of them."""

    def __init__(self) -> None:
        self._state: ScheduleState | None = None

    def __repr__(self) -> str:
        return f"<RecurringSchedule {self._state!r}>"

    @property
    def is_there(self) -> bool:
        """Return True once the schedule was made."""
        return self._state is not None

    @property
    def state(self) -> ScheduleState:
        """All that is known."""
        assert self._state is not None, "made"
        return self._state

    # Deciding.

    def create(self, spec: ScheduleSpec, *, now_ms: int) -> Decision[Event, None]:
        """Make the schedule; its first tick comes after now."""
        return Decision((ScheduleCreated(spec, now_ms),), None)

    def look(
        self, chooser: Chooser, *, now_ms: int, jumped_ms: int | None = None
    ) -> Counting[Choice | None]:
        """Return what to do about the ticks that are due; nothing while one is under way."""
        state = self.state
        if state.is_paused or state.begun is not None:
            return None
        return (
            yield from chooser.choose(
                state.spec.missed, after_ms=state.last_ms, now_ms=now_ms, jumped_ms=jumped_ms
            )
        )

    def begin(self, choice: Choice, place: TickPlace) -> Decision[Event, None]:
        """Begin to publish the tick that was chosen."""
        assert choice.tick_ms is not None, "there is a tick to publish"
        number = self.state.number + 1
        return Decision((TickBegun(number, choice.tick_ms, place, choice.missed),), None)

    def pass_over(self, choice: Choice) -> Decision[Event, None]:
        """Publish nothing for ticks that were missed."""
        return Decision((TicksPassed(choice.until_ms, choice.missed),), None)

    def trigger(self, place: TickPlace, *, now_ms: int) -> Decision[Event, None]:
        """Begin to publish a message beside the ticks."""
        number = self.state.number + 1
        return Decision((TickBegun(number, now_ms, place, is_manual=True),), None)

    def begin_again(self, place: TickPlace) -> Decision[Event, None]:
        """Have what was begun go elsewhere: it is certain that it is not where it was to go."""
        begun = self.state.begun
        assert begun is not None, "begun"
        return Decision((msgspec.structs.replace(begun, place=place, missed=0),), None)

    def publish(self, partition: int, offset: int, *, now_ms: int) -> Decision[Event, None]:
        """Note where the message that was begun is."""
        begun = self.state.begun
        assert begun is not None, "begun"
        return Decision((TickPublished(begun.number, partition, offset, now_ms),), None)

    def refuse(self, error: str, *, now_ms: int) -> Decision[Event, None]:
        """End what was begun without a message."""
        begun = self.state.begun
        assert begun is not None, "begun"
        return Decision((TickRefused(begun.number, error[:ERROR_CHARACTERS_MAX], now_ms),), None)

    def fail(self, error: str, *, now_ms: int) -> Decision[Event, None]:
        """Note why a tick waits; the same reason again is no news."""
        error = error[:ERROR_CHARACTERS_MAX]
        if error == self.state.error:
            return Decision((), None)
        return Decision((TickFailed(error, now_ms),), None)

    def pause(self) -> Decision[Event, None]:
        """Publish no ticks; one that was begun is still published."""
        return Decision(() if self.state.is_paused else (SchedulePaused(),), None)

    def resume(self, *, now_ms: int) -> Decision[Event, None]:
        """Publish ticks after now."""
        if not self.state.is_paused:
            return Decision((), None)
        return Decision((ScheduleResumed(now_ms),), None)

    def check_clock(self, *, now_ms: int) -> Decision[Event, None]:
        """Go on from now if the clock was set back further than is waited for.

        An interval is real time: it waits for no clock. A time of day must not come twice.
        """
        state = self.state
        wait_ms = SCHEDULE_SET_BACK_MS_MAX if state.spec.cron else 0
        if state.last_ms - now_ms <= wait_ms:
            return Decision((), None)
        return Decision((ScheduleAnchored(now_ms),), None)

    # Changing.

    def apply(self, event: Event) -> None:
        """Change state by one event."""
        match event:
            case ScheduleCreated(spec=spec, at_ms=at_ms):
                self._state = ScheduleState(
                    spec=spec, created_ms=at_ms, anchor_ms=at_ms, last_ms=at_ms
                )
            case ScheduleRestored(state=state):
                self._state = state
            case SchedulePaused():
                self._state = msgspec.structs.replace(self.state, is_paused=True)
            case ScheduleResumed(at_ms=at_ms) | ScheduleAnchored(at_ms=at_ms):
                is_paused = self.state.is_paused and isinstance(event, ScheduleAnchored)
                self._state = msgspec.structs.replace(
                    self.state, is_paused=is_paused, anchor_ms=at_ms, last_ms=at_ms
                )
            case TickBegun() | TickPublished() | TickRefused() | TicksPassed() | TickFailed():
                self._state = ticked(self.state, event)

    def snapshot(self) -> Iterable[Event]:
        """Return the event that rebuilds this state."""
        if self._state is not None:
            yield ScheduleRestored(self._state)


TickEvent = TickBegun | TickPublished | TickRefused | TicksPassed | TickFailed


def ticked(state: ScheduleState, event: TickEvent) -> ScheduleState:
    """Return the state behind what became of a tick."""
    replace = msgspec.structs.replace
    match event:
        case TickBegun(number=number, tick_ms=tick_ms, missed=missed):
            last_ms = state.last_ms if event.is_manual else tick_ms
            missed += state.missed
            return replace(state, begun=event, number=number, last_ms=last_ms, missed=missed)
        case TickPublished(partition=partition, offset=offset):
            begun = state.begun
            # A message beside the ticks is none of them.
            is_tick = begun is not None and not begun.is_manual
            last_tick_ms = begun.tick_ms if begun and is_tick else state.last_tick_ms
            return replace(
                state,
                begun=None,
                published=state.published + 1,
                last_tick_ms=last_tick_ms,
                last_partition=partition,
                last_offset=offset,
                error="",
                error_ms=0,
            )
        case TickRefused(error=error, at_ms=at_ms):
            refused = state.refused + 1
            return replace(state, begun=None, refused=refused, error=error, error_ms=at_ms)
        case TicksPassed(until_ms=until_ms, missed=missed):
            return replace(state, last_ms=until_ms, missed=state.missed + missed)
        case TickFailed(error=error, at_ms=at_ms):
            return replace(state, error=error, error_ms=at_ms)
