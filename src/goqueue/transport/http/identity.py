"""Who sends a request: the credential in its headers, and the session of whom it belongs to."""

from dataclasses import replace
from hashlib import sha256
from typing import Final

from goqueue.base.errors import InvalidRequestError
from goqueue.base.security_limits import CALLERS_MAX, CREDENTIAL_BYTES_MAX
from goqueue.service.gate import Gate, Session
from goqueue.transport.http.exchange import Headers

_BEARER: Final = b"bearer "
_IN_QUERY: Final = (b"api_key=", b"access_token=")


class Identities:
    """The sessions of those who send requests, each found by its credential again."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._sessions: dict[tuple[bytes, str], Session] = {}

    def __repr__(self) -> str:
        return f"<Identities: {len(self._sessions)}>"

    def session(self, headers: Headers, query: bytes, connection: Session) -> Session:
        """Return the session of a request, or raise; ``connection`` is that of its connection."""
        if self._gate.guard is None:
            return connection
        if query:
            check_query(query)
        shown = shown_in(headers)
        if shown is None:
            return connection
        # The secret itself is not kept, not even in memory.
        key = (sha256(shown).digest(), connection.caller.peer)
        known = self._sessions.get(key)
        if known is None:
            known = self._gate.open(replace(connection.caller))
            known.authenticate(shown.decode("utf-8", "surrogateescape"))
            if len(self._sessions) >= CALLERS_MAX:
                self._sessions.clear()
            self._sessions[key] = known
        return known


def shown_in(headers: Headers) -> bytes | None:
    """Return the credential in the headers of a request; None without one."""
    key, line = headers.get(b"x-api-key"), headers.get(b"authorization")
    if line is not None:
        if line[: len(_BEARER)].lower() != _BEARER:
            raise InvalidRequestError("authorization: write Bearer and the key")
        bearer = line[len(_BEARER) :].strip()
        if key is not None and key.strip() != bearer:
            raise InvalidRequestError("x-api-key and authorization show different credentials")
        key = bearer
    if key is None:
        return None
    if len(key) > CREDENTIAL_BYTES_MAX:
        raise InvalidRequestError(f"the limit of a credential is {CREDENTIAL_BYTES_MAX} bytes")
    return key.strip() or None


def check_query(query: bytes) -> None:
    """Raise if there is a credential in the address: it is in the logs of others by now."""
    for part in query.split(b"&"):
        if part.startswith(_IN_QUERY):
            raise InvalidRequestError(
                "a key in the address is read by proxies and kept in logs: send it as X-API-Key or"
                " Authorization: Bearer, and rotate this one"
            )
