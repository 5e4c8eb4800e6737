"""Removing the files of deleted topics; the next start finishes what a crash interrupted."""

from typing import Final

from goqueue.base.ids import TopicName
from goqueue.storage.disk import Disk

DELETING_DIRECTORY: Final = "deleting"


def remove_topic_files(disk: Disk, name: TopicName) -> None:
    """Remove the partitions of a topic."""
    if not disk.exists(f"logs/{name}"):
        return
    # Moved aside first, so that a topic of the same name can be made at once.
    disk.make_directory(DELETING_DIRECTORY)
    disk.remove_tree(f"{DELETING_DIRECTORY}/{name}")
    disk.rename(f"logs/{name}", f"{DELETING_DIRECTORY}/{name}")
    disk.sync_directory("logs")
    disk.remove_tree(f"{DELETING_DIRECTORY}/{name}")
