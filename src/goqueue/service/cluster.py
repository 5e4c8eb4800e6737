"""Where things are: nodes, leaders of partitions, coordinators of named state.

A broker by itself is the only node of a cluster of one: it leads everything, in epoch 0.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from goqueue.base.caller import Caller
from goqueue.base.deeds import Deed
from goqueue.base.errors import InvalidRequestError, LeaderNotAvailableError
from goqueue.base.ids import LeaderEpoch, NodeId, PartitionId, TopicName, TopicPartition
from goqueue.base.names import is_internal
from goqueue.core.producers.id_blocks import owner_of
from goqueue.core.producers.partitioner import partition_of_key
from goqueue.core.tx.families import home_of
from goqueue.runtime.broker import TX_STATE_PARTITIONS, Broker
from goqueue.runtime.schemas.schemas import SCHEMAS_TOPIC
from goqueue.runtime.state_log import STATE_PARTITIONS, STATE_TOPIC
from goqueue.runtime.topology import ClusterView, NodePlace, PartitionLeader
from goqueue.runtime.tx.tx_link import TX_TOPIC
from goqueue.service.gate import Gate
from goqueue.service.verb import caller_verb, verb
from goqueue.wire import metadata_calls as said

PRODUCER_DIGITS_MAX = 19
"""A producer's number has 63 bits."""


class Cluster:
    """What clients ask before they know whom to ask."""

    def __init__(self, broker: Broker, gate: Gate | None = None) -> None:
        self._broker = broker
        self._gate = gate or Gate()
        self.listeners: Callable[[], tuple[str, str]] = lambda: (
            broker.config.native_listener,
            broker.config.http_listener,
        )
        """Where this process listens, native and HTTP: told by who binds the ports."""

    @caller_verb(Deed.FIND_LEADERS)
    async def metadata(self, caller: Caller, call: said.Metadata) -> said.ClusterMetadata:
        """Return nodes and leaders, as far as they are known here."""
        view = self._view()
        if call.topics is None and call.known_version and call.known_version == view.version:
            return _answer(view, (), (), is_known=True)
        nodes = view.nodes
        names = view.topics if call.topics is None else map(TopicName, call.topics)
        # What a version says is the same on every node, whether it has opened the topics or not.
        known = [one for one in names if one in view.topics and not is_internal(one)]
        topics = [
            _leaders(name, view.leaders_of(name), nodes)
            for name in self._gate.visible(caller, Deed.DESCRIBE_TOPIC, known, str)
        ]
        return _answer(view, nodes, topics)

    @verb(Deed.FIND_COORDINATOR)
    async def find_coordinator(self, call: said.FindCoordinator) -> said.Coordinator:
        """Return the node that holds the state of something, or raise if there is none."""
        view, place = self._view(), self._home_of(call)
        leaders = view.leaders_of(place.topic)
        known = leaders[place.partition] if place.partition < len(leaders) else _NOBODY
        node = next((one for one in view.nodes if one.node == known.node), None)
        if node is None:
            raise LeaderNotAvailableError(f"{place} has no leader at present; ask again")
        return said.Coordinator(node.node, node.native, *place, known.epoch)

    def _view(self) -> ClusterView:
        topology = self._broker.topology
        return _Alone(self._broker, *self.listeners()) if topology is None else topology.view

    def _home_of(self, call: said.FindCoordinator) -> TopicPartition:
        match call.kind:
            case "group" | "schedule" | "redrive":
                return self._hashed(STATE_TOPIC, STATE_PARTITIONS, call.key)
            case "transaction":
                return self._hashed(TX_TOPIC, TX_STATE_PARTITIONS, home_of(call.key))
            case "producer":
                number = _number(call.key)
                count = self._count(TX_TOPIC, TX_STATE_PARTITIONS)
                return _place(TX_TOPIC, owner_of(number) % count)
            case "schema":
                return _place(SCHEMAS_TOPIC, 0)

    def _hashed(self, topic: str, partitions: int, key: str) -> TopicPartition:
        return _place(topic, partition_of_key(key.encode(), self._count(topic, partitions)))

    def _count(self, topic: str, partitions: int) -> int:
        """Return how many partitions an internal topic has, or will have when it is made."""
        known = self._broker.topics.get(TopicName(topic))
        return partitions if known is None else len(known.partitions)


class _Alone:
    """A broker that is in no cluster."""

    cluster_id = ""
    version = 0

    def __init__(self, broker: Broker, native: str, http: str) -> None:
        self._topics = broker.topics
        self.controller: NodeId | None = NodeId(broker.config.node_id)
        self.nodes = (NodePlace(NodeId(broker.config.node_id), native, http),)

    @property
    def topics(self) -> Collection[TopicName]:
        """The topics of the broker."""
        return self._topics.keys()

    def leaders_of(self, topic: TopicName) -> Sequence[PartitionLeader]:
        """Return that it leads everything itself, and what is not made yet."""
        known = self._topics.get(topic)
        count = STATE_PARTITIONS if known is None else len(known.partitions)
        return [PartitionLeader(self.controller, LeaderEpoch(0))] * count


_NOBODY = PartitionLeader(None, LeaderEpoch(0))


def _place(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionId(partition))


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > PRODUCER_DIGITS_MAX:
        raise InvalidRequestError(f"key: {text!r} is not the number of a producer")
    return int(text)


def _leaders(
    name: str, leaders: Sequence[PartitionLeader], nodes: Sequence[NodePlace]
) -> said.TopicLeaders:
    places = {one.node: place for place, one in enumerate(nodes)}
    return said.TopicLeaders(
        name,
        [
            said.NO_LEADER if one.node is None else places.get(one.node, said.NO_LEADER)
            for one in leaders
        ],
        [one.epoch for one in leaders],
    )


def _answer(
    view: ClusterView,
    nodes: Iterable[NodePlace],
    topics: Iterable[said.TopicLeaders],
    *,
    is_known: bool = False,
) -> said.ClusterMetadata:
    return said.ClusterMetadata(
        view.version,
        view.cluster_id,
        view.controller,
        [said.NodeEntry(*one) for one in nodes],
        list(topics),
        is_known,
    )
