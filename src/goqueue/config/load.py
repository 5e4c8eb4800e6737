"""Putting the configuration together: flags over environment over file over defaults.

Nothing is half accepted: every problem of every source is reported at once, as a numbered list.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import msgspec

from goqueue.base.errors import InvalidConfigError
from goqueue.config.cluster_check import cluster_problems
from goqueue.config.file import read_file
from goqueue.config.model import BrokerConfig
from goqueue.config.readers import Setting, Value
from goqueue.config.security_check import DEFAULT, listener_problems
from goqueue.config.security_settings import GROUP_OR_OTHERS, read_secret_file
from goqueue.config.settings import (
    BY_ENVIRONMENT,
    BY_KEY,
    FILES_BY_ENVIRONMENT,
    FILES_BY_KEY,
    SETTINGS,
)
from goqueue.config.tls_check import tls_problems

CONFIG_ENVIRONMENT: Final = "GOQUEUE_CONFIG"
CONFIG_FILE: Final = "goqueue.yaml"

_PREFIXES: Final = (
    "GOQUEUE_BROKER_",
    "GOQUEUE_HTTP_",
    "GOQUEUE_LISTENERS_",
    "GOQUEUE_LIMITS_",
    "GOQUEUE_LOG_",
    "GOQUEUE_TRACING_",
    "GOQUEUE_CLUSTER_",
)
_LATER: Final = (
    "GOQUEUE_LISTENERS_GRPC",
    "GOQUEUE_GRPC_",
    "GOQUEUE_TRUSTED_PROXIES",
)
"""Variables that mean something to GoQueue, but nothing to this version of it."""

_LOCKS: Final = (
    "GOQUEUE_TLS_",
    "GOQUEUE_CLUSTER_TLS_",
    "GOQUEUE_AUTH_",
    "GOQUEUE_ACL_",
    "GOQUEUE_API_ROOT_KEY",
    "GOQUEUE_AUDIT_",
    "GOQUEUE_ENCRYPTION_",
    "GOQUEUE_SECURITY_",
    "GOQUEUE_TENANCY_",
)
"""The same, where who sets them asks for protection that this version does not have."""

_NOT_ASKED_FOR: Final = frozenset({"", "false", "off", "no", "0", "none"})
"""Values of such a variable that ask for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The configuration, where each value came from, and what deserves a second look."""

    config: BrokerConfig
    sources: Mapping[str, str]
    file: str | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """A value somebody wrote, not yet read."""

    setting: Setting
    value: object
    source: str
    is_file: bool = False
    """Whether the value is the file that holds the secret."""


def load_config(
    *,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    file: Path | None = None,
    assignments: Mapping[str, str] | None = None,
) -> Loaded:
    """Return the configuration, or raise InvalidConfigError with every problem in it.

    ``flags`` are by field name, None meaning not given; ``assignments`` are by key, as ``--set``
    has them. Without ``file`` the one named by GOQUEUE_CONFIG is read, or ./goqueue.yaml if it is
    there.
    """
    problems: list[str] = []
    path = _find_file(file, environment)
    given: dict[str, _Given] = {}
    for one in (
        *_from_file(path, problems),
        *_from_environment(environment),
        *_from_flags(flags, assignments or {}, problems),
    ):
        given[one.setting.field] = one
    in_order = [given[setting.field] for setting in SETTINGS if setting.field in given]
    values = dict(_read_all(in_order, problems))
    sources = {
        setting.field: given[setting.field].source if setting.field in given else DEFAULT
        for setting in SETTINGS
    }
    if "data_dir" in values or "data_dir" not in given:
        _check_directory(values, sources["data_dir"], problems)
    problems += _missing_locks(environment)
    config: BrokerConfig = msgspec.structs.replace(BrokerConfig(), **values)
    problems += listener_problems(config, sources)
    problems += cluster_problems(config)
    problems += tls_problems(config)
    if problems:
        raise InvalidConfigError(_numbered(problems))
    return Loaded(
        config=config,
        sources=sources,
        file=str(path) if path is not None else None,
        warnings=tuple(_strange_variables(environment)),
    )


def _numbered(problems: list[str]) -> str:
    head = "the configuration has a problem:"
    if len(problems) > 1:
        head = f"the configuration has {len(problems)} problems:"
    return "\n".join((head, *(f"  {place}. {text}" for place, text in enumerate(problems, 1))))


# Sources, weakest first.


def _find_file(file: Path | None, environment: Mapping[str, str]) -> Path | None:
    if file is not None:
        return file
    named = environment.get(CONFIG_ENVIRONMENT)
    if named:
        return Path(named)
    usual = Path(CONFIG_FILE)
    return usual if usual.is_file() else None


def _from_file(path: Path | None, problems: list[str]) -> Iterator[_Given]:
    if path is None:
        return
    content, faults = read_file(path)
    problems += faults
    for key, value in content.items():
        setting = BY_KEY.get(key) or FILES_BY_KEY.get(key)
        if setting is None:
            problems.append(f"{key}: no such setting{_nearest(key, BY_KEY)} (file {path})")
            continue
        is_file = key in FILES_BY_KEY
        if setting.is_secret and not is_file and path.stat().st_mode & GROUP_OR_OTHERS:
            problems.append(
                f"{key}: {path} holds a secret and can be read by others; chmod 600 {path}, or"
                f" write {key}_file"
            )
        yield _Given(setting=setting, value=value, source=f"file {path}", is_file=is_file)


def _from_environment(environment: Mapping[str, str]) -> Iterator[_Given]:
    for name, setting in BY_ENVIRONMENT.items():
        if name in environment:
            yield _Given(setting=setting, value=environment[name], source=f"environment {name}")
    for name, setting in FILES_BY_ENVIRONMENT.items():
        if environment.get(name):
            source = f"environment {name}"
            yield _Given(setting=setting, value=environment[name], source=source, is_file=True)


def _from_flags(
    flags: Mapping[str, object], assignments: Mapping[str, str], problems: list[str]
) -> Iterator[_Given]:
    for key, text in assignments.items():
        setting = BY_KEY.get(key)
        if setting is None:
            problems.append(f"{key}: no such setting{_nearest(key, BY_KEY)} (flag --set)")
        elif setting.is_secret:
            problems.append(
                f"{key}: a command line is seen by others and kept in the history of the shell;"
                f" write the key to a file and set {setting.environment}_FILE (flag --set)"
            )
        else:
            yield _Given(setting=setting, value=text, source="flag --set")
    for setting in SETTINGS:
        value = flags.get(setting.field)
        if value is not None:
            yield _Given(setting=setting, value=value, source=f"flag {setting.flag}")


def _nearest(name: str, names: Mapping[str, object]) -> str:
    close = get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]}?" if close else ""


# Reading and checking.


def _read_all(given: Iterable[_Given], problems: list[str]) -> Iterator[tuple[str, Value]]:
    for one in given:
        try:
            value = read_secret_file(Path(str(one.value))) if one.is_file else one.value
            yield one.setting.field, one.setting.read(value)
        except ValueError as error:
            problems.append(f"{one.setting.key}: {error} ({one.source})")


def _check_directory(values: Mapping[str, Value], source: str, problems: list[str]) -> None:
    text = str(values.get("data_dir", BrokerConfig().data_dir))
    directory = Path(text)
    fault = ""
    try:
        if directory.exists() and not directory.is_dir():
            fault = f'"{text}" exists but is not a directory'
        elif directory.exists() and not os.access(directory, os.W_OK | os.X_OK):
            fault = f'"{text}" is not writable'
        elif not directory.exists():
            home = next(parent for parent in directory.absolute().parents if parent.exists())
            if not home.is_dir():
                fault = f'"{text}" cannot be made: "{home}" is not a directory'
            elif not os.access(home, os.W_OK | os.X_OK):
                fault = f'"{text}" cannot be made: "{home}" is not writable'
    except OSError as error:
        fault = f'"{text}" cannot be used: {error.strerror}'
    if fault:
        problems.append(f"data_dir: {fault} ({source})")


def _missing_locks(environment: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(environment):
        asks = environment[name].strip().lower() not in _NOT_ASKED_FOR
        is_known = name in BY_ENVIRONMENT or name in FILES_BY_ENVIRONMENT
        if name.startswith(_LOCKS) and not is_known and asks:
            yield (
                f"{name} is set, but this version has no such protection; a broker that"
                " starts without it would be open (environment)"
            )


# Second looks.


def _strange_variables(environment: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(environment):
        if name in BY_ENVIRONMENT or name == CONFIG_ENVIRONMENT:
            continue
        if name.startswith(_LATER):
            yield f"{name} is set, but has no effect in this version"
        elif name.startswith(_PREFIXES):
            yield f"{name} is set, but there is no such setting{_nearest(name, BY_ENVIRONMENT)}"
