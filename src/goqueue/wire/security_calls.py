"""Headers of the operations on credentials, keys and access rules."""

from typing import Annotated

import msgspec

from goqueue.base.security_limits import (
    KEY_HOSTS_MAX,
    KEY_NOTES_MAX,
    KEY_ROLES_MAX,
    KEY_SCOPES_MAX,
    OVERLAP_MS,
    OVERLAP_MS_MAX,
    TEXT_CHARACTERS_MAX,
)
from goqueue.wire.calls import Call, Credential, Natural, Text

Word = Annotated[str, msgspec.Meta(max_length=TEXT_CHARACTERS_MAX)]
Roles = Annotated[list[Word], msgspec.Meta(max_length=KEY_ROLES_MAX)]
Scopes = Annotated[list[Word], msgspec.Meta(max_length=KEY_SCOPES_MAX)]
Hosts = Annotated[list[Word], msgspec.Meta(max_length=KEY_HOSTS_MAX)]
Notes = Annotated[dict[Word, Word], msgspec.Meta(max_length=KEY_NOTES_MAX)]


class Auth(Call, frozen=True):
    """Show another credential of the same principal on an open connection."""

    credential: Credential
    mechanism: Text = ""


class Identity(Call, frozen=True):
    """Who a caller is, and what its credential is good for."""

    principal: str
    tenant: str | None = None
    roles: list[str] = msgspec.field(default_factory=list)
    scopes: list[str] = msgspec.field(default_factory=list)
    expires_ms: int = 0
    """When the credential ends; 0 for never."""
    name: str = ""
    """What the owner calls the key."""
    is_authenticated: bool = False
    """Whether a credential has proved it; False where the broker asks for none."""


class MakeKey(Call, frozen=True):
    """Make an API key."""

    name: Word
    roles: Roles = msgspec.field(default_factory=list)
    scopes: Scopes = msgspec.field(default_factory=list)
    tenant: Word | None = None
    hosts: Hosts = msgspec.field(default_factory=list)
    notes: Notes = msgspec.field(default_factory=dict)
    life_ms: Natural = 0
    """How long it is valid; 0 for ever."""


class KeyCall(Call, frozen=True):
    """Name a key by its id."""

    key: Word


class RotateKey(Call, frozen=True):
    """Give a key another secret; the one before is valid for a while."""

    key: Word
    overlap_ms: Annotated[int, msgspec.Meta(ge=0, le=OVERLAP_MS_MAX)] = OVERLAP_MS


class KeyState(Call, frozen=True):
    """All that is known of a key; its secret is in nothing but the answer to its making."""

    id: str
    name: str
    prefix: str
    roles: list[str]
    created_ms: int
    expires_ms: int = 0
    used_ms: int = 0
    is_revoked: bool = False
    scopes: list[str] = msgspec.field(default_factory=list)
    tenant: str | None = None
    hosts: list[str] = msgspec.field(default_factory=list)
    notes: dict[str, str] = msgspec.field(default_factory=dict)
    rotated_ms: int = 0
    old_until_ms: int = 0
    """Until when the secret before the last rotation is valid."""


class KeySecret(Call, frozen=True):
    """A key whose secret is told this once."""

    secret: str
    key: KeyState


class KeyList(Call, frozen=True):
    """Every key."""

    keys: list[KeyState]


class AddAcl(Call, frozen=True):
    """Add an access rule."""

    principal: Word
    resource_type: Word
    resource_name: Word
    operation: Word
    effect: Word
    hosts: Hosts = msgspec.field(default_factory=list)


class AclCall(Call, frozen=True):
    """Name an access rule by its id."""

    acl: Natural


class AclState(Call, frozen=True):
    """An access rule."""

    id: int
    principal: str
    resource_type: str
    resource_name: str
    operation: str
    effect: str
    hosts: list[str] = msgspec.field(default_factory=list)
    created_ms: int = 0


class AclList(Call, frozen=True):
    """Every access rule, in the order of their ids."""

    acls: list[AclState]


class AclTest(Call, frozen=True):
    """Ask what would be decided, and why."""

    principal: Word
    operation: Word
    resource_type: Word
    resource_name: Word = ""
    host: Word = ""


class AclVerdict(Call, frozen=True):
    """A decision and what it rests on; the rules that deny come first."""

    is_allowed: bool
    reason: str
    acls: list[AclState] = msgspec.field(default_factory=list)
