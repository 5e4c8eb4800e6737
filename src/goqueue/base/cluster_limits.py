"""The limits of a cluster and of its metadata, each with its reason, as in ``base/limits.py``."""

from typing import Final

from goqueue.base.limits import (
    FETCH_BYTES_MAX,
    JOURNAL_RECORD_BYTES_MAX,
    NAME_CHARACTERS_MAX,
    PARTITIONS_MAX,
    REQUEST_BYTES_MAX,
    REQUEST_HEADER_BYTES_MAX,
)
from goqueue.base.units import DAY_MS, MINUTE_MS, SECOND_MS, KiB, MiB

NODES_MAX: Final = 100
"""Most nodes of a cluster: each of them dials all others."""

NODES_REMOVED_MAX: Final = 100
"""Removed nodes whose data directories are remembered, so that they do not come back."""

VOTERS_MAX: Final = 5
"""Nodes that vote on the metadata: five lose two. More would only make each decision slower."""

NODE_ID_CHARACTERS_MAX: Final = 64
"""Longest name of a node or of a data directory; requests between nodes repeat it."""

REPLICAS_MAX: Final = 9
"""Most replicas of a partition: they are bits of a number, twice as many while they move."""

REPLICATION_FACTOR: Final = 3
"""Replicas of a partition unless its topic says otherwise, if there are as many nodes."""

CLUSTER_PARTITIONS_MAX: Final = 100_000
"""Most partitions of a cluster: every node holds the records of all; larger was not measured."""

ADDRESS_CHARACTERS_MAX: Final = 300
"""Longest address of a listener: a host name of 255 characters and a port."""

CHANGES_PER_EVENT_MAX: Final = 5_000
"""Partitions one event changes: an entry of the quorum's log of about 60 KB."""

SNAPSHOT_PARTITIONS_MAX: Final = 5_000
"""Partitions of one event of a snapshot; a larger topic has an event of its own."""

ALTERED_PARTITIONS_MAX: Final = 10_000
"""Most partitions whose in-sync replicas one request changes."""

ANSWERS_MAX: Final = 10_000
"""Answers to proposals that are remembered for repeats; the oldest make room."""

ANSWERS_MS_MAX: Final = 5 * MINUTE_MS
"""How long an answer is remembered. A client that repeats later asks what became of it."""

REQUEST_ID_CHARACTERS_MAX: Final = 64
"""Longest id of a proposal."""

REASSIGNMENTS_MAX: Final = 100
"""Reassignments remembered, those that run among them."""

MOVES_MAX: Final = 10_000
"""Moves of one reassignment, of all that run, and of all that are over and remembered."""

MOVES_PER_NODE: Final = 5
"""Partitions a node receives at once (a default); more only share the throttle."""

MOVE_TIMEOUT_MS: Final = DAY_MS
"""How long one partition may take to move (a default)."""

MOVE_TIMEOUT_MS_MAX: Final = 30 * DAY_MS
"""Longest an operator may let a partition move."""

THROTTLE_BYTES: Final = 10 * MiB
"""Bytes a second that moving replicas take (a default)."""

ID_BLOCK: Final = 1_000
"""Ids of one block, so that a node asks for more once in a thousand producers."""

ID_OWNERS_MAX: Final = 64
"""Partitions that may own ids of one kind: the number of a block names its owner."""

PLAIN_PRODUCERS_OWNER: Final = ID_OWNERS_MAX - 1
"""Whose blocks the ids of producers without transactions are of: no partition has this number."""

TX_COORDINATORS: Final = 8
"""Partitions of ``__transactions`` in a cluster: so many nodes can share the coordinators."""

ID_KINDS_MAX: Final = 16
"""Kinds of ids given out in blocks."""

FEATURE_LEVEL_MAX: Final = 1_000_000
"""Beyond it a feature level is a mistake."""

SUSPECTED_BY_MIN: Final = 2
"""Nodes whose connections must be refused before a peer counts as dead at once."""

REPLICA_LOGS_MAX: Final = 8
"""Most logs that share the leader and the replicas of a partition; two are in use."""

REPLICA_PARTS_MAX: Final = 2_000
"""Most logs one request or reply between nodes names; more are named by the next one."""

REPLICA_REQUESTS_MAX: Final = 64
"""Most fetches of one follower that a leader keeps at a time."""

REPLICA_SHARE_BYTES_MIN: Final = 64 * KiB
"""Smallest share of a reply that a log is given, if there is anything left at all."""

REPLICA_WAIT_MS: Final = 500
"""How long a leader keeps a fetch of a follower that has nothing new to get."""

REPLICA_LAG_MS: Final = 10 * SECOND_MS
"""A follower that has not caught up for so long leaves the replicas in sync."""

REPAIR_BYTES_MAX: Final = 16 * MiB
"""Most that is fetched at once for one stretch of damaged messages; the rest is fetched next."""

LEADER_EPOCHS_MAX: Final = 10_000
"""Epochs remembered of one log; beyond, the oldest are forgotten, and a follower that ended in one
of those copies the log again."""

TX_PLACES_MAX: Final = 1_000
"""Places of a transaction that one request between nodes names; more are named by the next one."""

