"""Keys, access rules and callers as JSON."""

from typing import Literal

import msgspec

from goqueue.base.errors import InvalidRequestError
from goqueue.base.security_limits import OVERLAP_MS
from goqueue.base.units import US_PER_MS, parse_duration_ms
from goqueue.wire import security_calls as said
from goqueue.wire.times import format_time_us


class KeyCreate(msgspec.Struct, frozen=True, kw_only=True):
    """A key to be made; scopes narrow its roles, hosts are the networks it is valid from."""

    name: said.Word
    roles: said.Roles = []
    expires_in: str | None = None
    metadata: said.Notes | None = None
    scopes: said.Scopes | None = None
    tenant: said.Word | None = None
    hosts: said.Hosts | None = None


class KeyShown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is known of a key; its secret is not kept."""

    id: str
    name: str
    prefix: str
    roles: list[str]
    created_at: str
    revoked: bool
    expires_at: str | None = None
    last_used_at: str | None = None
    rotated_at: str | None = None
    old_key_valid_until: str | None = None
    scopes: list[str] = []
    tenant: str | None = None
    hosts: list[str] = []
    metadata: dict[str, str] = {}


class KeyMade(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key with its secret, which is told this once."""

    id: str
    key: str
    prefix: str
    name: str
    roles: list[str]
    expires_at: str | None = None
    old_key_valid_until: str | None = None


class KeysShown(msgspec.Struct, frozen=True, kw_only=True):
    """Every key, the latest first."""

    keys: list[KeyShown]
    count: int


class KeyRotation(msgspec.Struct, frozen=True, kw_only=True):
    """How long the secret before stays valid; an hour unless it says otherwise."""

    overlap: str | None = None


class KeyRevoked(msgspec.Struct, frozen=True, kw_only=True):
    """A key is valid no more."""

    success: Literal[True] = True
    message: str = "key revoked"
    key_id: str


class AclCreate(msgspec.Struct, frozen=True, kw_only=True):
    """An access rule to be added; its name may be a pattern with * and ?."""

    principal: said.Word
    resource_type: said.Word
    resource_name: said.Word
    operation: said.Word
    effect: said.Word
    hosts: said.Hosts | None = None


class AclAdded(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """An access rule under the names of the contract."""

    principal: str
    resource_type: str
    resource_name: str
    operation: str
    allow: bool


class AclMade(msgspec.Struct, frozen=True, kw_only=True):
    """An access rule was added."""

    success: Literal[True] = True
    message: str = "acl added"
    acl_id: int
    acl: AclAdded


class AclShown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An access rule; no other one ever gets its id."""

    id: int
    principal: str
    resource_type: str
    resource_name: str
    operation: str
    effect: str
    hosts: list[str] = []


class AclsShown(msgspec.Struct, frozen=True, kw_only=True):
    """Every access rule, in the order in which they were added."""

    acls: list[AclShown]
    count: int


class AclRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """An access rule is gone."""

    success: Literal[True] = True
    message: str = "acl removed"
    acl_id: int


class AclQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Whether somebody may do something; a principal is a key's id or a name of rules."""

    principal: said.Word
    operation: said.Word
    resource_type: said.Word
    resource_name: said.Word = ""
    host: said.Word = ""


class AclAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What would be decided, why, and by which rules; those that deny come first."""

    allowed: bool
    reason: str
    acls: list[AclShown]


class Whoami(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who sends the request, and what its credential is good for."""

    principal: str
    authenticated: bool
    roles: list[str]
    scopes: list[str]
    name: str | None = None
    tenant: str | None = None
    expires_at: str | None = None


def read_key(wanted: KeyCreate) -> said.MakeKey:
    """Return the request for a key, or raise naming the field at fault."""
    return said.MakeKey(
        wanted.name,
        list(wanted.roles),
        list(wanted.scopes or ()),
        wanted.tenant,
        list(wanted.hosts or ()),
        dict(wanted.metadata or {}),
        _duration_ms("expires_in", wanted.expires_in),
    )


def read_overlap_ms(wanted: KeyRotation) -> int:
    """Return how long a secret before stays valid."""
    if wanted.overlap is None:
        return OVERLAP_MS
    return _duration_ms("overlap", wanted.overlap)


def _duration_ms(field: str, text: str | None) -> int:
    if not text:
        return 0
    try:
        duration_ms = parse_duration_ms(text)
    except ValueError as error:
        raise InvalidRequestError(f"{field}: {error}") from error
    if duration_ms < 0:
        raise InvalidRequestError(f"{field}: {text[:40]!a} is negative")
    return duration_ms


def show_key(key: said.KeyState) -> KeyShown:
    """Return a key as it is listed."""
    return KeyShown(
        id=key.id,
        name=key.name,
        prefix=key.prefix,
        roles=key.roles,
        created_at=_time(key.created_ms),
        revoked=key.is_revoked,
        expires_at=_moment(key.expires_ms),
        last_used_at=_moment(key.used_ms),
        rotated_at=_moment(key.rotated_ms),
        old_key_valid_until=_moment(key.old_until_ms),
        scopes=key.scopes,
        tenant=key.tenant,
        hosts=key.hosts,
        metadata=key.notes,
    )


def show_secret(made: said.KeySecret) -> KeyMade:
    """Return a key with its secret."""
    key = made.key
    return KeyMade(
        id=key.id,
        key=made.secret,
        prefix=key.prefix,
        name=key.name,
        roles=key.roles,
        expires_at=_moment(key.expires_ms),
        old_key_valid_until=_moment(key.old_until_ms),
    )


def read_acl(wanted: AclCreate) -> said.AddAcl:
    """Return the request for an access rule."""
    return said.AddAcl(
        wanted.principal,
        wanted.resource_type,
        wanted.resource_name,
        wanted.operation,
        wanted.effect,
        list(wanted.hosts or ()),
    )


def show_acl(acl: said.AclState) -> AclShown:
    """Return an access rule as it is listed."""
    return AclShown(
        id=acl.id,
        principal=acl.principal,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        operation=acl.operation,
        effect=acl.effect,
        hosts=acl.hosts,
    )


def show_added(acl: said.AclState) -> AclMade:
    """Return an access rule that was added."""
    return AclMade(
        acl_id=acl.id,
        acl=AclAdded(
            principal=acl.principal,
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            operation=acl.operation,
            allow=acl.effect == "allow",
        ),
    )


def show_identity(known: said.Identity) -> Whoami:
    """Return who sends a request."""
    return Whoami(
        principal=known.principal,
        authenticated=known.is_authenticated,
        roles=known.roles,
        scopes=known.scopes,
        name=known.name or None,
        tenant=known.tenant,
        expires_at=_moment(known.expires_ms),
    )


def _time(moment_ms: int) -> str:
    return format_time_us(moment_ms * US_PER_MS)


def _moment(moment_ms: int) -> str | None:
    return _time(moment_ms) if moment_ms else None
