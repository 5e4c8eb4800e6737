"""What can be asked of the directory of keys and rules: a closed union.

Shape: codec. A node of a cluster sends these to the controller, so every length is bounded. Secrets
and ids are drawn by who asks; the secret itself never travels.
"""

from typing import Annotated

import msgspec

from goqueue.base.security_limits import OVERLAP_MS, OVERLAP_MS_MAX, USES_AT_ONCE_MAX
from goqueue.core.security.keys import KeyTerms
from goqueue.core.security.rule import Rule

Word = Annotated[str, msgspec.Meta(max_length=64)]
Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Natural = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class MakeKey(msgspec.Struct, frozen=True, tag="make", array_like=True, kw_only=True):
    """Let there be a key."""

    id: Word
    digest: Digest
    prefix: Word
    terms: KeyTerms


class RotateKey(msgspec.Struct, frozen=True, tag="rotate", array_like=True, kw_only=True):
    """Give a key another secret."""

    id: Word
    digest: Digest
    prefix: Word
    overlap_ms: Annotated[int, msgspec.Meta(ge=0, le=OVERLAP_MS_MAX)] = OVERLAP_MS


class RevokeKey(msgspec.Struct, frozen=True, tag="revoke", array_like=True, kw_only=True):
    """End a key."""

    id: Word


class NoteUses(msgspec.Struct, frozen=True, tag="uses", array_like=True, kw_only=True):
    """Remember when keys were used."""

    uses: Annotated[list[tuple[Word, Natural]], msgspec.Meta(max_length=USES_AT_ONCE_MAX)]


class AddRule(msgspec.Struct, frozen=True, tag="allow", array_like=True, kw_only=True):
    """Add an access rule; its id is given here."""

    rule: Rule


class RemoveRule(msgspec.Struct, frozen=True, tag="remove", array_like=True, kw_only=True):
    """Remove an access rule."""

    id: Natural


Command = MakeKey | RotateKey | RevokeKey | NoteUses | AddRule | RemoveRule