RAFT_ENTRY_BYTES_MAX: Final = 1 * MiB
"""Largest proposal to the quorum; the move of 33,000 partitions takes a third of it."""

RAFT_APPEND_BYTES_MAX: Final = 1 * MiB
"""Entries in one message of the quorum, unless a single one is larger."""

RAFT_APPEND_ENTRIES_MAX: Final = RAFT_APPEND_BYTES_MAX
"""Most entries in one message: an empty one counts as a byte."""

RAFT_WINDOW_MESSAGES_MAX: Final = 64
"""Unanswered appends a leader sends ahead to one follower."""

RAFT_UNCOMMITTED_BYTES_MAX: Final = 64 * MiB
"""Proposals a leader holds that are not applied; beyond it new ones are refused."""

RAFT_APPLY_ENTRIES_MAX: Final = 1_000
"""Committed entries handed out at once, so that others have a turn in between."""

RAFT_READS_MAX: Final = 10_000
"""Reads that wait for a majority to confirm the leader; beyond it new ones are refused."""

RAFT_NODES_MAX: Final = 1_000
"""Most members of a quorum, learners included."""

RAFT_SNAPSHOT_BYTES_MAX: Final = 16 * MiB
"""Largest state of the quorum's host: 100,000 partitions take a tenth of it."""

RAFT_MESSAGE_BYTES_MAX: Final = 32 * MiB
"""Largest message of the quorum: one with a snapshot, or with many small entries."""

RAFT_JOURNAL_BYTES_COMPACT: Final = 4 * MiB
"""A journal of the quorum that has grown to this is replaced by a snapshot and what follows."""

RAFT_ENTRIES_KEPT: Final = 1_000
"""Entries kept behind a snapshot, so that a follower that is a little late needs no snapshot."""

ETCD_URL_CHARACTERS_MAX: Final = 4_096
"""Longest setting that names an etcd: sixteen endpoints and four paths of files."""

ETCD_ENDPOINTS_MAX: Final = 16
"""Most members of an etcd that are tried in turn; etcd advises against more than seven."""

ETCD_PREFIX_CHARACTERS_MAX: Final = 200
"""Longest prefix of the keys of a cluster: every request repeats it."""

ETCD_PASSWORD_BYTES_MAX: Final = 4 * KiB
"""Largest file of a password for etcd."""

ETCD_BATCH_BYTES_MAX: Final = 1 * MiB
"""Proposals that are written to etcd at once; etcd takes requests of 1.5 MiB unless told more."""

ETCD_BATCH_ENTRIES_MAX: Final = 10_000
"""Most proposals in one key of the log."""

ETCD_CHUNK_BYTES: Final = 512 * KiB
"""A piece of a snapshot in etcd. It never changes: readers compute the number of pieces from it."""

ETCD_PAGE_KEYS: Final = 64
"""Keys of the log read at once, fewer if they are large."""

ETCD_REPLY_BYTES_MAX: Final = 8 * MiB
"""Largest reply of etcd that is read, one line of a watch among them."""

ETCD_COMPACT_BATCHES: Final = 4_000
"""Batches in etcd that a snapshot replaces: deleting as many keys takes etcd some milliseconds."""

ETCD_COMPACT_BYTES: Final = 4 * MiB
"""Batches in etcd of so many bytes are replaced by a snapshot, too."""

assert 2 * REPLICAS_MAX < 2**6, "the union of old and new replicas fits the bits of an int"
assert REPLICATION_FACTOR <= REPLICAS_MAX <= NODES_MAX
assert TX_COORDINATORS < PLAIN_PRODUCERS_OWNER, "each coordinator of transactions has its blocks"
assert CHANGES_PER_EVENT_MAX <= CLUSTER_PARTITIONS_MAX
assert PARTITIONS_MAX <= CLUSTER_PARTITIONS_MAX
assert 2 * REPLICA_WAIT_MS < REPLICA_LAG_MS, "an idle follower is heard of in time"
assert REPLICA_PARTS_MAX * (NAME_CHARACTERS_MAX + 100) < REQUEST_HEADER_BYTES_MAX
assert TX_PLACES_MAX * (2 * NAME_CHARACTERS_MAX + 100) < REQUEST_HEADER_BYTES_MAX
assert REPLICA_SHARE_BYTES_MIN < FETCH_BYTES_MAX
assert RAFT_ENTRY_BYTES_MAX + 64 * KiB < JOURNAL_RECORD_BYTES_MAX
assert RAFT_SNAPSHOT_BYTES_MAX + 1 * MiB < RAFT_MESSAGE_BYTES_MAX < REQUEST_BYTES_MAX
assert RAFT_APPEND_ENTRIES_MAX * 25 < RAFT_MESSAGE_BYTES_MAX, "an empty entry has 25 bytes at most"
assert RAFT_ENTRY_BYTES_MAX <= ETCD_BATCH_BYTES_MAX, "a proposal fits into a batch"
assert 4 * ETCD_BATCH_BYTES_MAX // 3 + 64 * KiB < ETCD_REPLY_BYTES_MAX, "a batch as base64"
