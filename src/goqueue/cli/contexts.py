"""Named brokers, kept in ``~/.goqueue/config.yaml``.

current-context: local
contexts:
  local:
    server: 127.0.0.1:7070
    timeout: 30s
"""

import contextlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from goqueue.cli.failure import Failure
from goqueue.cli.tls_target import TlsTarget, tls_of_context

CONFIG_PATH: Final = Path(".goqueue") / "config.yaml"
DEFAULT_CONTEXT: Final = "local"
DEFAULT_SERVER: Final = "127.0.0.1:7070"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a context says of one broker."""

    server: str | None = None
    api_key: str | None = None
    timeout: str | None = None
    tls: TlsTarget = field(default_factory=TlsTarget)

    def plain(self, *, hide_key: bool = False) -> dict[str, object]:
        """Return the fields that are set, under the names of the file."""
        key = "***" if self.api_key and hide_key else self.api_key
        fields: dict[str, object] = {
            "server": self.server,
            "api-key": key,
            "timeout": self.timeout,
            "tls": self.tls.plain() or None,
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(slots=True)
class Contexts:
    """The file as a value."""

    current: str = DEFAULT_CONTEXT
    targets: dict[str, Target] = field(
        default_factory=lambda: {DEFAULT_CONTEXT: Target(server=DEFAULT_SERVER)}
    )

    def get(self, name: str) -> Target:
        """Return a context or say which ones there are."""
        if name not in self.targets:
            there = ", ".join(sorted(self.targets)) or "none"
            raise Failure(
                f"there is no context {name!r}; there are: {there}",
                code="context_not_found",
                hint=f"`goqueue config set-context {name} --server host:port` makes one",
            )
        return self.targets[name]

    def plain(self, *, hide_keys: bool = False) -> dict[str, object]:
        """Return the whole file as plain values."""
        targets = {name: one.plain(hide_key=hide_keys) for name, one in self.targets.items()}
        return {"current-context": self.current, "contexts": targets}


def config_path() -> Path:
    """Return where the contexts are kept."""
    return Path.home() / CONFIG_PATH


def load_contexts(path: Path | None = None) -> Contexts:
    """Read the file; without one there is the context ``local``."""
    path = path or config_path()
    try:
        content = yaml.safe_load(path.read_bytes())
    except FileNotFoundError:
        return Contexts()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _unreadable(path, "it is not YAML") from error
    if content is None:
        return Contexts()
    if not isinstance(content, dict):
        raise _unreadable(path, "it must hold current-context and contexts")
    targets = content.get("contexts") or {}
    if not isinstance(targets, dict):
        raise _unreadable(path, "contexts must be a section of names")
    return Contexts(
        current=str(content.get("current-context") or DEFAULT_CONTEXT),
        targets={str(name): _target(path, str(name), one) for name, one in targets.items()},
    )


def _target(path: Path, name: str, content: object) -> Target:
    if not isinstance(content, dict):
        raise _unreadable(path, f"context {name!r} must be a section with a server")
    fields: Mapping[str, object] = content

    def text(key: str) -> str | None:
        value = fields.get(key)
        return None if value is None else str(value)

    return Target(
        server=text("server"),
        api_key=text("api-key"),
        timeout=text("timeout"),
        tls=tls_of_context(name, fields.get("tls")),
    )


def _unreadable(path: Path, reason: str) -> Failure:
    return Failure(
        f"{path} cannot be used: {reason}", code="invalid_config", hint="mend or remove it"
    )


def save_contexts(contexts: Contexts, path: Path | None = None) -> None:
    """Replace the file. It may hold keys, so it is for its owner only."""
    path = path or config_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".config-")
    try:
        with os.fdopen(descriptor, "w") as file:
            yaml.safe_dump(contexts.plain(), file, sort_keys=False)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
