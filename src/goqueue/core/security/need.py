"""What a request needs to be allowed to do.

Shape: calculator.
"""

from typing import Final, NamedTuple

from goqueue.base.deeds import Permission, ResourceKind
from goqueue.base.errors import InvalidRequestError

ANY: Final = "*"
"""Every kind, every name or everybody, in a rule."""

ALL: Final = "all"
"""Every operation, in a rule."""


class Need(NamedTuple):
    """One permission on one resource. What is about the whole cluster has no name."""

    permission: Permission
    kind: ResourceKind
    name: str = ""

    def __str__(self) -> str:
        """Return the need as errors tell it: ``write topic 'orders'``."""
        named = f" {self.name!a}" if self.name else ""
        return f"{self.permission.value} {self.kind.value}{named}"


ALIASES: Final = {"schema": ResourceKind.SUBJECT}
"""Other words for a kind of resources."""


def read_kind(text: str) -> ResourceKind:
    """Return a kind of resources by its name, or raise naming those there are."""
    known = {one.value: one for one in ResourceKind if one is not ResourceKind.NOTHING} | ALIASES
    if text not in known:
        raise InvalidRequestError(f"resource type {text[:40]!a} is not one of {', '.join(known)}")
    return known[text]


def read_permission(text: str) -> Permission:
    """Return an operation by its name, or raise naming those there are."""
    known = {one.value: one for one in Permission if one is not Permission.NOTHING}
    if text not in known:
        raise InvalidRequestError(f"operation {text[:40]!a} is not one of {', '.join(known)}")
    return known[text]
