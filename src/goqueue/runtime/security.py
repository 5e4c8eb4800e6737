"""The keys and access rules of a broker: kept in a journal of its own, or by its whole cluster.

Whoever judges by them is told of every change, and of every moment at which a secret ends. A broker
that nobody could administrate draws a key for that at its start, and keeps it in a file that only
its owner can read, until there is another one.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Final, Protocol

from goqueue.base.errors import GoQueueError, ShuttingDownError
from goqueue.base.ids import Position
from goqueue.base.security_limits import NOTICE_MS, USED_MS, USES_AT_ONCE_MAX
from goqueue.base.units import SECOND_MS
from goqueue.config.model import BrokerConfig
from goqueue.core.security import commands
from goqueue.core.security.directory import Directory, Reply
from goqueue.core.security.events import Event
from goqueue.core.security.keys import SECRET_DIGITS, SECRET_PREFIX, digest_of, is_secret
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.machine import MachineHost
from goqueue.runtime.meta_journal import MetaJournal
from goqueue.storage.disk import Disk, write_atomically

SECURITY_PATH: Final = "meta/security.journal"
BOOTSTRAP_PATH: Final = "meta/bootstrap.key"
KEY: Final = "security"
NOTED_ENDS_MAX: Final = 10_000
"""Ends of certificates and tokens that are noted one by one."""
BOOTSTRAP_BYTES_MAX: Final = 1_000

log = get_logger("goqueue.security")


def new_secret() -> str:
    """Return the secret of a new key."""
    return SECRET_PREFIX + secrets.token_hex(SECRET_DIGITS // 2)


class SharedDirectory(Protocol):
    """The keys and rules of a cluster; ``runtime/cluster`` implements it."""

    @property
    def security(self) -> Directory:
        """The keys and access rules of the cluster, as far as this node knows them."""
        ...

    def watch_security(self, watcher: Callable[[], None]) -> None:
        """Have a function called in each step in which they change."""
        ...

    async def change_security(self, command: commands.Command) -> Reply:
        """Change them on all nodes; return when this node has them so, or raise."""
        ...


class Security:
    """Hosts the directory of keys and rules."""

    def __init__(self, config: BrokerConfig, disk: Disk, clock: Clock) -> None:
        self._config, self._disk, self._clock = config, disk, clock
        self._shared: SharedDirectory | None = None
        self.journal = MetaJournal(disk, SECURITY_PATH, event=Event, is_lazy=True)
        self.host = MachineHost[Event](self.journal, KEY, home=KEY, machine=Directory())
        self._watchers: list[Callable[[], None]] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._next_end_ms = 0
        self._noted_ends: set[int] = set()
        """When credentials end that no directory knows."""
        self._crowded_until_ms = 0
        """Until then there are more of them than are noted, so all are judged at every look."""
        self._uses: dict[str, int] = {}
        self._noted_ms = 0
        self._noting: asyncio.Task[None] | None = None
        self.bootstrap_digest = b""
        """What the key for the first administrator is known by; empty where there is none."""

    def __repr__(self) -> str:
        return f"<Security: {self.directory!r}>"

    @property
    def directory(self) -> Directory:
        """All keys and rules; in a cluster those that this node knows of."""
        if self._shared is not None:
            return self._shared.security
        assert isinstance(self.host.machine, Directory), "made here"
        return self.host.machine

    def now_ms(self) -> int:
        """Return the time that secrets end by: a clock that is set back prolongs none."""
        return self._clock.latest_ms()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have a function called whenever something may be decided otherwise than before."""
        self._watchers.append(watcher)

    # Life.

    def follow(self, shared: SharedDirectory) -> None:
        """Have the keys and rules of a cluster, not those of this broker alone."""
        self._shared = shared
        shared.watch_security(self._changed)

    def load(self) -> None:
        """Bring back what was decided before the last stop; a cluster has it elsewhere."""
        if self._config.cluster_enabled:
            return
        with self.journal.reading(self.host):
            self.host.load(Event)

    def start(self) -> None:
        """Begin to notice secrets that end; make a first key if nobody could make one."""
        if not self._config.auth_enabled:
            return
        if not self._config.api_root_key and not self.directory.has_admin(self.now_ms()):
            self._make_bootstrap_key()
        self._changed()
        self._noted_ms = self._clock.monotonic_ms()
        self._set_alarm()

    async def stop(self) -> None:
        """Notice nothing any more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._noting is not None:
            self._noting.cancel()
            await asyncio.gather(self._noting, return_exceptions=True)
        self.host.close(ShuttingDownError("the broker is stopping"))
        self.journal.close()

    # Changing.

    async def change(self, command: commands.Command) -> Reply:
        """Decide a command, durably, and in a cluster for all its nodes."""
        if self._shared is not None:
            return await self._shared.change_security(command)
        now_ms = self.now_ms()
        decision = self.directory.decide(command, now_ms=now_ms)
        if decision.events:
            self.host.commit(decision.events)
            if not isinstance(command, commands.NoteUses):
                self._changed()
        return decision.reply

    def used(self, key_id: str) -> None:
        """Note that a key was used; it is written once a minute, for all keys together."""
        if len(self._uses) < USES_AT_ONCE_MAX:
            self._uses[key_id] = self._clock.now_ms()

    def note_end(self, end_ms: int) -> None:
        """Notice it when a credential ends that no directory knows."""
        if len(self._noted_ends) < NOTED_ENDS_MAX:
            self._noted_ends.add(end_ms)
        else:
            self._crowded_until_ms = max(self._crowded_until_ms, end_ms)
        self._next_end_ms = min(self._next_end_ms or end_ms, end_ms)

    def _changed(self) -> None:
        now_ms = self.now_ms()
        self._noted_ends = {end for end in self._noted_ends if end > now_ms}
        ends = (self.directory.next_end_ms(now_ms), *self._noted_ends)
        self._next_end_ms = min(filter(None, ends), default=0)
        if self.bootstrap_digest and self.directory.has_admin(self.now_ms()):
            self.bootstrap_digest = b""
            self._disk.remove(BOOTSTRAP_PATH)
            log.info(LogEvent.BOOTSTRAP_KEY_REMOVED, path=BOOTSTRAP_PATH)
        for watcher in self._watchers:
            watcher()

    def _make_bootstrap_key(self) -> None:
        secret = self._known_bootstrap_key()
        if not is_secret(secret):
            secret = new_secret()
            self._disk.make_directory(BOOTSTRAP_PATH.rpartition("/")[0])
            write_atomically(self._disk, BOOTSTRAP_PATH, f"{secret}\n".encode())
        self.bootstrap_digest = digest_of(secret)
        log.warning(LogEvent.BOOTSTRAP_KEY_MADE, path=BOOTSTRAP_PATH)

    def _known_bootstrap_key(self) -> str:
        if not self._disk.exists(BOOTSTRAP_PATH):
            return ""
        file = self._disk.open(BOOTSTRAP_PATH)
        try:
            return file.read(Position(0), BOOTSTRAP_BYTES_MAX).decode("ascii", "replace").strip()
        finally:
            file.close()

    # Time.

    def _set_alarm(self) -> None:
        loop = asyncio.get_running_loop()
        self._alarm = loop.call_later(NOTICE_MS / SECOND_MS, self._look)

    def _look(self) -> None:
        """Notice secrets that ended since the last look, and write down uses."""
        self._set_alarm()
        now_ms = self.now_ms()
        if now_ms < self._crowded_until_ms or 0 < self._next_end_ms <= now_ms:
            self._changed()
        is_due = self._clock.monotonic_ms() - self._noted_ms >= USED_MS
        if is_due and self._uses and self._noting is None:
            self._noted_ms = self._clock.monotonic_ms()
            self._noting = asyncio.get_running_loop().create_task(self._note())

    async def _note(self) -> None:
        uses, self._uses = self._uses, {}
        try:
            await self.change(commands.NoteUses(uses=list(uses.items())))
        except GoQueueError as error:
            log.info(LogEvent.KEY_USES_NOT_NOTED, error=error.message)
        finally:
            self._noting = None
