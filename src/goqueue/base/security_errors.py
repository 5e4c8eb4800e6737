"""Errors of authentication and authorisation; programs import them from ``base/errors.py``."""

from goqueue.base.error import GoQueueError


class UnauthenticatedError(GoQueueError):
    """The request has no credential, or one that is not known here."""

    code = "unauthenticated"


class CredentialExpiredError(GoQueueError):
    """The credential was valid until lately: it expired or was revoked."""

    code = "credential_expired"


class TooManyAttemptsError(GoQueueError):
    """Too many credentials from this address were wrong; try again later."""

    code = "too_many_attempts"
    retryable = True


class ForbiddenError(GoQueueError):
    """The caller may not do this; the message names the permission it needs."""

    code = "forbidden"


class KeyNotFoundError(GoQueueError):
    """No such API key."""

    code = "key_not_found"


class AclNotFoundError(GoQueueError):
    """No such access rule."""

    code = "acl_not_found"
