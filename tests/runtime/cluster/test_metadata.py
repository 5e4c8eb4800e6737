"""What a node applies: entries in order, each on the version it was decided on, no others."""

import asyncio
import gc
from collections.abc import Sequence

import msgspec
import pytest

from goqueue.base.ids import NodeId
from goqueue.core.cluster.events import ClusterFounded, Event, FeatureLevelRaised
from goqueue.core.raft.messages import PeerId
from goqueue.runtime.clock import SystemClock
from goqueue.runtime.cluster.consensus import Leading
from goqueue.runtime.cluster.metadata import (
    Metadata,
    MetadataEntry,
    MetadataSnapshot,
    copy_of,
    encode_metadata,
)

FOUNDED = ClusterFounded(cluster_id="c", feature_level=1, at_ms=5)
FOUNDERS = {"a": "disk-a", "b": "disk-b"}
MEMBERS = {"a": 1, "b": 2}


def founded() -> Metadata:
    """Return metadata as every founder begins with it."""
    metadata = Metadata(NodeId("a"), SystemClock())
    metadata.restore(encode_metadata(MetadataSnapshot(founders=FOUNDERS, members=MEMBERS)))
    return metadata


def entry(*events: Event, version: int, term: int = 1, lead: int = 1) -> bytes:
    return encode_metadata(
        MetadataEntry(term=term, lead=lead, version=version, events=list(events))
    )


def raised(level: int) -> FeatureLevelRaised:
    return FeatureLevelRaised(feature_level=level)


def test_watchers_hear_each_entry_in_its_step() -> None:
    """And None when a snapshot has replaced everything."""
    metadata = founded()
    heard: list[Sequence[Event] | None] = []
    metadata.watch(heard.append)
    metadata.apply(1, entry(FOUNDED, version=0))
    metadata.apply(2, entry(raised(2), raised(3), version=1))
    metadata.restore(metadata.snapshot())

    assert heard == [[FOUNDED], [raised(2), raised(3)], None]
    assert metadata.image.feature_level == 3


def test_an_entry_of_another_version_changes_nothing() -> None:
    """It was decided on an image that never came to be, or is over."""
    metadata = founded()
    heard: list[Sequence[Event] | None] = []
    assert metadata.apply(1, entry(FOUNDED, version=0))
    metadata.watch(heard.append)

    assert not metadata.apply(2, entry(raised(2), version=0))
    assert not metadata.apply(3, entry(raised(2), version=2))
    assert metadata.apply(4, entry(raised(2), version=1))
    assert heard == [[raised(2)]]


def test_an_entry_of_an_earlier_leadership_changes_nothing() -> None:
    """Its version may fit by chance: another leadership decided as many events meanwhile."""
    metadata = founded()
    metadata.apply(1, entry(FOUNDED, version=0, term=3, lead=2))

    assert not metadata.apply(2, entry(raised(2), version=1, term=3, lead=1))
    assert not metadata.apply(3, entry(raised(2), version=1, term=2, lead=9))
    assert metadata.apply(4, entry(raised(2), version=1, term=4, lead=1))


def test_a_snapshot_has_everything() -> None:
    """Another node goes on from it as if it had applied all entries."""
    first, second = founded(), Metadata(NodeId("b"), SystemClock())
    first.apply(1, entry(FOUNDED, version=0, term=3, lead=2))
    second.restore(first.snapshot())

    assert second.snapshot() == first.snapshot()
    assert second.founders == FOUNDERS
    assert second.node_of(PeerId(2)) == "b"
    assert not second.apply(2, entry(raised(2), version=1, term=3, lead=1))
    assert second.apply(2, entry(raised(2), version=1, term=3, lead=2))


def test_the_collector_runs_again_behind_a_snapshot() -> None:
    """It is off while a large image is made, and on afterwards, also where there is no image."""
    metadata = founded()
    seen: list[bool] = []
    metadata.watch(lambda _: seen.append(gc.isenabled()))
    metadata.restore(metadata.snapshot())
    with pytest.raises(msgspec.MsgspecError):
        metadata.restore(b"not a snapshot")

    assert seen == [True]
    assert gc.isenabled()


def test_a_copy_of_an_image_changes_by_itself() -> None:
    """The controller decides on one that is ahead."""
    metadata = founded()
    metadata.apply(1, entry(FOUNDED, version=0))
    copied = copy_of(metadata.image)
    copied.apply(raised(2))

    assert (metadata.image.version, metadata.image.feature_level) == (1, 1)
    assert (copied.version, copied.feature_level) == (2, 2)


def test_a_wait_ends_with_its_version() -> None:
    """Not before, and also where a snapshot brings it."""

    async def main() -> None:
        metadata = founded()
        first = asyncio.ensure_future(metadata.applied(1))
        second = asyncio.ensure_future(metadata.applied(2))
        await asyncio.sleep(0)
        metadata.apply(1, entry(FOUNDED, version=0))
        await first
        assert not second.done()
        other = founded()
        other.apply(1, entry(FOUNDED, version=0))
        other.apply(2, entry(raised(2), version=1))
        metadata.restore(other.snapshot())
        await second

    asyncio.run(main())


def test_the_controller_is_the_leader_of_the_quorum() -> None:
    """By the number that the node has in it."""
    metadata = founded()
    heard: list[Leading] = []
    metadata.watch_leader(heard.append)
    leading = Leading(leader=PeerId(2), term=4, is_own=False)
    metadata.leadership_changed(leading)

    assert metadata.controller == "b"
    assert heard == [leading]
