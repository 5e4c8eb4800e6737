"""The limits of a cluster and of its metadata, each with its reason, as in ``base/limits.py``."""

from typing import Final

from goqueue.base.limits import PARTITIONS_MAX
from goqueue.base.units import DAY_MS, MINUTE_MS, MiB

NODES_MAX: Final = 100
"""Most nodes of a cluster: each of them dials all others."""

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

COUNT_CHANGES_MAX: Final = 1_000
"""Most changes of the partition count of one topic: each is remembered."""

ID_BLOCK: Final = 1_000
"""Ids of one block, so that a node asks for more once in a thousand producers."""

ID_OWNERS_MAX: Final = 64
"""Partitions that may own ids of one kind: the number of a block names its owner."""

ID_KINDS_MAX: Final = 16
"""Kinds of ids given out in blocks."""

FEATURE_LEVEL_MAX: Final = 1_000_000
"""Beyond it a feature level is a mistake."""

SUSPECTED_BY_MIN: Final = 2
"""Nodes whose connections must be refused before a peer counts as dead at once."""

assert 2 * REPLICAS_MAX < 2**6, "the union of old and new replicas fits the bits of an int"
assert REPLICATION_FACTOR <= REPLICAS_MAX <= NODES_MAX
assert CHANGES_PER_EVENT_MAX <= CLUSTER_PARTITIONS_MAX
assert PARTITIONS_MAX <= CLUSTER_PARTITIONS_MAX
