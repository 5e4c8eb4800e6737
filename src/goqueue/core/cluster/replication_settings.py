"""The settings of a topic that only clusters have, read from what people write.

Shape: codec. They are kept beside the settings of ``core/topics``, not among them: a broker without
a cluster neither takes nor shows them.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from goqueue.base.cluster_limits import REPLICAS_MAX
from goqueue.base.errors import InvalidConfigError
from goqueue.core.cluster.placement import default_min_insync
from goqueue.core.cluster.records import ReplicationSettings

REPLICATION_FACTOR: Final = "replication_factor"
MIN_INSYNC_REPLICAS: Final = "min_insync_replicas"
UNCLEAN_LEADER_ELECTION: Final = "unclean_leader_election"
REPLICATION_NAMES: Final = (REPLICATION_FACTOR, MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION)
_BOOLEANS: Final[Mapping[object, bool]] = {"true": True, "false": False}
_DIGITS_MAX: Final = 3


def split_settings(
    settings: Mapping[str, object],
) -> tuple[dict[str, object], dict[str, Any]]:
    """Return the settings that any topic has, and those of replication, read."""
    plain = {name: value for name, value in settings.items() if name not in REPLICATION_NAMES}
    problems: list[str] = []
    values: dict[str, Any] = {}
    for name in REPLICATION_NAMES:
        if name not in settings:
            continue
        try:
            read = _boolean if name == UNCLEAN_LEADER_ELECTION else _count
            values[name] = read(settings[name])
        except ValueError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise InvalidConfigError("; ".join(problems))
    return plain, values


def new_replication(values: Mapping[str, Any], *, factor: int) -> ReplicationSettings:
    """Return the settings of a new topic; ``factor`` is how many replicas it has."""
    settings = ReplicationSettings(
        replication_factor=factor,
        min_insync_replicas=values.get(MIN_INSYNC_REPLICAS, default_min_insync(factor)),
        unclean_leader_election=values.get(UNCLEAN_LEADER_ELECTION, False),
    )
    return _checked(settings)


def changed_replication(old: ReplicationSettings, values: Mapping[str, Any]) -> ReplicationSettings:
    """Return the settings with changes made."""
    if values.get(REPLICATION_FACTOR, old.replication_factor) != old.replication_factor:
        raise InvalidConfigError(f"{REPLICATION_FACTOR}: it is changed by a reassignment")
    return _checked(msgspec.structs.replace(old, **values))


def _checked(settings: ReplicationSettings) -> ReplicationSettings:
    if not 1 <= settings.min_insync_replicas <= settings.replication_factor:
        raise InvalidConfigError(
            f"{MIN_INSYNC_REPLICAS}: {settings.min_insync_replicas} is not between 1 and"
            f" {settings.replication_factor}, the replicas of a partition"
        )
    return settings


def _count(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= REPLICAS_MAX:
        raise ValueError(f"must be a whole number from 1 to {REPLICAS_MAX}")
    return value


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _BOOLEANS:
        return _BOOLEANS[value]
    raise ValueError("must be true or false")
