"""What nodes of a cluster say to each other first, and how each proves that it knows the key.

Shape: codec. Packets are those of the native protocol, with operations of their own. A connection
begins with two requests of the node that dialled:

    dialling node                                 listening node
    PEER_HELLO   identity, nonce A          ->
                                            <-    identity, nonce B, proof of the listening node
    PEER_PROVE   proof of the dialling node ->
                                            <-    nothing: the connection is open

A proof is the HMAC-SHA256, under the key of the cluster, of the role, both identities and both
nonces. Neither the key nor anything that could be sent again on another connection travels, and a
proof of one role is no proof of the other. Without a key both ends use an empty one: this is for
loopback only, and a node with a key refuses a node without.
"""

import hashlib
import hmac
from enum import IntEnum
from typing import Annotated, Final

import msgspec

from goqueue.base.ids import DirectoryId, NodeId
from goqueue.base.limits import NAME_CHARACTERS_MAX
from goqueue.wire.calls import Call, Natural, Number

PEER_PROTOCOL: Final = 1
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = hashlib.sha256().digest_size
ADDRESS_CHARACTERS_MAX: Final = 300

_encode: Final = msgspec.msgpack.Encoder().encode

Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARACTERS_MAX)]
Nonce = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
Proof = Annotated[bytes, msgspec.Meta(min_length=PROOF_BYTES, max_length=PROOF_BYTES)]


class PeerOperation(IntEnum):
    """What one node asks another."""

    PEER_HELLO = 110
    PEER_PROVE = 111
    RAFT = 112
    REGISTER = 113
    NODE_HEARTBEAT = 114
    PROPOSE = 115
    ALTER_PARTITION = 116
    ALLOCATE_IDS = 117
    REPLICA_FETCH = 118
    SEGMENT_COPY = 119
    WATCH_GROUP = 120
    TX_ADD = 121
    TX_MARK = 122
    FORWARD = 123
    REPAIR = 124
    INTRODUCE = 125
    OWN_APPEND = 126
    FOLLOW_SCHEMAS = 127
    DEAD_LETTERS = 130
    TX_ASK = 135
    PARTITION_ENDS = 140
    REPLICA_REPORTS = 141


class PeerIdentity(Call, frozen=True):
    """Which node speaks: its name, its disk, and how often it was started on it."""

    cluster_id: Name
    """Empty on a node that does not belong to a cluster yet."""
    node_id: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
    directory_id: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
    incarnation: Natural = 0
    process: Natural = 0
    """Chosen at random by the process, to be known from a copy of its directory."""

    @property
    def node(self) -> NodeId:
        """The name of the node."""
        return NodeId(self.node_id)

    @property
    def directory(self) -> DirectoryId:
        """The identity of its data directory."""
        return DirectoryId(self.directory_id)


class PeerHello(Call, frozen=True):
    """The first request of a connection between nodes."""

    protocol: Number
    identity: PeerIdentity
    nonce: Nonce


class PeerWelcome(Call, frozen=True):
    """The reply: who listens, and the proof that it knows the key."""

    identity: PeerIdentity
    nonce: Nonce
    proof: Proof


class PeerProve(Call, frozen=True):
    """The second request: the proof of the node that dialled."""

    proof: Proof


class Handshake(msgspec.Struct, frozen=True, kw_only=True):
    """Both ends of one connection, as each has to know them before it proves anything."""

    dialling: PeerIdentity
    listening: PeerIdentity
    dialling_nonce: bytes
    listening_nonce: bytes

    def proof_of_listening(self, key: bytes) -> bytes:
        """Return what the listening node has to present."""
        return self._proof(b"goqueue peer listening", key)

    def proof_of_dialling(self, key: bytes) -> bytes:
        """Return what the dialling node has to present."""
        return self._proof(b"goqueue peer dialling", key)

    def _proof(self, role: bytes, key: bytes) -> bytes:
        # The encoding says where each part ends, so that no two handshakes have the same bytes.
        return hmac.digest(key, role + b"\0" + _encode(self), "sha256")


def is_proof(presented: bytes, expected: bytes) -> bool:
    """Compare proofs in a time that says nothing about where they differ."""
    return hmac.compare_digest(presented, expected)
