"""What a request to settle messages says beside their receipts, read within its limits."""

from goqueue.base.errors import InvalidRequestError
from goqueue.base.limits import (
    EXTENSION_MS_MAX,
    HTTP_REASON_CHARACTERS_MAX,
    RETRY_DELAY_MS_MAX,
)
from goqueue.base.units import SECOND_MS, format_duration_ms, parse_duration_ms


def read_reason(text: str | None) -> str:
    """Return what is kept of a reason."""
    return (text or "")[:HTTP_REASON_CHARACTERS_MAX]


def read_delay_ms(text: str | None, field: str = "delay") -> int | None:
    """Return the pause before the next attempt; None leaves it to the group."""
    if not text:
        return None
    delay_ms = _duration_ms(text, field)
    if not 0 <= delay_ms <= RETRY_DELAY_MS_MAX:
        longest = format_duration_ms(RETRY_DELAY_MS_MAX)
        raise InvalidRequestError(f"{field}: must be between 0s and {longest}")
    return delay_ms


def read_extension_ms(seconds: int | None, timeout: str | None) -> int:
    """Return for how long from now on messages are to be held."""
    if seconds is None and timeout:
        extension_ms = _duration_ms(timeout, "timeout")
        if extension_ms <= 0:
            raise InvalidRequestError("timeout must be positive")
    else:
        extension_ms = (seconds or 0) * SECOND_MS
        if extension_ms <= 0:
            raise InvalidRequestError("extension_seconds must be positive")
    if extension_ms > EXTENSION_MS_MAX:
        longest = format_duration_ms(EXTENSION_MS_MAX)
        raise InvalidRequestError(f"extension_seconds: the longest is {longest}")
    return extension_ms


def _duration_ms(text: str, field: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise InvalidRequestError(f"{field}: {error}") from error
