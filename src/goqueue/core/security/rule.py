"""Access rules: who may or may not do what, on which resources, from where.

Shape: codec. What comes from outside is checked here, once, and kept as it is.
"""

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

import msgspec

from goqueue.base.deeds import Permission
from goqueue.base.errors import InvalidRequestError
from goqueue.base.security_limits import ACLS_MAX, KEY_HOSTS_MAX, TEXT_CHARACTERS_MAX
from goqueue.core.security.need import ALL, ANY, Need, read_kind, read_permission
from goqueue.core.security.roles import read_roles

ROLE_PREFIX: Final = "role:"
_PRINCIPAL: Final = re.compile(r"key_[0-9a-f]{16}|(cert|user|sub|group):[!-~]+", re.ASCII)
_PRINTABLE: Final = re.compile(r"[!-~]+", re.ASCII)
_PATTERN: Final = re.compile(r"[A-Za-z0-9._:#@/+*?-]+", re.ASCII)
_WILD: Final = frozenset("*?")
MAPPED_BITS: Final = 96
"""What stands before the IPv4 address in an IPv6 address that is mapped to one."""
IMPLY_DESCRIBE: Final = frozenset({Permission.READ.value, Permission.WRITE.value})
"""Who may read or write something may know that it is there."""


class Rule(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One rule. Its id is never given again, so that removing by id removes what was meant."""

    id: int
    principal: str
    """A key's id, ``user:NAME``, ``cert:NAME``, ``sub:NAME``, ``role:NAME``, ``group:NAME``, *."""
    kind: str
    name: str
    """A name, or a pattern with * and ?."""
    operation: str
    is_allowed: bool
    hosts: tuple[str, ...] = ()
    """Networks it counts for; everywhere if empty."""
    created_ms: int = 0


class Matcher:
    """A pattern of names, compiled."""

    __slots__ = ("is_literal", "matches", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.is_literal = not _WILD & set(text)
        self.matches = matcher(text)


@lru_cache(maxsize=2 * ACLS_MAX)
def matcher(pattern: str) -> Callable[[str], object]:
    """Return a function that tells if a name fits a pattern; it takes no more than linear time."""
    if pattern == ANY:
        return bool
    if not _WILD & set(pattern):
        return pattern.__eq__
    if pattern.endswith("*") and not _WILD & set(pattern[:-1]):
        prefix = pattern[:-1]
        return lambda name: name.startswith(prefix)
    # Groups that never backtrack: a pattern of many stars costs no more than one of few.
    return re.compile(translate(pattern.replace("[", "[[]"))).match


def covers(operation: str, permission: Permission, *, is_allowed: bool = True) -> bool:
    """Return True if a rule for an operation is about a permission."""
    if operation in (ALL, permission.value):
        return True
    return is_allowed and permission is Permission.DESCRIBE and operation in IMPLY_DESCRIBE


def is_within(host: str, networks: Sequence[str]) -> bool:
    """Return True if an address is in one of some networks, or there are none."""
    if not networks:
        return True
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in _network(network) for network in networks)


def _network(text: str) -> IPv4Network | IPv6Network:
    """Return a network; one of mapped IPv4 addresses is that of the addresses."""
    network = ip_network(text)
    first = network.network_address
    mapped = first.ipv4_mapped if isinstance(first, IPv6Address) else None
    if mapped is None or network.prefixlen < MAPPED_BITS:
        return network
    return ip_network((int(mapped), network.prefixlen - MAPPED_BITS))


# What comes from outside.


def read_text(value: object, *, field: str) -> str:
    """Return a word without spaces, or raise naming the field."""
    if not isinstance(value, str) or not value:
        raise InvalidRequestError(f"{field} is required")
    if len(value) > TEXT_CHARACTERS_MAX:
        raise InvalidRequestError(
            f"{field} has {len(value)} characters; the limit is {TEXT_CHARACTERS_MAX}"
        )
    if not _PRINTABLE.fullmatch(value):
        raise InvalidRequestError(f"{field}: only printable characters without spaces")
    return value


def read_pattern(value: object, *, field: str) -> str:
    """Return a name or a pattern, or raise naming the field."""
    text = read_text(value, field=field)
    if not _PATTERN.fullmatch(text):
        raise InvalidRequestError(f"{field} {text[:40]!a} has characters that no name has")
    return text


def read_networks(values: Sequence[str], *, field: str) -> tuple[str, ...]:
    """Return networks as they are written, or raise naming the field."""
    if len(values) > KEY_HOSTS_MAX:
        raise InvalidRequestError(f"{field}: {len(values)} networks; the limit is {KEY_HOSTS_MAX}")
    try:
        return tuple(str(ip_network(value, strict=False)) for value in values)
    except ValueError as error:
        raise InvalidRequestError(f"{field}: {ascii(str(error))[1:-1][:200]}") from error


def read_effect(text: str) -> bool:
    """Return True for ``allow``, False for ``deny``, or raise."""
    if text not in ("allow", "deny"):
        raise InvalidRequestError("effect is allow or deny")
    return text == "allow"


def read_principal(text: str) -> str:
    """Return a principal that a caller can have, or raise: other rules would protect nothing."""
    found = read_text(text, field="principal")
    role = found.removeprefix(ROLE_PREFIX) if found.startswith(ROLE_PREFIX) else None
    if role is not None:
        read_roles([role])
    elif found != ANY and _PRINCIPAL.fullmatch(found) is None:
        raise InvalidRequestError(
            f"principal {found[:40]!a} is none that a caller has: write the id of a key (key_ and"
            " 16 digits), role:NAME, cert:NAME, or * for every caller"
        )
    return found


def check_rule(rule: Rule) -> Rule:
    """Return a rule from outside as it is kept, or raise naming the field that is wrong."""
    kind = rule.kind if rule.kind == ANY else read_kind(rule.kind).value
    operation = rule.operation if rule.operation == ALL else read_permission(rule.operation).value
    return msgspec.structs.replace(
        rule,
        principal=read_principal(rule.principal),
        kind=kind,
        name=read_pattern(rule.name, field="resource_name"),
        operation=operation,
        hosts=read_networks(rule.hosts, field="hosts"),
    )


class Scope(msgspec.Struct, frozen=True, array_like=True):
    """What a key is narrowed to: ``topic:orders.*``, or ``read:topic:orders.*``."""

    operation: str
    kind: str
    name: str

    def has(self, need: Need) -> bool:
        """Return True if a need is within it. Only for explanations; decisions are compiled."""
        return (
            covers(self.operation, need.permission)
            and self.kind in (ANY, need.kind.value)
            and bool(matcher(self.name)(need.name) or self.name == ANY)
        )


def read_scope(text: object) -> Scope:
    """Return a scope from its text, or raise."""
    words = read_text(text, field="scopes").split(":", 2)
    if len(words) == 2:  # noqa: PLR2004 - kind and name
        words.insert(0, ALL)
    if len(words) != 3:  # noqa: PLR2004 - operation, kind and name
        raise InvalidRequestError("scopes: write for example topic:orders.* or read:topic:orders.*")
    operation, kind, name = words
    if operation != ALL:
        operation = read_permission(operation).value
    if kind != ANY:
        kind = read_kind(kind).value
    return Scope(operation, kind, read_pattern(name, field="scopes"))
