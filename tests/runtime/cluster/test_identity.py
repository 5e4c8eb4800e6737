"""Which node a directory belongs to: counted, checksummed, and refused where it does not fit."""

import pytest

from goqueue.base.errors import NodeRefusedError, StorageFailedError
from goqueue.runtime.cluster.identity import IDENTITY_PATH, Identity
from goqueue.testing.disk import MemoryDisk


def test_each_start_is_counted_durably() -> None:
    """A power cut right behind a start does not take the count back."""
    disk = MemoryDisk()
    first = Identity(disk, "a")
    second = Identity(disk.crash(), "a")

    assert (first.incarnation, second.incarnation) == (1, 2)
    assert first.directory == second.directory
    assert second.peer.cluster_id == ""


def test_a_new_directory_is_another_one() -> None:
    """An emptied disk is known from the one that was there."""
    assert Identity(MemoryDisk(), "a").directory != Identity(MemoryDisk(), "a").directory


def test_a_directory_of_another_node_is_refused() -> None:
    """A copied directory does not become another node."""
    disk = MemoryDisk()
    Identity(disk, "a")

    with pytest.raises(NodeRefusedError, match="belongs to the node a, and node_id is b"):
        Identity(disk.reopen(), "b")


def test_a_directory_belongs_to_one_cluster() -> None:
    """It is noted durably, and does not change."""
    disk = MemoryDisk()
    Identity(disk, "a").join("c1", {"a": "d1"}, {"a": 1})
    again = Identity(disk.crash(), "a")

    assert again.cluster_id == "c1"
    assert again.founders == {"a": "d1"}
    assert again.members == {"a": 1}
    with pytest.raises(NodeRefusedError, match="belongs to the cluster c1, not to c2"):
        again.join("c2", {}, {})


def test_a_clean_stop_is_known_to_the_next_start_only() -> None:
    """The mark is taken back with the next start."""
    disk = MemoryDisk()
    Identity(disk, "a").end_clean()
    second = Identity(disk.reopen(), "a")
    third = Identity(disk.reopen(), "a")

    assert second.was_clean
    assert not third.was_clean


def test_a_process_that_was_replaced_leaves_no_mark() -> None:
    """Another process may have started between the unlock and the mark."""
    disk = MemoryDisk()
    first = Identity(disk, "a")
    Identity(disk, "a")
    first.end_clean()

    third = Identity(disk.reopen(), "a")
    assert third.incarnation == 3
    assert not third.was_clean


def test_a_refused_directory_stays_refused() -> None:
    """Starts are counted, so an old copy that is started often enough would pass for a new one."""
    disk = MemoryDisk()
    Identity(disk, "a").refuse("an old copy of it")

    with pytest.raises(NodeRefusedError, match="said at an earlier start"):
        Identity(disk.reopen(), "a")


@pytest.mark.parametrize("position", [0, 12, 40, 90])
def test_a_damaged_file_is_refused(position: int) -> None:
    """P10: a node that cannot know who it is does not guess."""
    disk = MemoryDisk()
    Identity(disk, "a")
    disk.flip_bits(IDENTITY_PATH, [position])

    with pytest.raises(StorageFailedError, match="cluster/identity is damaged"):
        Identity(disk.reopen(), "a")


def test_a_process_that_was_killed_lost_nothing_while_the_machine_runs() -> None:
    """The system still has what it wrote; after a crash of the machine it may not."""
    disk = MemoryDisk()
    assert Identity(disk, "a", boot_id="one").was_clean
    disk = disk.kill()
    assert Identity(disk, "a", boot_id="one").was_clean
    disk = disk.crash()
    assert not Identity(disk, "a", boot_id="two").was_clean
    disk = disk.kill()
    assert not Identity(disk, "a").was_clean
    disk = disk.kill()
    assert not Identity(disk, "a").was_clean
