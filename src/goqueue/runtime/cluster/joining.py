"""How a started node comes to know its cluster, and to a journal that begins as its own must.

A founder begins with the others. A node that joins is registered, gets a number in the quorum from
the controller, and begins with nothing: the log is sent to it. One that lost its disk is registered
again and takes part in another life of its data (ADR 0054).
"""

from collections.abc import Callable, Mapping

from goqueue.base.errors import NodeRefusedError
from goqueue.core.cluster.commands import RegisterNode
from goqueue.core.raft.messages import Membership, PeerId
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.cluster.founding import Founding, Origin, cluster_id_of
from goqueue.runtime.cluster.identity import Identity
from goqueue.runtime.cluster.metadata import MetadataSnapshot, decode_snapshot, encode_metadata
from goqueue.storage.raft_store import RaftStore

log = get_logger("goqueue.cluster")

Registration = Callable[[str], RegisterNode]
"""Returns how this process is registered with a cluster, given its id."""


class Joining:
    """The first steps of a node."""

    def __init__(
        self, identity: Identity, founding: Founding, clock: Clock, registration: Registration
    ) -> None:
        self._identity = identity
        self._founding = founding
        self._clock = clock
        self._registration = registration

    def __repr__(self) -> str:
        return f"<Joining of {self._identity!r}>"

    async def begin(self, store: RaftStore) -> None:
        """Know the cluster, however long that takes, and have a journal."""
        restored = store.restored
        if restored is not None and restored.snapshot.data and not self._identity.cluster_id:
            # The power failed between the journal and the identity.
            begun = decode_snapshot(restored.snapshot.data)
            self._belong(begun.founders, begun.members)
        if self._identity.cluster_id and restored is not None:
            self._check_member()
            return
        origin = await self._founding.find()
        members = origin.members
        if origin.is_founder and not self._identity.cluster_id and restored is None:
            self._found(store, origin)
        else:
            members = await self._be_taken_in(store, origin)
        self._belong(origin.founders, members)

    def _check_member(self) -> None:
        if self._identity.node not in self._identity.members:
            raise NodeRefusedError(
                f"the data directory of {self._identity.node} names no number of its own in the"
                " quorum; empty it, and the node joins with an empty one"
            )

    def _found(self, store: RaftStore, origin: Origin) -> None:
        """Begin as all founders do, whatever became of the members since."""
        numbers = {node: place for place, node in enumerate(sorted(origin.founders), 1)}
        begun = MetadataSnapshot(founders=dict(origin.founders), members=numbers)
        store.found(Membership(tuple(map(PeerId, numbers.values()))), encode_metadata(begun))
        log.info(
            LogEvent.BOOTSTRAP_COMPLETE, node=self._identity.node, cluster_id=origin.cluster_id
        )

    async def _be_taken_in(self, store: RaftStore, origin: Origin) -> Mapping[str, int]:
        """Be registered, begin with nothing, and return the members of the quorum."""
        node, life = self._identity.node, self._clock.now_ms()
        await self._founding.be_taken_in(self._registration(origin.cluster_id))
        if not origin.is_new:
            log.error(LogEvent.DISK_EMPTIED, node=node, cluster_id=origin.cluster_id)
            if store.restored is None:
                store.begin_again(life=life)
            return origin.members
        members = await self._founding.be_numbered()
        if store.restored is None:
            store.join()
        return members

    def _belong(self, founders: Mapping[str, str], members: Mapping[str, int]) -> None:
        self._identity.join(cluster_id_of(founders), founders, members)
