"""Who a caller is, by the credential it shows, and what it may do, by roles and access rules.

A broker has one where ``auth.enabled`` is set. It is the policy of the gate, and its only other
doors are the greeting of a native connection, ``AUTH``, and the headers of an HTTP request.
"""

import hmac
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final, Protocol

from goqueue.base.caller import ANONYMOUS, BROKER, Caller, Transport
from goqueue.base.deeds import Deed
from goqueue.base.errors import (
    CredentialExpiredError,
    GoQueueError,
    InvalidRequestError,
    TooManyAttemptsError,
    UnauthenticatedError,
)
from goqueue.base.security_limits import CALLERS_MAX, CREDENTIAL_BYTES_MAX
from goqueue.base.units import SECOND_MS, format_duration_ms
from goqueue.config.model import BrokerConfig
from goqueue.core.security.access import Access, Principal
from goqueue.core.security.attempts import Attempts, source_of
from goqueue.core.security.keys import KeyRecord, digest_of, is_secret
from goqueue.core.security.needs import NAMING, Naming, needs_of
from goqueue.core.security.rule import Rule, is_within
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.security import Security
from goqueue.service.policy import is_own_machine

ROOT: Final = "root"
BOOTSTRAP: Final = "bootstrap"
MARK_DIGITS: Final = 8
_SOME: Final = frozenset({Naming.FOUND, Naming.SOME, Naming.NAMED})
"""Without a name: a body that has it is read next, or what is asked for leads to it."""
_WITHOUT_NAME: Final = frozenset({Naming.OPEN, Naming.KNOWN, Naming.LISTED})
_NO_KEY: Final = "no credential was shown; an API key is required"
_WRONG: Final = "the credential is not valid here"
_ENDED: Final = "the credential has expired or was revoked"

log = get_logger("goqueue.security")


class Verifier(Protocol):
    """Knows credentials that no directory has, such as signed tokens."""

    def verify(self, shown: str, *, now_ms: int) -> Caller | None:
        """Return principal, tenant, roles and end of a credential; None if it is none of ours."""
        ...


