"""What a topic, group or subject may be called."""

import re
from typing import Final

from goqueue.base.errors import InvalidNameError
from goqueue.base.ids import GroupId, SubjectName, TopicName
from goqueue.base.limits import NAME_CHARACTERS_MAX, SUBJECT_CHARACTERS_MAX

INTERNAL_PREFIX: Final = "__"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


def check_name(name: object, *, field: str, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    """Return the name, or raise naming the field and the rule it breaks."""
    if not isinstance(name, str) or not name:
        raise InvalidNameError(f"{field} is required")
    if len(name) > characters_max:
        raise InvalidNameError(f"{field} has {len(name)} characters; the limit is {characters_max}")
    if name in {".", ".."} or _NAME.fullmatch(name) is None:
        raise InvalidNameError(
            f"{field} {name[:40]!a} may only contain letters, digits, '.', '_' and '-',"
            " and may not be '.' or '..'"
        )
    return name


def topic_name(name: object) -> TopicName:
    """Return a checked topic name; internal ones pass too."""
    return TopicName(check_name(name, field="topic name"))


def group_name(name: object) -> GroupId:
    """Return a checked name of a consumer group; the broker keeps none for itself."""
    checked = check_name(name, field="group name")
    if is_internal(checked):
        raise InvalidNameError("group names beginning with '__' belong to the broker")
    return GroupId(checked)


def subject_name(name: object) -> SubjectName:
    """Return a checked subject of the schema registry."""
    return SubjectName(check_name(name, field="subject", characters_max=SUBJECT_CHARACTERS_MAX))


def is_internal(name: str) -> bool:
    """Return True if the name belongs to the broker itself."""
    return name.startswith(INTERNAL_PREFIX)
