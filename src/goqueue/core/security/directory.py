"""The keys and access rules of a broker, or of a whole cluster.

Shape: decider. Alone, a broker keeps the events in ``meta/security.journal``; in a cluster they are
part of its metadata, so every node has the same directory.
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from goqueue.base.errors import (
    AclNotFoundError,
    InvalidRequestError,
    KeyNotFoundError,
    OverloadedError,
)
from goqueue.base.security_limits import ACLS_MAX, KEYS_FORGOTTEN_AT_ONCE, KEYS_MAX, USED_MS
from goqueue.core.decision import Decision
from goqueue.core.security import commands, events
from goqueue.core.security.events import Event
from goqueue.core.security.keys import KeyRecord, check_terms, is_key_id
from goqueue.core.security.rule import Rule, check_rule

Reply = KeyRecord | Rule | None
Verdict = Decision[Event, Reply]


class Directory:
    """Decides about keys and rules, and remembers them."""

    def __init__(self) -> None:
        self._keys: dict[str, KeyRecord] = {}
        self._ids_by_digest: dict[bytes, str] = {}
        self._rules: dict[int, Rule] = {}
        self._next_rule = 1
        self.version = 0
        """How often something changed that decisions rest on."""

    def __repr__(self) -> str:
        return f"<Directory: {len(self._keys)} keys, {len(self._rules)} rules>"

    # Looking.

    @property
    def keys(self) -> Mapping[str, KeyRecord]:
        """Every key by its id, those that are valid no more among them."""
        return self._keys

    @property
    def rules(self) -> Mapping[int, Rule]:
        """Every access rule by its id."""
        return self._rules

    def find(self, digest: bytes) -> KeyRecord | None:
        """Return the key that has this secret, or had it before its last rotation."""
        return self._keys.get(self._ids_by_digest.get(digest, ""))

    def key(self, key_id: str) -> KeyRecord:
        """Return a key by its id, or raise."""
        found = self._keys.get(key_id)
        if found is None:
            raise KeyNotFoundError("key not found")
        return found

    def has_admin(self, now_ms: int) -> bool:
        """Return True if there is a key that can make others."""
        return any(one.is_admin and one.is_live(now_ms) for one in self._keys.values())

    def next_end_ms(self, now_ms: int) -> int:
        """Return when the next secret ends, 0 if none will."""
        ends = (
            end
            for one in self._keys.values()
            if not one.revoked_ms
            for end in (one.expires_ms, one.old_until_ms)
            if end > now_ms
        )
        return min(ends, default=0)

    # Deciding.

    def decide(self, command: commands.Command, *, now_ms: int) -> Verdict:
        """Return what a command changes and its answer, or raise with nothing changed."""
        match command:
            case commands.MakeKey():
                return self._make(command, now_ms)
            case commands.RotateKey():
                return self._rotate(command, now_ms)
            case commands.RevokeKey(id=key_id):
                return self._revoke(key_id, now_ms)
            case commands.NoteUses(uses=uses):
                return self._note(uses)
            case commands.AddRule(rule=rule):
                return self._add(rule, now_ms)
            case commands.RemoveRule(id=rule_id):
                return self._remove(rule_id)

    def _make(self, command: commands.MakeKey, now_ms: int) -> Verdict:
        terms = check_terms(command.terms)
        if not is_key_id(command.id):
            raise InvalidRequestError("id: not the id of a key")
        known = self._keys.get(command.id)
        if known is not None and known.digest == command.digest:
            # The answer to the first request was lost on its way between two nodes.
            return Decision((), known)
        if known is not None or command.digest in self._ids_by_digest:
            raise InvalidRequestError("id: there is such a key already")
        record = KeyRecord(
            id=command.id,
            terms=terms,
            digest=command.digest,
            prefix=command.prefix,
            created_ms=now_ms,
            expires_ms=now_ms + terms.life_ms if terms.life_ms else 0,
        )
        return Decision((*self._make_room(now_ms), events.KeyMade(record)), record)

    def _make_room(self, now_ms: int) -> tuple[Event, ...]:
        """Return that old keys are forgotten which are valid no more, if there are too many."""
        if len(self._keys) < KEYS_MAX:
            return ()
        over = [one for one in self._keys.values() if not one.is_live(now_ms)]
        if not over:
            raise OverloadedError(f"there are {len(self._keys)} keys; the limit is {KEYS_MAX}")
        oldest = sorted(over, key=lambda one: (one.revoked_ms or one.expires_ms, one.id))
        return (events.KeysForgotten([one.id for one in oldest[:KEYS_FORGOTTEN_AT_ONCE]]),)

    def _rotate(self, command: commands.RotateKey, now_ms: int) -> Verdict:
        known = self.key(command.id)
        if not known.is_live(now_ms):
            raise InvalidRequestError("the key is valid no more; make another one")
        if known.digest == command.digest:
            return Decision((), known)
        if command.digest in self._ids_by_digest:
            raise InvalidRequestError("the secret was used before")
        rotated = events.KeyRotated(
            command.id, command.digest, command.prefix, now_ms + command.overlap_ms, now_ms
        )
        return Decision((rotated,), _rotated(known, rotated))

    def _revoke(self, key_id: str, now_ms: int) -> Verdict:
        known = self.key(key_id)
        if known.revoked_ms:
            return Decision((), known)
        return Decision((events.KeyRevoked(key_id, now_ms),), replace(known, revoked_ms=now_ms))

    def _note(self, uses: list[tuple[str, int]]) -> Verdict:
        fresh = [one for one in uses if self._is_news(*one)]
        return Decision((events.KeysUsed(fresh),) if fresh else (), None)

    def _is_news(self, key_id: str, used_ms: int) -> bool:
        known = self._keys.get(key_id)
        return known is not None and used_ms >= known.used_ms + USED_MS

    def _add(self, rule: Rule, now_ms: int) -> Verdict:
        if len(self._rules) >= ACLS_MAX:
            raise OverloadedError(f"there are {len(self._rules)} rules; the limit is {ACLS_MAX}")
        checked = replace(check_rule(rule), id=self._next_rule, created_ms=now_ms)
        same = next((one for one in self._rules.values() if _is_same(one, checked)), None)
        if same is not None:
            return Decision((), same)
        return Decision((events.RuleAdded(checked),), checked)

    def _remove(self, rule_id: int) -> Verdict:
        found = self._rules.get(rule_id)
        if found is None:
            raise AclNotFoundError("acl not found")
        return Decision((events.RuleRemoved(rule_id),), found)

    # Changing.

    def apply(self, event: Event) -> None:  # noqa: C901 - a case for each event
        """Change state by one event."""
        match event:
            case events.KeyMade(key=key):
                self._keep(key)
            case events.KeyRotated(id=key_id):
                self._keep(_rotated(self._keys[key_id], event))
            case events.KeyRevoked(id=key_id, at_ms=at_ms):
                self._keep(replace(self._keys[key_id], revoked_ms=at_ms))
            case events.KeysForgotten(ids=ids):
                for key_id in ids:
                    self._drop(key_id)
            case events.KeysUsed(uses=uses):
                for key_id, at_ms in uses:
                    if key_id in self._keys:
                        self._keys[key_id] = replace(self._keys[key_id], used_ms=at_ms)
                return
            case events.RuleAdded(rule=rule):
                self._rules[rule.id] = rule
                self._next_rule = max(self._next_rule, rule.id + 1)
            case events.RuleRemoved(id=rule_id):
                del self._rules[rule_id]
            case events.RulesCounted(next_id=next_id):
                self._next_rule = next_id
        self.version += 1

    def _keep(self, key: KeyRecord) -> None:
        self._drop(key.id)
        self._keys[key.id] = key
        for digest in filter(None, (key.digest, key.old_digest)):
            self._ids_by_digest[digest] = key.id

    def _drop(self, key_id: str) -> None:
        known = self._keys.pop(key_id, None)
        for digest in (known.digest, known.old_digest) if known is not None else ():
            self._ids_by_digest.pop(digest, None)

    def snapshot(self) -> Iterator[Event]:
        """Yield the events that rebuild this state."""
        yield from map(events.KeyMade, self._keys.values())
        yield from map(events.RuleAdded, self._rules.values())
        if self._next_rule > 1:
            yield events.RulesCounted(self._next_rule)


def _rotated(key: KeyRecord, event: events.KeyRotated) -> KeyRecord:
    return replace(
        key,
        digest=event.digest,
        prefix=event.prefix,
        old_digest=key.digest,
        old_until_ms=event.old_until_ms,
        rotated_ms=event.at_ms,
    )


def _is_same(one: Rule, other: Rule) -> bool:
    return replace(one, id=0, created_ms=0) == replace(other, id=0, created_ms=0)
