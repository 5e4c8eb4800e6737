"""Roles: named sets of what is allowed, on everything of a kind.

Shape: calculator.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from goqueue.base.errors import InvalidRequestError
from goqueue.base.security_limits import KEY_ROLES_MAX
from goqueue.core.security.need import ALL, ANY

ADMIN: Final = "admin"
TENANT_ADMIN: Final = "tenant-admin"

Allowed = tuple[tuple[str, str], ...]
"""Operations, each with a kind of resources."""

ROLES: Final[Mapping[str, Allowed]] = {
    ADMIN: ((ALL, ANY),),
    "producer": (
        ("write", "topic"),
        ("write", "transaction"),
        ("read", "subject"),
    ),
    "consumer": (
        ("read", "topic"),
        ("read", "group"),
        ("read", "subject"),
    ),
    "readonly": (("describe", ANY),),
    "metrics": (("describe", "cluster"),),
    TENANT_ADMIN: tuple(
        (ALL, kind) for kind in ("topic", "group", "subject", "transaction", "schedule", "tenant")
    ),
}
"""What each role allows; read and write imply describe. No role allows more than it says."""


def read_roles(roles: Sequence[str]) -> tuple[str, ...]:
    """Return roles from outside, or raise naming those there are."""
    if len(roles) > KEY_ROLES_MAX:
        raise InvalidRequestError(f"roles: {len(roles)}; the limit is {KEY_ROLES_MAX}")
    for role in roles:
        if role not in ROLES:
            raise InvalidRequestError(f"role {role[:40]!a} is not one of {', '.join(ROLES)}")
    return tuple(dict.fromkeys(roles))
