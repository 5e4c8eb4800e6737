"""Which node a data directory belongs to, of which cluster, and how often it was started.

``cluster/identity`` is one line of JSON and a line with its checksum. It is written durably before
a node speaks to any other:

    {"node_id":"node-1","directory_id":"8c0f…","incarnation":3,"cluster_id":"5b1e…", …}
    crc32c 5d2c0a1f

An empty directory gets a new directory id, so that others know an emptied disk from the one they
know. The incarnation counts starts, so that they know an old copy of a directory, too.
"""

import secrets
from collections.abc import Mapping
from typing import Final

import msgspec
from crc32c import crc32c

from goqueue.base.cluster_limits import NODE_ID_CHARACTERS_MAX
from goqueue.base.errors import DataDirLockedError, NodeRefusedError, StorageFailedError
from goqueue.base.ids import DirectoryId, NodeId, Position
from goqueue.base.names import check_name
from goqueue.core.raft.messages import PeerId
from goqueue.storage.disk import Disk, write_atomically
from goqueue.storage.raft_store import DIRECTORY
from goqueue.wire.peer_calls import PeerIdentity

IDENTITY_PATH: Final = f"{DIRECTORY}/identity"
DIRECTORY_ID_BYTES: Final = 16
PROCESS_BITS: Final = 48


class StoredIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    node_id: str
    directory_id: str
    incarnation: int
    cluster_id: str = ""
    founders: dict[str, str] = {}
    """The nodes that founded the cluster, with their directories."""
    members: dict[str, int] = {}
    """The numbers that nodes have in the quorum, as this one last knew them."""
    is_clean: bool = False
    """Whether all that was written was synced when the node stopped."""
    boot_id: str = ""
    """Which run of the machine it was started in: the cache of the system outlives a process."""
    refused: str = ""
    """Why this directory must not be started again, if so."""


_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_decode: Final = msgspec.json.Decoder(StoredIdentity).decode


class Identity:
    """The identity of one started node. Opening it counts a start."""

    def __init__(self, disk: Disk, node: str, *, boot_id: str = "") -> None:
        check_name(node, field="node_id", characters_max=NODE_ID_CHARACTERS_MAX)
        self._disk = disk
        disk.make_directory(DIRECTORY)
        found = _read(disk)
        if found is None:
            found = StoredIdentity(
                node_id=node,
                directory_id=secrets.token_hex(DIRECTORY_ID_BYTES),
                incarnation=0,
                is_clean=True,
            )
        if found.node_id != node:
            raise NodeRefusedError(
                f"the data directory belongs to the node {found.node_id}, and node_id is {node};"
                " was it copied?"
            )
        if found.refused:
            raise NodeRefusedError(f"{found.refused} (this was said at an earlier start)")
        self.process = secrets.randbits(PROCESS_BITS)
        """Of this process only: a copy of the directory may be started for the same time."""
        self.was_clean = found.is_clean or (bool(boot_id) and found.boot_id == boot_id)
        """Whether nothing is lost of what the process before this one had written: it stopped with
        everything synced, or the machine has run since."""
        self._now = msgspec.structs.replace(
            found, incarnation=found.incarnation + 1, is_clean=False, boot_id=boot_id
        )
        self._write()

    def __repr__(self) -> str:
        now = self._now
        return f"<Identity {now.node_id} of {now.cluster_id or 'no cluster'}: {now.incarnation}>"

    @property
    def node(self) -> NodeId:
        """The name of the node."""
        return NodeId(self._now.node_id)

    @property
    def directory(self) -> DirectoryId:
        """The identity of the data directory."""
        return DirectoryId(self._now.directory_id)

    @property
    def incarnation(self) -> int:
        """How often the directory was started, this time included."""
        return self._now.incarnation

    @property
    def cluster_id(self) -> str:
        """The cluster it belongs to; empty if none yet."""
        return self._now.cluster_id

    @property
    def founders(self) -> Mapping[str, str]:
        """The nodes that founded the cluster, with their directories."""
        return self._now.founders

    @property
    def members(self) -> Mapping[NodeId, PeerId]:
        """The numbers of nodes in the quorum, as this node last knew them."""
        return {NodeId(node): PeerId(number) for node, number in self._now.members.items()}

    @property
    def peer(self) -> PeerIdentity:
        """How the node is introduced to others."""
        now = self._now
        return PeerIdentity(
            now.cluster_id, now.node_id, now.directory_id, now.incarnation, self.process
        )

    def join(
        self, cluster_id: str, founders: Mapping[str, str], members: Mapping[str, int]
    ) -> None:
        """Belong to a cluster from now on, durably."""
        if self._now.cluster_id and self._now.cluster_id != cluster_id:
            raise NodeRefusedError(
                f"the data directory belongs to the cluster {self._now.cluster_id},"
                f" not to {cluster_id}"
            )
        joined = msgspec.structs.replace(
            self._now, cluster_id=cluster_id, founders=dict(founders), members=dict(members)
        )
        if joined != self._now:
            self._now = joined
            self._write()

    def know(self, members: Mapping[NodeId, PeerId]) -> None:
        """Remember the numbers that nodes have in the quorum now."""
        known = {str(node): int(peer) for node, peer in members.items()}
        # A node that goes through the log of a cluster it joined is not in it at first.
        if self._now.node_id in known and known != self._now.members:
            self._now = msgspec.structs.replace(self._now, members=known)
            self._write()

    def refuse(self, reason: str) -> None:
        """Let this directory not be started again: it is an old copy of itself."""
        self._now = msgspec.structs.replace(self._now, refused=reason)
        self._write()

    def end_clean(self) -> None:
        """Note that everything is synced, unless another process has the directory by now."""
        try:
            self._disk.lock()
        except DataDirLockedError:
            return
        try:
            if _read(self._disk) == self._now:
                self._now = msgspec.structs.replace(self._now, is_clean=True)
                self._write()
        finally:
            self._disk.unlock()

    def _write(self) -> None:
        line = _encode(self._now)
        write_atomically(self._disk, IDENTITY_PATH, _with_checksum(line))


def _with_checksum(line: bytes) -> bytes:
    return line + f"\ncrc32c {crc32c(line):08x}\n".encode()


def _read(disk: Disk) -> StoredIdentity | None:
    try:
        file = disk.open(IDENTITY_PATH)
    except FileNotFoundError:
        return None
    try:
        raw = file.read(Position(0), file.size())
    finally:
        file.close()
    line = raw.partition(b"\n")[0]
    if _with_checksum(line) != raw:
        raise StorageFailedError(
            f"{IDENTITY_PATH} is damaged: this node cannot know who it is. Restore the file, or"
            " empty the data directory, and the node gets its data from the others"
        )
    try:
        return _decode(line)
    except msgspec.MsgspecError as error:
        raise StorageFailedError(
            f"{IDENTITY_PATH} holds something that this version does not understand ({error})"
        ) from error
