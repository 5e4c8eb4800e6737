"""The limits of credentials and access rules, each with its reason, as in ``base/limits.py``."""

from typing import Final

from goqueue.base.units import DAY_MS, MINUTE_MS, SECOND_MS, KiB

CREDENTIAL_BYTES_MAX: Final = 16 * KiB
"""Longest credential a client shows; tokens of identity providers have up to 8 KiB."""

KEYS_MAX: Final = 100_000
"""Most API keys, those that were revoked lately among them; each takes about half a KiB."""

KEYS_FORGOTTEN_AT_ONCE: Final = 1_000
"""Revoked keys that make room in one go when there are as many keys as there may be."""

KEY_ROLES_MAX: Final = 16
"""Most roles of a key; there are fewer."""

KEY_SCOPES_MAX: Final = 100
"""Most scopes of a key: each is compared with what a request needs."""

KEY_HOSTS_MAX: Final = 100
"""Most networks that a key or a rule names."""

KEY_NOTES_MAX: Final = 32
"""Most notes of an owner on a key."""

TEXT_CHARACTERS_MAX: Final = 256
"""Longest name of a key, principal, pattern or note."""

ACLS_MAX: Final = 10_000
"""Most access rules: compiling them for a caller takes about a millisecond for a thousand."""

KEY_LIFE_MS_MAX: Final = 3_650 * DAY_MS
"""Longest life of a key that expires."""

OVERLAP_MS: Final = 60 * MINUTE_MS
"""How long the old secret of a rotated key stays valid unless the request says otherwise."""

OVERLAP_MS_MAX: Final = 30 * DAY_MS
"""Longest time for which two secrets of a key are valid."""

USED_MS: Final = MINUTE_MS
"""How often at most it is noted that a key was used."""

USES_AT_ONCE_MAX: Final = 1_000
"""Keys whose use is noted in one event."""

CALLERS_MAX: Final = 4_096
"""Callers whose access is kept compiled, and credentials of HTTP that are known; the oldest go."""

ATTEMPTS_MS: Final = MINUTE_MS
"""Wrong credentials of an address are counted over this time."""

ATTEMPTS_MAX: Final = 10
"""So many wrong credentials of an address in that time are answered as such; then it must wait."""

LOCKOUT_MS_MIN: Final = SECOND_MS
"""The first wait; each further wrong credential doubles it."""

LOCKOUT_MS_MAX: Final = 15 * MINUTE_MS
"""The longest wait."""

ADDRESSES_MAX: Final = 100_000
"""Addresses with wrong credentials that are remembered; those unheard of for longest go."""

NOTICE_MS: Final = 500
"""How often the guard looks for credentials that expired: half of the second that is promised."""
