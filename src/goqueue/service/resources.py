"""How requests name the resource they are about."""

from collections.abc import Collection
from typing import Final

from goqueue.base.deeds import Deed, ResourceKind

_FIELDS: Final[dict[ResourceKind, tuple[str, ...]]] = {
    ResourceKind.NOTHING: (),
    ResourceKind.TOPIC: ("topic", "name"),
    ResourceKind.GROUP: ("group",),
    ResourceKind.SUBJECT: ("subject",),
    ResourceKind.TRANSACTION: ("transactional_id",),
    ResourceKind.SCHEDULE: ("schedule", "name"),
    ResourceKind.CLUSTER: (),
}


def name_field(deed: Deed, fields: Collection[str]) -> str | None:
    """Return which field of a request names what the deed is about, or None if no field does."""
    return next((field for field in _FIELDS[deed.kind] if field in fields), None)
