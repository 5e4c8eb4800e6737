"""What happens to keys and access rules: the records of the security journal.

Shape: codec. Structs as arrays: fields are only added at the end.
"""

import msgspec

from goqueue.core.security.keys import KeyRecord
from goqueue.core.security.rule import Rule


class KeyMade(msgspec.Struct, frozen=True, tag="key", array_like=True):
    """There is a key, as it is now: a new one, or one of a snapshot."""

    key: KeyRecord


class KeyRotated(msgspec.Struct, frozen=True, tag="rotated", array_like=True):
    """A key has another secret; the one before is valid for a while."""

    id: str
    digest: bytes
    prefix: str
    old_until_ms: int
    at_ms: int


class KeyRevoked(msgspec.Struct, frozen=True, tag="revoked", array_like=True):
    """A key is valid no more."""

    id: str
    at_ms: int


class KeysForgotten(msgspec.Struct, frozen=True, tag="forgotten", array_like=True):
    """Keys that were no longer valid are not listed any more."""

    ids: list[str]


class KeysUsed(msgspec.Struct, frozen=True, tag="used", array_like=True):
    """When keys were last used, to the minute."""

    uses: list[tuple[str, int]]


class RuleAdded(msgspec.Struct, frozen=True, tag="rule", array_like=True):
    """There is an access rule."""

    rule: Rule


class RuleRemoved(msgspec.Struct, frozen=True, tag="unruled", array_like=True):
    """An access rule is gone."""

    id: int


class RulesCounted(msgspec.Struct, frozen=True, tag="rules", array_like=True):
    """The end of a snapshot: the id of the next rule."""

    next_id: int


Event = (
    KeyMade
    | KeyRotated
    | KeyRevoked
    | KeysForgotten
    | KeysUsed
    | RuleAdded
    | RuleRemoved
    | RulesCounted
)
