"""Identities and ordinals that must never be confused with one another."""

from typing import Final, NamedTuple, NewType

Offset = NewType("Offset", int)
"""Position of a message in its partition. The first message has offset 0."""

Position = NewType("Position", int)
"""Position of a byte in a file."""

TopicName = NewType("TopicName", str)
"""A name that has passed ``names.topic_name``."""

PartitionId = NewType("PartitionId", int)
"""Number of a partition in its topic, from 0."""

ProducerId = NewType("ProducerId", int)
"""Identity of an idempotent producer, from 1; NO_PRODUCER for a message without one."""

Epoch = NewType("Epoch", int)
"""Life of a producer id, or of a partition under one leader. A newer one fences the older ones."""
NO_EPOCH: Final = Epoch(-1)
"""The epoch of a message that is not there, or that is older than every epoch known."""

Sequence = NewType("Sequence", int)
"""Ordinal of a message among those one producer life sent to one partition, from 0."""

GroupId = NewType("GroupId", str)
"""A name that has passed ``names.group_name``."""

MemberId = NewType("MemberId", str)
"""One member of a group, from its join to its leaving: ``{client_id}-{hex}``."""

Generation = NewType("Generation", int)
"""How often the assignment of a group was made anew; the first is 1."""

SubjectName = NewType("SubjectName", str)
"""A name that has passed ``names.subject_name``: what the versions of a schema are kept under."""

SchemaId = NewType("SchemaId", int)
"""A schema by its content, over all subjects; the first is 1."""

SchemaVersion = NewType("SchemaVersion", int)
"""Ordinal of a schema in its subject, from 1."""

NodeId = NewType("NodeId", str)
"""The name of a node of a cluster, as its settings give it."""

DirectoryId = NewType("DirectoryId", str)
"""Identity of a data directory, made with it: an empty disk under an old name has another."""

NodeEpoch = NewType("NodeEpoch", int)
"""A registration of a node, by its ordinal among all of the cluster; a newer one fences older."""

TopicId = NewType("TopicId", int)
"""A topic of a cluster, from 1. A topic that is deleted and made again has another one."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""How often a partition was given a leader; the first has 1."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""How often the record of a partition in the cluster's metadata changed; the first is 1."""

NO_PRODUCER = ProducerId(0)


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: TopicName
    partition: PartitionId

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"
