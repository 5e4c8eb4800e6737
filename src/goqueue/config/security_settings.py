"""What an operator may set about who may do what."""

import os
from pathlib import Path
from typing import Final

from goqueue.base.secret import Secret
from goqueue.base.security_limits import ATTEMPTS_MAX, LOCKOUT_MS_MAX, LOCKOUT_MS_MIN
from goqueue.base.units import DAY_MS, format_duration_ms
from goqueue.config.readers import Setting, read_count, read_duration, read_flag

SECRET_CHARACTERS_MIN: Final = 32
"""A shorter root key could be guessed."""
SECRET_CHARACTERS_MAX: Final = 1_000
SECRET_FILE_BYTES_MAX: Final = 4_096
GROUP_OR_OTHERS: Final = 0o077
ROOT_KEY_FIELD: Final = "api_root_key"

assert ATTEMPTS_MAX > 0
assert LOCKOUT_MS_MIN < LOCKOUT_MS_MAX


def read_secret(value: object) -> Secret:
    """Read a secret; the message of an error never has it."""
    text = value.reveal() if isinstance(value, Secret) else value
    if not isinstance(text, str):
        raise ValueError("expected text")  # noqa: TRY004 - bad input
    text = text.strip()
    if not text:
        return Secret()
    if not SECRET_CHARACTERS_MIN <= len(text) <= SECRET_CHARACTERS_MAX:
        raise ValueError(
            f"has {len(text)} characters; a key has {SECRET_CHARACTERS_MIN} at least,"
            f" {SECRET_CHARACTERS_MAX} at most"
        )
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("a key is printable ASCII without spaces")
    return Secret(text)


def read_secret_file(path: Path) -> Secret:
    """Return the secret in a file that only its owner can read, or raise ValueError."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(SECRET_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    if os.name == "posix" and mode & GROUP_OR_OTHERS:
        raise ValueError(f"{path} can be read by others; chmod 600 {path}")
    if len(content) > SECRET_FILE_BYTES_MAX:
        raise ValueError(f"{path} has more than {SECRET_FILE_BYTES_MAX} bytes")
    try:
        secret = read_secret(content.decode("ascii"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: a key is printable ASCII without spaces") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not secret:
        raise ValueError(f"{path} is empty")
    return secret


def _word(value: object) -> str:
    return str(bool(value)).lower()


SECURITY_SETTINGS: Final = (
    Setting(
        field="auth_enabled",
        key="auth.enabled",
        environment="GOQUEUE_AUTH_ENABLED",
        flag=None,
        meaning="whether every client has to show who it is, those on this machine, too",
        read=read_flag,
        show=_word,
    ),
    Setting(
        field=ROOT_KEY_FIELD,
        key="auth.root_key",
        environment="GOQUEUE_API_ROOT_KEY",
        flag=None,
        meaning="key that may do everything and that no rule denies anything; better in a file:"
        " GOQUEUE_API_ROOT_KEY_FILE",
        read=read_secret,
        show=lambda value: str(value) or "none",
        is_secret=True,
    ),
    Setting(
        field="auth_allow_health",
        key="auth.allow_health",
        environment="GOQUEUE_AUTH_ALLOW_HEALTH",
        flag=None,
        meaning="whether probes of health are answered without a credential",
        read=read_flag,
        show=_word,
    ),
    Setting(
        field="auth_failures_max",
        key="auth.failures_max",
        environment="GOQUEUE_AUTH_FAILURES_MAX",
        flag=None,
        meaning="wrong credentials an address may show in a minute before it has to wait",
        read=read_count(1, 1_000_000),
    ),
    Setting(
        field="auth_lockout_ms_max",
        key="auth.lockout_max",
        environment="GOQUEUE_AUTH_LOCKOUT_MAX",
        flag=None,
        meaning="longest wait of an address that goes on showing wrong credentials",
        read=read_duration(LOCKOUT_MS_MIN, DAY_MS),
        show=format_duration_ms,
    ),
    Setting(
        field="acl_enabled",
        key="acl.enabled",
        environment="GOQUEUE_ACL_ENABLED",
        flag=None,
        meaning="whether access rules count beside roles, where auth is on",
        read=read_flag,
        show=_word,
    ),
)
