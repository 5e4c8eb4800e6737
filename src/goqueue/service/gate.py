"""The one place where a request is admitted or refused.

A transport opens a ``Session`` for each connection and asks it for every request, before anything
is looked up. The session remembers what was granted, so that the policy is asked once for each deed
and name: admitting the next request of the kind is one look into a dict.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from goqueue.base.caller import ANONYMOUS, Caller
from goqueue.base.deeds import Deed
from goqueue.base.errors import (
    ForbiddenError,
    GoQueueError,
    LeaderNotAvailableError,
    UnsupportedError,
)
from goqueue.base.grant import Grant
from goqueue.base.limits import SUBJECT_CHARACTERS_MAX
from goqueue.core.security.needs import needs_of
from goqueue.service.guard import Guard
from goqueue.service.policy import LoopbackPolicy, Policy

GRANTS_MAX: Final = 256
"""A session remembers so many grants; then it forgets all, and memory stays bounded."""

PROBES: Final = frozenset({Deed.GREET, Deed.PING, Deed.PROBE_HEALTH})
"""What a node answers that does not serve yet."""

_NAMES_CHARACTERS_MAX: Final = SUBJECT_CHARACTERS_MAX
"""Grants with longer names are not remembered; nothing that exists has such a name."""


T = TypeVar("T")


class Gate:
    """Admits requests by a policy. A broker has one."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or LoopbackPolicy()
        self.guard = policy if isinstance(policy, Guard) else None
        """Knows credentials; None where nobody is asked for one."""
        self.epoch = 0
        """Incremented by each change of policy; grants of earlier epochs are void."""
        self.waits_for = ""
        """What a node waits for that does not serve yet; only probes are admitted meanwhile."""
        self._watchers: list[Callable[[], None]] = []
        if self.guard is not None:
            self.guard.watch(self._changed)

    def __repr__(self) -> str:
        return f"<Gate with {type(self._policy).__name__}, epoch {self.epoch}>"

    def use(self, policy: Policy) -> None:
        """Decide by another policy from now on, on open connections, too."""
        self._policy = policy
        self.guard = policy if isinstance(policy, Guard) else None
        self._changed()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have a function called when grants are void: what waits is to be judged again."""
        self._watchers.append(watcher)

    def _changed(self) -> None:
        self.epoch += 1
        for watcher in self._watchers:
            watcher()

    def wait(self, reason: str) -> None:
        """Admit probes only, until ``serve``: others are asked to come again."""
        self.waits_for = reason
        self.epoch += 1

    def serve(self) -> None:
        """Admit what the policy allows."""
        self.waits_for = ""
        self.epoch += 1

    def admit(self, caller: Caller, deed: Deed, names: tuple[str, ...] = ()) -> Grant:
        """Return the proof that a caller may do this, or raise a ForbiddenError."""
        if not self._policy.allows(caller, deed, names):
            # Whether such a thing exists is not told.
            needs = " and ".join(map(str, needs_of(deed, names))) or deed.need
            raise ForbiddenError(f"{deed.value} is not permitted: it needs {needs}")
        if self.waits_for and deed not in PROBES:
            raise LeaderNotAvailableError(self.waits_for)
        return Grant(caller, deed, names, self.epoch)

    def name(self, grant: Grant, *names: str) -> Grant:
        """Return the grant for the resources that a request turned out to be about, or raise.

        For requests that say whom they are about by a receipt or the number of a producer.
        """
        return grant if grant.names == names else self.admit(grant.caller, grant.deed, names)

    def sees(self, caller: Caller, deed: Deed, name: str) -> bool:
        """Return True if a list that a caller asks for may have a resource in it."""
        return self._policy.allows(caller, deed, (name,))

    def visible(
        self, caller: Caller, deed: Deed, items: Iterable[T], name: Callable[[T], str]
    ) -> list[T]:
        """Return what a caller may see of a list."""
        if isinstance(self._policy, LoopbackPolicy):
            return list(items)
        return [one for one in items if self._policy.allows(caller, deed, (name(one),))]

    def open(self, caller: Caller) -> "Session":
        """Return the session of a new connection."""
        if self.guard is not None and caller.expires_ms:
            self.guard.note_end(caller.expires_ms)
        return Session(self, caller)


class Session:
    """A caller on one connection, with the grants it was given."""

    __slots__ = ("_gate", "_grants", "caller")

    def __init__(self, gate: Gate, caller: Caller) -> None:
        self._gate = gate
        self._grants: dict[tuple[Deed, tuple[str, ...]], Grant] = {}
        self.caller = caller

    def __repr__(self) -> str:
        return f"<Session of {self.caller.principal}: {len(self._grants)} grants>"

    @property
    def is_guarded(self) -> bool:
        """Whether callers have to show a credential."""
        return self._gate.guard is not None

    def authenticate(self, shown: str) -> None:
        """Take the identity that a credential proves, or raise; it never becomes another one."""
        guard = self._gate.guard
        if guard is None:
            # Silently ignored, it would promise a protection that is not there.
            raise UnsupportedError("api keys are not checked by this broker; connect without one")
        known = guard.authenticate(shown, self.caller)
        is_free = self.caller.is_by_certificate or self.caller.principal == ANONYMOUS
        if not is_free and self.caller.principal != known.principal:
            raise ForbiddenError("a connection stays with the principal that it was opened by")
        self.caller = known
        self._grants.clear()

    def end(self) -> GoQueueError | None:
        """Return why nothing more is answered to the caller, if its credential has ended."""
        guard = self._gate.guard
        if guard is None or self.caller.principal == ANONYMOUS:
            return None
        try:
            guard.check(self.caller)
        except GoQueueError as error:
            return error
        return None

    def admit(self, deed: Deed, names: tuple[str, ...] = ()) -> Grant:
        """Return the proof that the caller may do this, or raise a ForbiddenError."""
        grant = self._grants.get((deed, names))
        if grant is not None and grant.epoch == self._gate.epoch:
            return grant
        grant = self._gate.admit(self.caller, deed, names)
        if sum(map(len, names)) <= _NAMES_CHARACTERS_MAX:
            if len(self._grants) >= GRANTS_MAX:
                self._grants.clear()
            self._grants[deed, names] = grant
        return grant
