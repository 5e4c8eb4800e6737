"""Removing the files of deleted topics; the next start finishes what a crash interrupted."""

from typing import Final

from goqueue.base.ids import TopicName
from goqueue.storage.disk import Disk

DELETING_DIRECTORY: Final = "deleting"


def remove_topic_files(disk: Disk, name: TopicName) -> None:
    """Remove the partitions of a topic, and what is kept beside them."""
    # No topic has a name with this sign in it. Messages go last: they say that there is more.
    _remove(disk, "state", name, aside=f"{name}~state")
    _remove(disk, "logs", name, aside=name)


def _remove(disk: Disk, parent: str, name: TopicName, *, aside: str) -> None:
    if not disk.exists(f"{parent}/{name}"):
        return
    # Moved aside first, so that a topic of the same name can be made at once.
    disk.make_directory(DELETING_DIRECTORY)
    disk.remove_tree(f"{DELETING_DIRECTORY}/{aside}")
    disk.rename(f"{parent}/{name}", f"{DELETING_DIRECTORY}/{aside}")
    disk.sync_directory(parent)
    disk.remove_tree(f"{DELETING_DIRECTORY}/{aside}")