class Guard:
    """Authenticates callers and judges requests."""

    def __init__(self, config: BrokerConfig, security: Security, clock: Clock) -> None:
        self._config, self._security, self._clock = config, security, clock
        root = config.api_root_key.reveal()
        self._root_digest = sha256(root.encode()).digest() if root else b""
        self._attempts = Attempts(
            failures_max=config.auth_failures_max, lockout_ms_max=config.auth_lockout_ms_max
        )
        self._accesses: dict[Caller, Access] = {}
        self.verifiers: Sequence[Verifier] = ()
        """Asked in order about what is no key."""
        security.watch(self._accesses.clear)

    def __repr__(self) -> str:
        return f"<Guard of {self._security!r}>"

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have a function called whenever something may be decided otherwise than before."""
        self._security.watch(watcher)

    def note_end(self, end_ms: int) -> None:
        """Notice it when a credential ends that only its connection knows: a certificate."""
        self._security.note_end(end_ms)

    # Authentication.

    def authenticate(self, shown: str, caller: Caller) -> Caller:
        """Return the caller with the identity that a credential proves, or raise."""
        now_ms = self._clock.monotonic_ms()
        source = source_of(caller.peer)
        wait_ms = self._attempts.wait_ms(source, now_ms=now_ms)
        if wait_ms and not self._is_key(shown):
            raise _too_many(wait_ms)
        if not shown:
            raise UnauthenticatedError(_NO_KEY)
        try:
            known = self._identify(shown, caller)
        except UnauthenticatedError:
            self._attempts.failed(source, now_ms=now_ms)
            log.warning(
                LogEvent.AUTHENTICATION_FAILED, peer=caller.peer, transport=caller.transport.value
            )
            raise
        if not wait_ms:
            self._attempts.succeeded(source)
        return known

    def _is_key(self, shown: str) -> bool:
        """Return True if a secret is that of a key: by chance no guess is one of 256 bits.

        So those who guess lock out no others behind the same address.
        """
        return is_secret(shown) and self._security.directory.find(digest_of(shown)) is not None

    def _identify(self, shown: str, caller: Caller) -> Caller:
        if len(shown) > CREDENTIAL_BYTES_MAX:
            raise InvalidRequestError(f"the limit of a credential is {CREDENTIAL_BYTES_MAX} bytes")
        digest = sha256(shown.encode("utf-8", "surrogateescape")).digest()
        # All are looked at, whatever is found: how long it takes does not depend on the secret.
        is_root = hmac.compare_digest(digest, self._root_digest)
        is_bootstrap = hmac.compare_digest(digest, self._security.bootstrap_digest)
        key = self._security.directory.find(digest)
        if is_root or is_bootstrap:
            name = ROOT if is_root else BOOTSTRAP
            return replace(caller, principal=name, credential=name, expires_ms=0)
        if key is not None:
            return self._by_key(key, digest, caller)
        for verifier in self.verifiers:
            found = verifier.verify(shown, now_ms=self._security.now_ms())
            if found is not None:
                return replace(
                    caller,
                    principal=found.principal,
                    tenant=found.tenant,
                    credential=found.credential,
                    roles=found.roles,
                    expires_ms=found.expires_ms,
                )
        raise UnauthenticatedError(_WRONG)

    def _by_key(self, key: KeyRecord, digest: bytes, caller: Caller) -> Caller:
        if not key.is_current(digest, self._security.now_ms()):
            raise CredentialExpiredError(_ENDED)
        if not is_within(caller.peer, key.terms.hosts):
            raise UnauthenticatedError(_WRONG)
        self._security.used(key.id)
        mark = digest.hex()[:MARK_DIGITS]
        return replace(
            caller,
            principal=key.id,
            tenant=key.terms.tenant,
            credential=f"{key.id}:{mark}",
            expires_ms=0,
        )

    def check(self, caller: Caller) -> None:
        """Raise unless the credential of a caller is still valid."""
        self._principal(caller)

    # Authorisation.

    def allows(self, caller: Caller, deed: Deed, names: tuple[str, ...]) -> bool:
        """Return True if a caller may do this; raise if it is not known who it is, or not now."""
        naming = NAMING.get(deed)
        if naming is None:
            return False
        if self._is_free(caller, deed, naming):
            return True
        access = self._access(caller)
        needs = needs_of(deed, names)
        if needs:
            return all(map(access.allows, needs))
        if naming in _SOME:
            return access.allows_some(deed.permission, deed.kind)
        return naming in _WITHOUT_NAME

    def _is_free(self, caller: Caller, deed: Deed, naming: Naming) -> bool:
        """Return True if nothing is asked of a caller for this deed."""
        if caller is BROKER or caller.transport is Transport.EMBEDDED:
            # Who has the files needs no permission of ours.
            return True
        if naming is Naming.OPEN:
            return deed is not Deed.PROBE_HEALTH or self._config.auth_allow_health
        return deed is Deed.READ_METRICS and self._is_beside(caller)

    def access_of(self, principal: Principal) -> Access:
        """Return what somebody may do by the rules of now, whoever it is."""
        return Access(principal, self._rules())

    def principal_of(self, caller: Caller) -> Principal:
        """Return who a caller is, as rules mean it, or raise if its credential is not valid."""
        return self._principal(caller)

    def _is_beside(self, caller: Caller) -> bool:
        """Return True if a caller is on this machine; behind a proxy everybody seems to be."""
        return not self._config.tls_behind_proxy and is_own_machine(caller.peer)

    def _rules(self) -> Sequence[Rule]:
        rules = self._security.directory.rules
        return list(rules.values()) if self._config.acl_enabled else []

    def _access(self, caller: Caller) -> Access:
        # Connections of one caller share what was compiled for it.
        key = replace(caller, connection=0, deadline_ms=None)
        known = self._accesses.get(key)
        if known is None:
            known = self.access_of(self._principal(caller))
            if len(self._accesses) >= CALLERS_MAX:
                self._accesses.clear()
            self._accesses[key] = known
        return known

    def _principal(self, caller: Caller) -> Principal:
        if caller.transport is Transport.EMBEDDED:
            return Principal(name=caller.principal, is_root=True)
        if caller.principal == ANONYMOUS or not caller.credential:
            raise UnauthenticatedError(_NO_KEY)
        if caller.credential == ROOT:
            return Principal(name=ROOT, is_root=True, host=caller.peer)
        if caller.credential == BOOTSTRAP:
            if self._security.directory.has_admin(self._security.now_ms()):
                raise CredentialExpiredError(_ENDED)
            return Principal(name=BOOTSTRAP, is_root=True, host=caller.peer)
        key_id, _, mark = caller.credential.partition(":")
        key = self._security.directory.keys.get(key_id)
        if key is None:
            return self._vouched(caller)
        now_ms = self._security.now_ms()
        digests = (key.digest, key.old_digest)
        if not any(
            one.hex()[:MARK_DIGITS] == mark and key.is_current(one, now_ms) for one in digests
        ):
            raise CredentialExpiredError(_ENDED)
        return Principal(
            name=key.id,
            roles=key.terms.roles,
            scopes=key.scopes,
            tenant=key.terms.tenant,
            host=caller.peer,
        )

    def _vouched(self, caller: Caller) -> Principal:
        """Return somebody whom a credential itself describes, as a token does."""
        if not caller.expires_ms or self._security.now_ms() >= caller.expires_ms:
            raise CredentialExpiredError(_ENDED)
        groups = tuple(one for one in caller.roles if ":" in one)
        return Principal(
            name=caller.principal,
            roles=tuple(one for one in caller.roles if ":" not in one),
            groups=groups,
            tenant=caller.tenant,
            host=caller.peer,
        )


def _too_many(wait_ms: int) -> GoQueueError:
    seconds = format_duration_ms(-(-wait_ms // SECOND_MS) * SECOND_MS)
    error = TooManyAttemptsError(
        f"too many credentials from this address were wrong; try again in {seconds}"
    )
    error.retry_after_ms = wait_ms
    return error
