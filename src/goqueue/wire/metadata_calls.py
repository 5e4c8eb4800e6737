"""The headers by which clients learn where things are: nodes, leaders of partitions, coordinators.

A leader travels as the place of its node in the list of nodes, so that a topic of a thousand
partitions costs two small numbers for each.
"""

from typing import Annotated, Final, Literal

import msgspec

from goqueue.base.limits import TOPICS_MAX
from goqueue.wire.calls import Call, Name, Natural, Text

NO_LEADER: Final = -1
"""The place of a leader that is not known at present."""

CLUSTER: Final = "cluster"
"""The feature a node of a cluster names in HELLO: ask it where things are."""

CoordinatorKind = Literal["group", "transaction", "producer", "schema", "schedule", "redrive"]
"""What a coordinator is asked for: a group, a transactional id, the number of a transactional
producer, the schema registry, a recurring schedule, the redrives of a topic of dead letters."""


class Metadata(Call, frozen=True):
    """Ask for nodes and leaders: of these topics, or of all; nothing new if the version is known.

    With ``topics`` the version is not compared.
    """

    topics: Annotated[list[Name], msgspec.Meta(max_length=TOPICS_MAX)] | None = None
    known_version: Natural = 0


class NodeEntry(Call, frozen=True):
    """A node that clients may ask."""

    id: str
    native: str
    """``host:port`` of the native protocol."""
    http: str
    rack: str = ""


class TopicLeaders(Call, frozen=True):
    """The partitions of a topic in order: the place of each leader among the nodes, its epoch."""

    name: str
    leaders: list[int]
    epochs: list[int]


class ClusterMetadata(Call, frozen=True):
    """Who is there and who leads what, as far as the answering node knows.

    A broker that is in no cluster has no ``cluster_id``. ``is_known`` says that nothing changed
    since the version that was named; the lists are empty then.
    """

    version: int
    cluster_id: str
    controller: str | None
    nodes: list[NodeEntry]
    topics: list[TopicLeaders]
    is_known: bool = False


class FindCoordinator(Call, frozen=True):
    """Ask which node holds the state of something."""

    kind: CoordinatorKind
    key: Text


class Coordinator(Call, frozen=True):
    """The node to ask, the partition of the internal topic that has the state, and its epoch."""

    node: str
    native: str
    topic: str
    partition: int
    epoch: int
