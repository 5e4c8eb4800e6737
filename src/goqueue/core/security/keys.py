"""API keys: what they look like, and what is kept of them. The secret itself is never kept.

Shape: codec. A secret has 256 bits of chance, so a plain digest of it cannot be guessed back.

    gq_ 64 hexadecimal digits         the secret, shown once
    key_ 16 hexadecimal digits        the id: the principal of rules, and of what the key does
    gq_ 8 hexadecimal digits          the prefix, by which people tell secrets apart
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from goqueue.base.deeds import Permission, ResourceKind
from goqueue.base.errors import InvalidRequestError
from goqueue.base.security_limits import (
    KEY_LIFE_MS_MAX,
    KEY_NOTES_MAX,
    KEY_SCOPES_MAX,
    TEXT_CHARACTERS_MAX,
)
from goqueue.core.security.need import Need
from goqueue.core.security.roles import ADMIN, TENANT_ADMIN, read_roles
from goqueue.core.security.rule import Scope, read_networks, read_scope

SECRET_PREFIX: Final = "gq_"  # noqa: S105 - how secrets begin
ID_PREFIX: Final = "key_"
SECRET_DIGITS: Final = 64
ID_DIGITS: Final = 16
SHOWN_CHARACTERS: Final = 11

_ADMINISTRATION: Final = Need(Permission.ADMIN, ResourceKind.CLUSTER)
_SECRET: Final = re.compile(rf"{SECRET_PREFIX}[0-9a-f]{{{SECRET_DIGITS}}}", re.ASCII)
_ID: Final = re.compile(rf"{ID_PREFIX}[0-9a-f]{{{ID_DIGITS}}}", re.ASCII)
_TENANT: Final = re.compile(r"[a-z][a-z0-9-]{2,63}", re.ASCII)


def is_secret(text: str) -> bool:
    """Return True if a text looks like the secret of an API key."""
    return _SECRET.fullmatch(text) is not None


def is_key_id(text: str) -> bool:
    """Return True if a text looks like the id of an API key."""
    return _ID.fullmatch(text) is not None


def digest_of(secret: str) -> bytes:
    """Return what is kept of a secret."""
    return sha256(secret.encode()).digest()


class KeyTerms(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What a key is for, as its maker says."""

    name: str
    roles: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    tenant: str | None = None
    hosts: tuple[str, ...] = ()
    notes: dict[str, str] = {}
    life_ms: int = 0
    """How long it is valid; 0 for ever."""


class KeyRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """All that is known of a key."""

    id: str
    terms: KeyTerms
    digest: bytes
    prefix: str
    created_ms: int
    expires_ms: int = 0
    """When it ends; 0 for never."""
    old_digest: bytes = b""
    """The secret before the last rotation."""
    old_until_ms: int = 0
    revoked_ms: int = 0
    rotated_ms: int = 0
    used_ms: int = 0

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """What it is narrowed to; nothing else is allowed by it."""
        return tuple(read_scope(text) for text in self.terms.scopes)

    @property
    def is_admin(self) -> bool:
        """Whether it may make other keys: a role is narrowed by scopes."""
        if ADMIN not in self.terms.roles:
            return False
        return not self.scopes or any(scope.has(_ADMINISTRATION) for scope in self.scopes)

    def is_live(self, now_ms: int) -> bool:
        """Return True if it may be used at all."""
        return not self.revoked_ms and (not self.expires_ms or now_ms < self.expires_ms)

    def is_current(self, digest: bytes, now_ms: int) -> bool:
        """Return True if a secret of it is valid now."""
        if not self.is_live(now_ms):
            return False
        return digest == self.digest or (digest == self.old_digest and now_ms < self.old_until_ms)


def check_terms(terms: KeyTerms) -> KeyTerms:
    """Return what a key is for as it is kept, or raise naming the field that is wrong."""
    if len(terms.scopes) > KEY_SCOPES_MAX:
        raise InvalidRequestError(f"scopes: {len(terms.scopes)}; the limit is {KEY_SCOPES_MAX}")
    for scope in terms.scopes:
        read_scope(scope)
    roles = read_roles(terms.roles)
    _check_tenant(terms.tenant, roles)
    if not 0 <= terms.life_ms <= KEY_LIFE_MS_MAX:
        raise InvalidRequestError("expires_in: a key lives for ten years at most")
    return msgspec.structs.replace(
        terms,
        name=_line(terms.name, field="name"),
        roles=roles,
        hosts=read_networks(terms.hosts, field="hosts"),
        notes=_notes(terms.notes),
    )


def _check_tenant(tenant: str | None, roles: Sequence[str]) -> None:
    if tenant is None:
        if TENANT_ADMIN in roles:
            raise InvalidRequestError(f"roles: {TENANT_ADMIN} is for keys of a tenant")
        return
    if not _TENANT.fullmatch(tenant):
        raise InvalidRequestError(
            "tenant: 3 to 64 small letters, digits and dashes, a letter first"
        )
    if ADMIN in roles:
        raise InvalidRequestError(f"roles: a key of a tenant cannot be {ADMIN}")


def _line(value: str, *, field: str) -> str:
    if not value.strip():
        raise InvalidRequestError(f"{field} is required")
    if len(value) > TEXT_CHARACTERS_MAX or not value.isprintable():
        raise InvalidRequestError(
            f"{field}: a line of {TEXT_CHARACTERS_MAX} characters at most, without control codes"
        )
    return value


def _notes(notes: Mapping[str, str]) -> dict[str, str]:
    if len(notes) > KEY_NOTES_MAX:
        raise InvalidRequestError(f"metadata: {len(notes)} notes; the limit is {KEY_NOTES_MAX}")
    return {
        _line(name, field="metadata"): _line(value, field="metadata") if value else ""
        for name, value in notes.items()
    }
