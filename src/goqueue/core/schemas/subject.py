"""One subject of the registry: its versions, its compatibility mode, whether it may change.

Shape: decider, the changing half: ``apply`` only changes, the registry decides.
"""

from collections.abc import Iterator

from goqueue.base.errors import VersionNotFoundError
from goqueue.base.ids import SchemaId, SchemaVersion, SubjectName
from goqueue.core.schemas.compatibility import Compatibility
from goqueue.core.schemas.events import (
    Configured,
    Locked,
    SubjectEvent,
    SubjectPurged,
    SubjectRestored,
    VersionAdded,
    VersionDeleted,
    VersionPurged,
)


class Subject:
    """The versions of one schema."""

    def __init__(self, name: SubjectName) -> None:
        self.name = name
        self.compatibility: Compatibility | None = None
        self.is_read_only: bool | None = None
        self.next_version = SchemaVersion(1)
        self._ids: dict[SchemaVersion, SchemaId] = {}
        self._deleted: set[SchemaVersion] = set()

    def __repr__(self) -> str:
        return f"<Subject {self.name}: {len(self._ids)} versions>"

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[tuple[SchemaVersion, SchemaId]]:
        return iter(self._ids.items())

    @property
    def live(self) -> list[SchemaVersion]:
        """Versions that are not deleted, oldest first."""
        return [version for version in self._ids if version not in self._deleted]

    @property
    def all(self) -> list[SchemaVersion]:
        """Versions, deleted ones too, oldest first."""
        return list(self._ids)

    @property
    def is_hidden(self) -> bool:
        """Return True if every version is deleted."""
        return len(self._deleted) == len(self._ids)

    def is_deleted(self, version: SchemaVersion) -> bool:
        """Return True if a version is hidden."""
        return version in self._deleted

    def id_of(self, version: SchemaVersion, *, with_deleted: bool = False) -> SchemaId:
        """Return the schema of a version or raise."""
        found = self._ids.get(version)
        if found is None or (version in self._deleted and not with_deleted):
            raise VersionNotFoundError(f"version {version} of subject {self.name} not found")
        return found

    def versions_of(self, schema_id: SchemaId, *, with_deleted: bool) -> list[SchemaVersion]:
        """Return the versions that are this schema, oldest first."""
        listed = self.all if with_deleted else self.live
        return [version for version in listed if self._ids[version] == schema_id]

    def apply(self, event: SubjectEvent) -> None:
        """Change."""
        match event:
            case VersionAdded(version=version, id=schema_id):
                self._ids[version] = schema_id
                self.next_version = SchemaVersion(version + 1)
            case VersionDeleted(version=version):
                self._deleted.add(version)
            case VersionPurged(version=version):
                del self._ids[version]
                self._deleted.remove(version)
            case SubjectPurged():
                self._ids.clear()
                self._deleted.clear()
            case Configured(compatibility=compatibility):
                self.compatibility = compatibility
            case Locked(is_read_only=is_read_only):
                self.is_read_only = is_read_only
            case SubjectRestored():
                self._ids = {version: schema_id for version, schema_id, _ in event.versions}
                self._deleted = {version for version, _, is_deleted in event.versions if is_deleted}
                self.next_version = event.next_version
                self.compatibility = event.compatibility
                self.is_read_only = event.is_read_only

    def snapshot(self) -> SubjectRestored:
        """Return the event that rebuilds this state."""
        return SubjectRestored(
            subject=self.name,
            versions=[
                (version, schema_id, version in self._deleted)
                for version, schema_id in self._ids.items()
            ],
            next_version=self.next_version,
            compatibility=self.compatibility,
            is_read_only=self.is_read_only,
        )
