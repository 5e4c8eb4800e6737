"""Credentials: who a caller is; keys made, listed, rotated, revoked; access rules."""

import secrets
from typing import Final

from goqueue.base.caller import ANONYMOUS, Caller
from goqueue.base.deeds import Deed
from goqueue.base.errors import ForbiddenError, InvalidRequestError
from goqueue.core.security import commands
from goqueue.core.security.access import Principal
from goqueue.core.security.keys import (
    ID_DIGITS,
    ID_PREFIX,
    SHOWN_CHARACTERS,
    KeyRecord,
    KeyTerms,
    digest_of,
    is_key_id,
)
from goqueue.core.security.need import Need, read_kind, read_permission
from goqueue.core.security.rule import ROLE_PREFIX, Rule, read_effect, read_principal
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.broker import Broker
from goqueue.runtime.security import new_secret
from goqueue.service.gate import Gate
from goqueue.service.guard import Guard
from goqueue.service.verb import caller_verb, verb
from goqueue.wire import calls
from goqueue.wire import security_calls as said

TENANT_ROLES: Final = frozenset({"producer", "consumer", "readonly", "tenant-admin"})
"""What an administrator of a tenant may give to its keys."""

log = get_logger("goqueue.security")


class Credentials:
    """What can be asked about callers, their keys and what they may do."""

    def __init__(self, broker: Broker, gate: Gate) -> None:
        self._broker = broker
        self._security = broker.security
        self._gate = gate

    @caller_verb(Deed.AUTHENTICATE)
    async def authenticate(self, caller: Caller, _: said.Auth) -> said.Identity:
        """Return who the caller is by the credential it has just shown."""
        return self._identity(caller)

    @caller_verb(Deed.WHOAMI)
    async def whoami(self, caller: Caller, _: calls.Nothing) -> said.Identity:
        """Return who the caller is, and what its credential is good for."""
        return self._identity(caller)

    def _identity(self, caller: Caller) -> said.Identity:
        guard = self._gate.guard
        if guard is None:
            return said.Identity(caller.principal, caller.tenant)
        known = guard.principal_of(caller)
        key = self._security.directory.keys.get(known.name)
        return said.Identity(
            known.name,
            known.tenant,
            list(known.roles),
            [] if key is None else list(key.terms.scopes),
            caller.expires_ms if key is None else key.expires_ms,
            "" if key is None else key.terms.name,
            is_authenticated=caller.principal != ANONYMOUS,
        )

    # Keys.

    @caller_verb(Deed.MAKE_KEY)
    async def make_key(self, caller: Caller, call: said.MakeKey) -> said.KeySecret:
        """Make a key; nothing tells its secret a second time."""
        terms = KeyTerms(
            name=call.name,
            roles=tuple(call.roles),
            scopes=tuple(call.scopes),
            tenant=call.tenant or caller.tenant,
            hosts=tuple(call.hosts),
            notes=dict(call.notes),
            life_ms=call.life_ms,
        )
        self._check_own(caller, terms)
        secret, key_id = new_secret(), ID_PREFIX + secrets.token_hex(ID_DIGITS // 2)
        command = commands.MakeKey(
            id=key_id, digest=digest_of(secret), prefix=secret[:SHOWN_CHARACTERS], terms=terms
        )
        made = await self._security.change(command)
        assert isinstance(made, KeyRecord), "the answer to a new key"
        log.info(LogEvent.KEY_CHANGED, key=made.id, change="made", by=caller.principal)
        return said.KeySecret(secret, _key_state(made))

    @caller_verb(Deed.LIST_KEYS)
    async def list_keys(self, caller: Caller, _: calls.Nothing) -> said.KeyList:
        """Return every key without its secret, the latest first."""
        keys = self._security.directory.keys.values()
        own = [one for one in keys if caller.tenant in (None, one.terms.tenant)]
        latest = sorted(own, key=lambda one: (-one.created_ms, one.id))
        return said.KeyList([_key_state(one) for one in latest])

    @caller_verb(Deed.ROTATE_KEY)
    async def rotate_key(self, caller: Caller, call: said.RotateKey) -> said.KeySecret:
        """Give a key another secret; the one before is valid for a while."""
        self._check_own(caller, self._security.directory.key(call.key).terms)
        secret = new_secret()
        command = commands.RotateKey(
            id=call.key,
            digest=digest_of(secret),
            prefix=secret[:SHOWN_CHARACTERS],
            overlap_ms=call.overlap_ms,
        )
        rotated = await self._security.change(command)
        assert isinstance(rotated, KeyRecord), "the answer to a rotation"
        log.info(LogEvent.KEY_CHANGED, key=call.key, change="rotated", by=caller.principal)
        return said.KeySecret(secret, _key_state(rotated))

    @caller_verb(Deed.REVOKE_KEY)
    async def revoke_key(self, caller: Caller, call: said.KeyCall) -> said.KeyState:
        """End a key: its next request is refused, and what waits is ended."""
        self._check_own(caller, self._security.directory.key(call.key).terms)
        revoked = await self._security.change(commands.RevokeKey(id=call.key))
        assert isinstance(revoked, KeyRecord), "the answer to a revocation"
        log.info(LogEvent.KEY_CHANGED, key=call.key, change="revoked", by=caller.principal)
        return _key_state(revoked)

    def _check_own(self, caller: Caller, terms: KeyTerms) -> None:
        """Raise unless a caller of a tenant keeps to its tenant and to roles within it."""
        if caller.tenant is None:
            return
        if terms.tenant != caller.tenant or not TENANT_ROLES.issuperset(terms.roles):
            raise ForbiddenError("keys of a tenant belong to it and have roles within it")

    # Access rules.

    @caller_verb(Deed.ADD_ACL)
    async def add_acl(self, caller: Caller, call: said.AddAcl) -> said.AclState:
        """Add an access rule; one that is there already is not added again."""
        rule = Rule(
            id=0,
            principal=call.principal,
            kind=call.resource_type,
            name=call.resource_name,
            operation=call.operation,
            is_allowed=read_effect(call.effect),
            hosts=tuple(call.hosts),
        )
        added = await self._security.change(commands.AddRule(rule=rule))
        assert isinstance(added, Rule), "the answer to a new rule"
        log.info(LogEvent.ACL_CHANGED, acl=added.id, change="added", by=caller.principal)
        return _acl_state(added)

    @verb(Deed.LIST_ACLS)
    async def list_acls(self, _: calls.Nothing) -> said.AclList:
        """Return every access rule."""
        return said.AclList([_acl_state(one) for one in self._security.directory.rules.values()])

    @caller_verb(Deed.REMOVE_ACL)
    async def remove_acl(self, caller: Caller, call: said.AclCall) -> said.AclState:
        """Remove an access rule by its id, which no other rule ever gets."""
        removed = await self._security.change(commands.RemoveRule(id=call.acl))
        assert isinstance(removed, Rule), "the answer to a removal"
        log.info(LogEvent.ACL_CHANGED, acl=call.acl, change="removed", by=caller.principal)
        return _acl_state(removed)

    @verb(Deed.TEST_ACL)
    async def test_acl(self, call: said.AclTest) -> said.AclVerdict:
        """Return what would be decided, and why; nothing is done."""
        guard = self._gate.guard or Guard(self._broker.config, self._security, self._broker.clock)
        need = Need(
            read_permission(call.operation), read_kind(call.resource_type), call.resource_name
        )
        access = guard.access_of(self._named(call.principal, call.host))
        verdict = access.decide(need)
        return said.AclVerdict(
            verdict.is_allowed, verdict.reason, [_acl_state(one) for one in verdict.rules]
        )

    def _named(self, principal: str, host: str) -> Principal:
        """Return somebody as rules mean it, by the name of rules: a key, or a role by itself."""
        name = read_principal(principal)
        if name.startswith(ROLE_PREFIX):
            return Principal(name=name, roles=(name.removeprefix(ROLE_PREFIX),), host=host)
        if not is_key_id(name):
            return Principal(name=name, host=host)
        key = self._security.directory.key(name)
        if not key.is_live(self._security.now_ms()):
            raise InvalidRequestError(f"{name} is valid no more: nothing is allowed to it")
        terms = key.terms
        return Principal(
            name=name, roles=terms.roles, scopes=key.scopes, tenant=terms.tenant, host=host
        )


def _key_state(key: KeyRecord) -> said.KeyState:
    terms = key.terms
    return said.KeyState(
        key.id,
        terms.name,
        key.prefix,
        list(terms.roles),
        key.created_ms,
        key.expires_ms,
        key.used_ms,
        bool(key.revoked_ms),
        list(terms.scopes),
        terms.tenant,
        list(terms.hosts),
        dict(terms.notes),
        key.rotated_ms,
        key.old_until_ms,
    )


def _acl_state(rule: Rule) -> said.AclState:
    return said.AclState(
        rule.id,
        rule.principal,
        rule.kind,
        rule.name,
        rule.operation,
        "allow" if rule.is_allowed else "deny",
        list(rule.hosts),
        rule.created_ms,
    )
